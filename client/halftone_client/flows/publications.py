"""Publications: releases that anybody may find, cite, download and verify."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from halftone_client.flows import files
from halftone_client.flows.releases import ReleaseRef, SampleRef
from halftone_client.protocol import Body, Call, Flow, Service, path_to
from halftone_client.records import Record, id_of

PublicationRef = str | Mapping[str, Any]


def publish(
    service: Service,
    release: ReleaseRef,
    *,
    title: str,
    abstract: str,
    license: str,
    creators: Sequence[Mapping[str, Any]],
    contact: str | None = None,
    keywords: Sequence[str] = (),
    temporal: Mapping[str, str] | None = None,
    spatial: str | None = None,
    samples: Sequence[SampleRef] | None = None,
    supersedes: PublicationRef | None = None,
    show_budget: bool = False,
) -> Flow[Record]:
    """Publish samples of a release, as the custodian of its dataset; it becomes public.

    `license` is an SPDX identifier such as CC-BY-4.0, each creator `{"name": ...}`, `temporal`
    `{"start": ..., "end": ...}` in ISO 8601. With `supersedes` it is the next version of that
    publication. `show_budget`: certificate and ledger proof tell the account's totals.
    """
    body: dict[str, Any] = {
        "release": id_of(release),
        "title": title,
        "abstract": abstract,
        "license": license,
        "creators": [dict(creator) for creator in creators],
        "contact": contact,
        "keywords": list(keywords),
        "temporal": None if temporal is None else dict(temporal),
        "spatial": spatial,
        "samples": None if samples is None else [id_of(sample) for sample in samples],
        "supersedes": None if supersedes is None else id_of(supersedes),
        "show_budget": show_budget,
    }
    return Record((yield from service.post(path_to("publications"), body, makes=True)))


def publications(
    service: Service, q: str | None = None, *, series: PublicationRef | None = None
) -> Flow[list[Record]]:
    """What is published, newest first: the newest version of each, or every version of a series.

    Each word of `q` is in title, abstract, creators or keywords.
    """
    wanted = None if series is None else id_of(series)
    found = yield from service.items(path_to("publications"), q=q, series=wanted)
    return [Record(item) for item in found]


def publication(service: Service, publication: PublicationRef) -> Flow[Record]:
    """One publication, with its files. Raises `Withdrawn` once it was taken back."""
    return Record((yield from service.get(path_to("publications", id_of(publication)))))


def save_publication(
    service: Service, publication: PublicationRef, path: str | os.PathLike[str]
) -> Flow[Path]:
    """Write the archive of a publication to a zip file; never leaves half a file at `path`.

    `halftone-client verify` checks it.
    """
    where = path_to("publications", id_of(publication), "bundle")
    return (yield from files.written(service, Call("GET", where), path))


def withdraw(service: Service, publication: PublicationRef, reason: str) -> Flow[None]:
    """Take a publication back; whoever asks for it is told when and why (custodian)."""
    where = path_to("publications", id_of(publication))
    yield from service.call(Call("DELETE", where, Body(json={"reason": reason})))

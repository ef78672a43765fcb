"""Reports: how good a release is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from halftone_client.flows import waiting
from halftone_client.flows.releases import ReleaseRef
from halftone_client.progress import Report
from halftone_client.protocol import Call, Flow, Service, path_to
from halftone_client.records import QualityReport, id_of


def report(service: Service, release: ReleaseRef) -> Flow[QualityReport]:
    """The report as it is now: `["public"]` for everyone who sees the release, `["exact"]` for
    the dataset's custodian alone, once it exists (None until then, and for everyone else)."""
    return QualityReport((yield from service.get(_path(release))))


def report_page(service: Service, release: ReleaseRef) -> Flow[str]:
    """The report as a page for people, one HTML file that needs nothing else: write it to disk."""
    call = Call("GET", _path(release), params={"format": "html"})
    return (yield from service.call(call)).text


def make_report(
    service: Service,
    release: ReleaseRef,
    *,
    target: str | None = None,
    regression: Mapping[str, Any] | None = None,
    subgroups: Sequence[str] | None = None,
    wait: bool = True,
    timeout_s: float | None = None,
    progress: bool | Report = True,
) -> Flow[QualityReport]:
    """Compare the release with the real table, as its custodian; free of charge.

    target: a column to predict, by models of synthetic and of real rows. regression: `{"outcome":
    column, "predictors": [columns]}`, fitted to both. subgroups: columns within whose values the
    others are compared.

    What `["exact"]` then holds is not private: do not publish it. An earlier one is dropped.
    """
    choices = {"target": target, "regression": regression, "subgroups": subgroups}
    chosen = {name: choice for name, choice in choices.items() if choice is not None}
    accepted = QualityReport((yield from service.post(_path(release), chosen or None, makes=True)))
    if not wait:
        return accepted
    return (yield from waiting.wait(service, accepted, timeout_s=timeout_s, progress=progress))


def delete_report(service: Service, release: ReleaseRef) -> Flow[None]:
    """Stop the comparison, if it runs, and erase what it found; the public part stays."""
    yield from service.delete(_path(release))


def _path(release: ReleaseRef) -> str:
    return path_to("releases", id_of(release), "report")

"""The bundle of a release: one zip with its tables, what is known of them, and a signature.

The same release, samples and citation give the same bytes, until the service signs with another key
or writes the same facts in another way; equal ETags mean equal bytes.

The archive is made in one pass. Tables come first, so that their sizes and hashes are known when
the files that state them are written; `SHA256SUMS` and its signature come last. The first line of
`SHA256SUMS` is the hash of all bytes of the archive before it, headers and packed data included.
What follows it in the archive is determined by what came before: so every byte is covered.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from typing import Any

import pyarrow.parquet as pq
from sqlalchemy.orm import Session

from app.bundles import prose
from app.bundles.archive import COMPRESSION, Archive, Member
from app.bundles.contents import Contents, Subject, chosen, read
from app.bundles.croissant import croissant
from app.bundles.data_package import data_package
from app.bundles.datacite import datacite
from app.bundles.files import Table, Written
from app.bundles.table_schema import counts_schema, rows_schema
from app.database import Database
from app.releases import downloads, results, sampling
from app.releases.downloads import Format, Rendering, StoredSample
from app.reports import page
from app.settings import Settings
from app.signing import keys as signing_keys
from app.signing.canonical import canonical, sha256_of
from app.signing.keys import SigningKey
from app.storage.encryption import Keyring

MEDIA_TYPE = "application/zip"
SUMS, SIGNATURE = "SHA256SUMS", "SHA256SUMS.sig"
# Raise it when the same contents are written differently, so that ETags change.
_RENDERING = 1
# Whose versions the bytes depend on.
_WRITERS = ("halftone", "jinja2", "pyarrow")


@dataclass(frozen=True, slots=True)
class Bundle:
    """A bundle that can be sent: its contents, its open tables, and the key that signs it."""

    contents: Contents
    tables: Sequence[StoredSample]
    key: SigningKey

    @property
    def name(self) -> str:
        """A name to save it under."""
        return f"{self.contents.release_id}.zip"

    @property
    def etag(self) -> str:
        """A strong tag: equal tags mean equal bytes."""
        facts = {
            "rendering": _RENDERING,
            "written_by": [COMPRESSION, *(metadata.version(name) for name in _WRITERS)],
            # It has the hashes of the tables, and its signature tells the key.
            "certificate": self.contents.certificate,
            "dictionary": self.contents.dictionary,
            "measurements": results.etag(self.contents.records, "json"),
            "statement": self.contents.statement,
            "proof": self.contents.proof,
            "citation": self.contents.citation.as_json(),
        }
        return f'"{sha256_of(facts)[:32]}"'

    def pieces(self) -> Iterator[bytes]:
        """The bytes; memory is bounded, whatever the size of the tables.

        Raises `Conflict` at once where stored bytes are damaged.
        """
        # After a response has begun, a damaged table cannot turn into a refusal.
        for table in self.tables:
            downloads.check(table.file)
        return _written(self)


def open_bundle(
    database: Database,
    keyring: Keyring,
    settings: Settings,
    find: Callable[[Session], Subject],
) -> Bundle:
    """The bundle of what `find` gives; its errors decide who gets none.

    Raises `Invalid` for samples that the release does not have, `Conflict` for a release that
    published nothing, and `NotReady` where rows were dropped, which are then made again.
    """
    with database.read() as session:
        subject = find(session)
        rows = chosen(session, subject.release, subject.sample_ids)
        key = signing_keys.current(session, keyring)
        contents = read(session, database, subject, rows, key)
    try:
        tables = [sampling.stored(database, sample, subject.dataset) for sample in rows]
    except sampling.RowsDropped as dropped:
        sampling.remake(database, dropped.sample_id, settings)
        raise
    return Bundle(contents, tables, key)


def _written(bundle: Bundle) -> Iterator[bytes]:
    archive = Archive()
    for member in _members(bundle, archive):
        yield from archive.add(member)
    lines = [f"# {archive.sha256} of the {archive.size_bytes} bytes of the archive before this\n"]
    lines += [f"{each.sha256}  {each.name}\n" for each in archive.written]
    sums = "".join(lines).encode("ascii")
    signature = canonical(bundle.key.signature_of(sums)) + b"\n"
    yield from archive.add(Member(SUMS, [sums], is_packed=False))
    yield from archive.add(Member(SIGNATURE, [signature], is_packed=False))
    yield from archive.close()


def _members(bundle: Bundle, archive: Archive) -> Iterator[Member]:
    """The files but for the sums, in their order; each is written before the next is asked for."""
    contents, tables = bundle.contents, []
    for sample in bundle.tables:
        yield from _data(sample)
        csv, parquet = archive.written[-2:]
        tables.append(_table(sample, contents, csv, parquet))
    yield _json("dictionary.json", contents.dictionary)
    measured = results.as_json(contents.release_id, contents.records, contents.schema)
    yield Member("measurements.json", measured)
    if contents.statement is not None:
        yield _json("statement.json", contents.statement)
    if contents.report is not None:
        yield _text("report.html", page.render(contents.report))
    yield _json("certificate.json", contents.certificate)
    yield _json("ledger-proof.json", contents.proof)
    about = (contents.citation, contents.certificate, tables)
    yield _json("datapackage.json", data_package(*about))
    yield _json("croissant.json", croissant(*about))
    yield _json("datacite.json", datacite(*about))
    yield _text("LICENSE.txt", prose.licence(contents.citation))
    names = [each.name for each in archive.written]
    yield _text("README.md", prose.readme(*about, [*names, SUMS, SIGNATURE]))


def _data(sample: StoredSample) -> Iterator[Member]:
    """Of each table, packed CSV and then Parquet, which is packed already."""
    for form in (Format.CSV, Format.PARQUET):
        yield Member(
            f"data/{sample.id}.{form}",
            downloads.unchecked_pieces(sample, Rendering(form)),
            is_packed=form is Format.CSV,
            is_large=True,
        )


def _table(sample: StoredSample, contents: Contents, csv: Written, parquet: Written) -> Table:
    sample.file.seek(0)
    form = pq.read_schema(sample.file)
    schema = (
        rows_schema(contents.schema, form.names)
        if sample.kind == "rows"
        else counts_schema(form.names)
    )
    return Table(
        sample_id=sample.id,
        kind=sample.kind,
        rows=contents.rows[sample.id],
        csv=csv,
        parquet=parquet,
        schema=schema,
        types={field.name: str(field.type) for field in form},
    )


def _json(name: str, document: Mapping[str, Any]) -> Member:
    text = json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False)
    return _text(name, text + "\n")


def _text(name: str, text: str) -> Member:
    return Member(name, [text.encode("utf-8")])

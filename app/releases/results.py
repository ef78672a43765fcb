"""What a release publishes in addition to its samples: noisy answers and the certificate."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from sqlalchemy.orm import Session

from app.engine.privacy.journal import Record, measurements, resolved
from app.engine.privacy.publication import measurement_to_wire, measurements_to_arrow
from app.engine.privacy.queries import Discovered, FoundValues
from app.engine.privacy.questions import AnsweredQuantile
from app.engine.privacy.wire import FrameError
from app.engine.schema import Schema
from app.problems import Conflict, NotFound, NotReady
from app.releases import journal, repository
from app.releases.downloads import Format
from app.releases.models import ReleaseRow
from app.releases.rendering import parquet_pieces
from app.releases.spelling import CsvStyle, csv_pieces

# Name of the blob part with the pictures of its report, in the collection of a release.
PICTURES = "pictures"
_ROWS_AT_ONCE = 2**16
_LISTS = ("columns", "cell")
# Raise it when the same answers are written differently, so that ETags change.
_RENDERING = 2


def certificate(release: ReleaseRow) -> dict[str, Any]:
    """The statement that goes with the release. Raises `NotReady` or `Conflict`."""
    check_published(release)
    assert release.certificate is not None
    return release.certificate


def statement(release: ReleaseRow) -> dict[str, Any]:
    """How good the release is, as it was stored. Raises `NotReady`, `Conflict` or `NotFound`."""
    check_published(release)
    # A release of before there were statements has none.
    if release.statement is None:
        raise NotFound
    return {"release_id": release.id, **release.statement}


def records(session: Session, release: ReleaseRow) -> list[Record]:
    """Every noisy answer that a published release measured. Raises `Conflict` for damaged ones."""
    with _readable():
        return measurements(journal.read(session, release.id))


def modelled(session: Session, release: ReleaseRow, schema: Schema) -> Schema:
    """The dataset's dictionary with the values that the release found.

    Raises `Conflict` where its stored answers are damaged.
    """
    if all(column.discovers is None for column in schema.columns):
        return schema
    with _readable():
        return resolved(schema, journal.read(session, release.id))


@contextlib.contextmanager
def _readable() -> Iterator[None]:
    try:
        yield
    except FrameError:
        raise Conflict(
            "The release's stored answers are damaged. Restore the store from a backup. Making"
            " the release again would be charged again."
        ) from None


def etag(records: Sequence[Record], form: str) -> str:
    """A strong tag for one release: equal tags mean equal bytes."""
    digest = hashlib.sha256(f"{form} {_RENDERING}".encode())
    for answer in (record.answer for record in records):
        if isinstance(answer, AnsweredQuantile):
            digest.update(repr(answer.answer.value).encode())
            continue
        if isinstance(answer, Discovered):
            digest.update(answer.keys.tobytes())
        if isinstance(answer, FoundValues):
            digest.update(json.dumps(answer.texts).encode())
        digest.update(answer.values.tobytes())
    return f'"{digest.hexdigest()[:32]}"'


def check_published(release: ReleaseRow) -> None:
    """Only a release that succeeded publishes; one of an erased dataset may be withdrawn."""
    if release.state in repository.ACTIVE:
        raise NotReady("The release is still being made.", retry_after_s=2)
    if release.state != "succeeded":
        raise Conflict(f"The release has {release.state} and published nothing.")
    if release.certificate is None:
        raise Conflict("What the release published was withdrawn with its dataset.")


def as_json(release_id: str, records: Sequence[Record], schema: Schema) -> Iterator[bytes]:
    """`{"release_id": ..., "measurements": [...]}`, an answer at a time."""
    yield f'{{"release_id":{json.dumps(release_id)},"measurements":['.encode()
    for place, record in enumerate(records):
        text = json.dumps(measurement_to_wire(record, schema), separators=(",", ":"))
        yield ("," if place else "").encode() + text.encode()
    yield b"]}"


def as_long_form(records: Sequence[Record], schema: Schema, form: Format) -> Iterator[bytes]:
    """A row for each noisy cell or quantile. In CSV the two lists are written as JSON arrays."""
    table = measurements_to_arrow(records, schema)
    parts = (table.slice(first, _ROWS_AT_ONCE) for first in range(0, table.num_rows, _ROWS_AT_ONCE))
    if form is Format.PARQUET:
        return parquet_pieces(table.schema, parts)
    return csv_pieces((_flat(part) for part in parts), table.column_names, CsvStyle({}))


def _flat(part: pa.Table) -> pa.Table:
    for name in _LISTS:
        texts = [json.dumps(texts, ensure_ascii=False) for texts in part[name].to_pylist()]
        part = part.set_column(part.column_names.index(name), name, pa.array(texts, pa.string()))
    return part

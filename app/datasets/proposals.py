"""Dictionaries to start from: proposed from a table, or imported from other projects."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import pyarrow as pa

from app.datasets.report import file_wire
from app.datasets.schemas import FileOut, ProposalNoteOut, ProposalOut
from app.datasets.staging import StagedFile, StagingArea
from app.engine.files import (
    OPEN_ENCODING,
    FileOptions,
    Guesses,
    TableError,
    TableReader,
    open_table,
    with_guesses,
)
from app.engine.importers import (
    import_domain,
    import_nist,
    import_nist_dictionary,
    import_nist_unit,
)
from app.engine.proposals import propose
from app.engine.rows import RowProblem, refuse
from app.engine.schema import SchemaError
from app.engine.schema.values import to_wire
from app.problems import FieldError, Invalid
from app.settings import Settings

# A larger file is read up to here: the first part of a table is enough to propose from.
MOST_BYTES = 256 * 1024**2

_IMPORTERS: Mapping[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "nist": (import_nist, import_nist_unit),
    "nist-dictionary": (import_nist_dictionary, lambda _: None),
    "private-pgm": (import_domain, lambda _: None),
}


def options_of(settings: Settings, **given: Any) -> FileOptions:
    """The options of a request's query. Raises `Invalid` with pointers to its parameters."""
    try:
        return FileOptions.parse(given, settings.max_upload_bytes)
    except SchemaError as error:
        faults = [
            replace(FieldError(**asdict(p)), pointer=f"/query{p.pointer}") for p in error.errors
        ]
        raise Invalid("The parameters cannot be used.", errors=faults) from None


def from_table(
    staging: StagingArea,
    staged: StagedFile,
    options: FileOptions,
    missing: Sequence[str] = (),
) -> ProposalOut:
    """A proposal from a staged table. Raises `Invalid` for a file that is not a table."""
    with staging.reader(staged) as file:
        try:
            guessed = with_guesses(file, options)
            file.seek(0)
            reader = open_table(file, guessed.options)
            blocks = FirstBlocks(reader)
            found = propose(blocks, missing, has_header=reader.layout.has_header)
            if not blocks.rows:
                raise refuse("the file has no rows", "send a file with at least one row")
        except TableError as error:
            faults = [_fault(problem) for problem in error.problems]
            raise Invalid("The file cannot be read as a table.", errors=faults) from None
    detected = file_wire(reader.report)
    detected["notes"] = [*guessed.notes, *detected["notes"]]
    guesses = [ProposalNoteOut(**asdict(note)) for note in found.notes]
    if blocks.is_cut:
        guesses.insert(0, ProposalNoteOut(pointer="/file", message=_read_in_part(blocks.rows)))
    if guessed.question is not None:
        at = "/file_options/encoding"
        guesses.insert(0, ProposalNoteOut(pointer=at, message=guessed.question))
    return ProposalOut(
        schema=found.schema,
        unit=found.unit,
        notes=guesses,
        file=FileOut(**detected),
        file_options=_declared(guessed, reader),
    )


def _declared(guessed: Guesses, reader: TableReader) -> dict[str, Any]:
    """The options with which a dataset reads the file as the proposal did.

    An open question stands in them as such, so that a dataset cannot be declared without an answer.
    """
    report = reader.report
    found = {"format": report.format, "encoding": report.encoding, "delimiter": report.delimiter}
    declared = {key: value for key, value in found.items() if value}
    declared |= guessed.options.to_wire()
    return declared if guessed.question is None else declared | {"encoding": OPEN_ENCODING}


class FirstBlocks:
    """The blocks of a table until they take `MOST_BYTES`: as text, as far as that can be told."""

    def __init__(self, blocks: Iterable[pa.RecordBatch]) -> None:
        self._blocks = blocks
        self.is_cut = False
        self.rows = 0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        read_bytes = 0
        for block in self._blocks:
            if read_bytes >= MOST_BYTES:
                self.is_cut = True
                return
            read_bytes += _text_bytes(block)
            self.rows += block.num_rows
            yield block


def _text_bytes(block: pa.RecordBatch) -> int:
    """About the bytes of a block in a text file: each cell of a dictionary counts again."""
    total = 0
    for column in block.columns:
        if pa.types.is_dictionary(column.type) and len(column.dictionary):
            total += column.dictionary.nbytes * len(column) // len(column.dictionary)
        else:
            total += column.nbytes
    return total


def _read_in_part(rows: int) -> str:
    return (
        f"Only the first {rows} rows were read, about {MOST_BYTES // 1024**2} MiB. Values, ranges"
        " and nulls of the others are not in this proposal."
    )


def from_document(source: str, document: Any) -> ProposalOut:
    """A dictionary of another project in Halftone's form. Raises `Invalid`."""
    read_schema, read_unit = _IMPORTERS[source]
    plain = _plain(document)
    try:
        schema, unit = read_schema(plain), read_unit(plain)
    except SchemaError as error:
        faults = [FieldError(**asdict(problem)) for problem in error.errors]
        raise Invalid("The document cannot be imported.", errors=faults) from None
    return ProposalOut(schema=schema, unit=unit, notes=[], file=None, file_options=None)


def _plain(document: Any) -> Any:
    """The document with JSON's numbers: a response would show a Decimal as text."""
    try:
        return json.loads(json.dumps(document, default=to_wire))
    except RecursionError:
        fault = FieldError("", "lists and objects are nested too deeply", "flatten them")
        raise Invalid("The document cannot be imported.", errors=[fault]) from None


def _fault(problem: RowProblem) -> FieldError:
    place = "" if problem.record is None else f"record {problem.record}: "
    column = "" if problem.column is None else f"{problem.column}: "
    return FieldError("/file", f"{place}{column}{problem.message}", problem.remedy)

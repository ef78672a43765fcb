"""Dictionaries to start from: proposed from a table, or imported from other projects."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from app.datasets.report import file_wire
from app.datasets.schemas import FileOut, ProposalOut
from app.datasets.staging import StagedFile, StagingArea
from app.engine.files import FileOptions, TableError, open_table
from app.engine.importers import (
    import_domain,
    import_nist,
    import_nist_dictionary,
    import_nist_unit,
)
from app.engine.proposals import propose
from app.engine.rows import RowProblem
from app.engine.schema import SchemaError
from app.engine.schema.values import to_wire
from app.problems import FieldError, Invalid

# Largest file for a proposal: part of a large table is enough.
MOST_BYTES = 256 * 1024**2

_IMPORTERS: Mapping[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "nist": (import_nist, import_nist_unit),
    "nist-dictionary": (import_nist_dictionary, lambda _: None),
    "private-pgm": (import_domain, lambda _: None),
}


def from_table(staging: StagingArea, staged: StagedFile, options: FileOptions) -> ProposalOut:
    """A proposal from a staged table. Raises `Invalid` for a file that is not a table."""
    with staging.reader(staged) as file:
        try:
            reader = open_table(file, options)
            schema = propose(reader)
        except TableError as error:
            faults = [_fault(problem) for problem in error.problems]
            raise Invalid("The file cannot be read as a table.", errors=faults) from None
    return ProposalOut(schema=schema, unit=None, file=FileOut(**file_wire(reader.report)))


def from_document(source: str, document: Any) -> ProposalOut:
    """A dictionary of another project in Halftone's form. Raises `Invalid`."""
    read_schema, read_unit = _IMPORTERS[source]
    plain = _plain(document)
    try:
        schema, unit = read_schema(plain), read_unit(plain)
    except SchemaError as error:
        faults = [FieldError(**asdict(problem)) for problem in error.errors]
        raise Invalid("The document cannot be imported.", errors=faults) from None
    return ProposalOut(schema=schema, unit=unit, file=None)


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

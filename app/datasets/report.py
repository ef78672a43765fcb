"""What the custodian reads about an ingest. All of it is private."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from app.datasets.bounding import Bounding
from app.engine.encoding import EncodeTotals
from app.engine.files import FileReport, RowProblem, TableError, TableReader
from app.engine.rows import MOST_GROUPS, ProblemTally
from app.engine.schema import Schema
from app.engine.unicode_forms import difference


def ingest_report(
    schema: Schema,
    totals: EncodeTotals,
    reader: TableReader | None,
    *,
    problems: Sequence[RowProblem] = (),
    problem_count: int | None = None,
    bounding: Bounding | None = None,
    closed: Sequence[str] = (),
) -> dict[str, Any]:
    """The report as stored and sent: counts, the detected form of the file, problems.

    `problems` are those that the encoder did not find itself, of which there are `problem_count`.
    """
    more = len(problems) if problem_count is None else problem_count
    found = totals.problems.with_problems(problems, more)
    return {
        "problem_count": found.count,
        "problems": [asdict(problem) for problem in found.listed()],
        "problem_groups": _groups(found),
        "rows_read": totals.rows_read,
        "rows": totals.rows_kept,
        "dropped_without_id": totals.dropped_without_id,
        "bounding": None if bounding is None else asdict(bounding),
        "undeclared": _undeclared(totals),
        "constraint_violations": _violations(schema, totals),
        "file": None if reader is None else _file(reader, schema, totals),
        "unused_columns": [] if reader is None else _unused(reader, schema),
        "left_out": [{"name": gone.name, "reason": gone.reason} for gone in schema.left_out],
        "closed_datasets": list(closed),
    }


def _groups(found: ProblemTally) -> list[dict[str, Any]]:
    """The largest groups first, since they tell most about what went wrong."""
    largest = sorted(found.groups.items(), key=lambda item: -item[1].count)[:MOST_GROUPS]
    return [
        {
            "column": column,
            "cause": cause,
            "count": group.count,
            "examples": [asdict(problem) for problem in group.examples],
        }
        for (column, cause), group in largest
    ]


def _undeclared(totals: EncodeTotals) -> list[dict[str, Any]]:
    return [
        {"column": column, "treatment": treatment, "cells": cells}
        for column, counts in totals.treated.items()
        for treatment, cells in sorted(counts.items())
    ]


def _violations(schema: Schema, totals: EncodeTotals) -> list[dict[str, Any]]:
    """Rules by number only: a rule may list thousands of combinations, and the schema has them."""
    return [
        {
            "number": number,
            "kind": constraint.to_wire()["kind"],
            "columns": list(constraint.columns),
            "rows": rows,
        }
        for number, (constraint, rows) in enumerate(
            zip(schema.constraints, totals.violations, strict=True)
        )
    ]


def _file(reader: TableReader, schema: Schema, totals: EncodeTotals) -> dict[str, Any]:
    wire = file_wire(reader.report)
    return {**wire, "notes": [*wire["notes"], *_notes(reader, schema, totals)]}


def _notes(reader: TableReader, schema: Schema, totals: EncodeTotals) -> Iterator[str]:
    encoding = reader.report.encoding or "utf-8"
    for column, cells in totals.not_text.items():
        yield f"{column}: {cells} cells are not {encoding} text; declare the `encoding`"
    for column, cells in totals.zoned.items():
        yield (
            f"{column}: {cells} cells have a time zone or an offset. It was left out; what the"
            " clock showed is kept"
        )
    for column, found in totals.other_forms.items():
        yield (
            f"{column}: {found.cells} cells are not the declared text that they look like"
            f" ({found.difference})"
        )
    for column in _unused(reader, schema):
        form = difference(column, schema.names)
        if form is not None:
            yield f"{column}: the column is not the declared one that it looks like ({form})"


def file_wire(report: FileReport) -> dict[str, Any]:
    """The detected form of a file, without its number of rows."""
    wire = asdict(report)
    del wire["rows"]
    return wire


def _unused(reader: TableReader, schema: Schema) -> list[str]:
    try:
        return list(reader.layout.undeclared(schema))
    except TableError:
        return []

"""What is told before a charge is what the run would find."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from app.engine.prior.entities.rows import rows_keeping_rules
from app.engine.public.compatibility import fit_problems
from app.engine.public.rows import PublicDataUnfit, read_public
from app.engine.schema import Schema
from app.engine.table import PublicTable, Table


def firms(values: Sequence[str], **keys: object) -> dict[str, object]:
    limits = {"enum": list(values), "required": True}
    return {"name": "firm", "type": "string", "constraints": limits, **keys}


def fares(low: int, high: int, **keys: object) -> dict[str, object]:
    limits = {"minimum": low, "maximum": high, "required": True}
    return {"name": "fare", "type": "integer", "constraints": limits, **keys}


PUBLIC = Schema.parse({"fields": [firms("abz"), fares(0, 20)]})
PRIVATE = [
    Schema.parse({"fields": [firms("abc"), fares(5, 10)]}),
    Schema.parse({"fields": [firms("ab", other="rest"), fares(5, 10, undeclared="clip")]}),
    Schema.parse(
        {
            "fields": [firms("abc"), fares(5, 10)],
            "constraints": [{"kind": "forbidden", "when": {"firm": ["a"], "fare": [5, 6]}}],
        }
    ),
]
NAMES = ("firm", "fare")


@dataclass
class Stored:
    """Public rows in chunks of `size` rows; `seen` counts those handed out."""

    codes: dict[str, NDArray[np.uint8]]
    size: int = 2
    seen: list[int] = field(default_factory=list)

    @property
    def schema(self) -> Schema:
        return PUBLIC

    def chunks(self, columns: Sequence[str]) -> Iterator[dict[str, NDArray[Any]]]:
        for first in range(0, len(self.codes["firm"]), self.size):
            chunk = {name: self.codes[name][first : first + self.size] for name in columns}
            self.seen.append(len(chunk[columns[0]]))
            yield chunk


def stored(rows: Sequence[tuple[int, int]]) -> Stored:
    firm, fare = np.array(rows, dtype=np.uint8).T
    return Stored({"firm": firm, "fare": fare})


def can_be_read(schema: Schema, public: Stored) -> bool:
    codes = {name: column.astype(np.int64) for name, column in public.codes.items()}
    try:
        rows = read_public(PublicTable(PUBLIC, Table(codes, len(codes["firm"]))), schema, NAMES)
        rows_keeping_rules(rows, schema)
    except PublicDataUnfit:
        return False
    return True


ROWS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 20)), min_size=1, max_size=7)


@given(st.sampled_from(PRIVATE), ROWS)
def test_rows_are_refused_just_where_the_run_could_read_none(
    schema: Schema, rows: list[tuple[int, int]]
) -> None:
    public = stored(rows)
    problems = fit_problems(schema, public, NAMES, schema.constraints)
    assert (not problems) == can_be_read(schema, public)
    for problem in problems:
        assert problem.pointer == "/public_dataset"
        assert f"of the {len(rows)} public rows" in problem.message


def test_no_more_is_read_than_to_the_first_row_that_fits() -> None:
    public = stored([(2, 5), (2, 6), (0, 7), (2, 5), (0, 8), (0, 9)])
    assert fit_problems(PRIVATE[0], public, NAMES) == ()
    assert public.seen == [2, 2]


@pytest.mark.parametrize("columns", [("firm",), ("firm", "fare")])
def test_a_column_whose_values_are_yet_to_be_bought_is_passed_over(
    columns: tuple[str, ...],
) -> None:
    found = {"name": "firm", "type": "string", "values": "discover", "other": "rest"}
    schema = Schema.parse({"fields": [found, fares(5, 10)]})
    assert fit_problems(schema, stored([(0, 7)]), columns) == ()
    assert bool(fit_problems(schema, stored([(0, 20)]), columns)) == ("fare" in columns)

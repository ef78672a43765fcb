"""Samples are the same in whatever parts they come, and say what repair moved."""

from __future__ import annotations

import numpy as np
import pytest
from ruled_tables import EVERY, FORBIDDEN, broken, dictionary, independent, integer

from app.engine.constraints import stream
from app.engine.constraints.stream import RepairedRows
from app.engine.schema import Schema
from app.engine.table import Table


def in_parts(schema: Schema, whole: Table, rows: int) -> tuple[Table, RepairedRows]:
    cuts = range(0, max(whole.rows, 1), rows)
    repairing = RepairedRows((stream._part(whole, i, min(i + rows, whole.rows)) for i in cuts),
                             schema, 5)  # fmt: skip
    return stream._joined(list(repairing)), repairing


@pytest.mark.parametrize("rows", [1, 7, 64, 100, 1000])
def test_rows_are_the_same_in_whatever_parts_they_come(
    rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "_MOST_ROWS", 64)
    monkeypatch.setattr(stream, "_FEWEST_ROWS", 64)
    whole = Table(independent(EVERY, 300), 300, np.arange(300) // 3)
    one, _ = in_parts(EVERY, whole, 300)
    other, repairing = in_parts(EVERY, whole, rows)
    assert other.entity is not None
    assert np.array_equal(other.entity, whole.entity)
    assert all(np.array_equal(one.codes[name], other.codes[name]) for name in one.codes)
    assert not any(broken(EVERY, other.codes))
    assert repairing.repairs is not None
    assert list(repairing.repairs.broken.values()) == broken(EVERY, whole.codes)


def test_distances_are_those_of_the_columns_before_and_after() -> None:
    codes = independent(FORBIDDEN, 1000)
    after, repairing = in_parts(FORBIDDEN, Table(codes, 1000), 1000)
    assert repairing.repairs is not None
    for name, distance in repairing.repairs.distances.items():
        cells = FORBIDDEN.column(name).codes
        before, now = (np.bincount(table[name], minlength=cells) for table in (codes, after.codes))
        assert distance == pytest.approx(np.abs(before - now).sum() / 2000)
    wire = repairing.repairs.to_json()
    assert set(wire) == {"rows", "redrawn", "constraints", "columns"}
    assert wire["constraints"] == [{"number": 0, "rows": broken(FORBIDDEN, codes)[0]}]


def test_no_rows_are_a_table_too() -> None:
    empty = Table({name: codes[:0] for name, codes in independent(EVERY, 1).items()}, 0)
    after, repairing = in_parts(EVERY, empty, 10)
    assert after.rows == 0
    assert repairing.repairs is not None
    assert repairing.repairs.rows == 0


def test_parts_pass_as_they_are_where_no_rule_applies() -> None:
    schema = dictionary([integer("a", 0, 9)])
    part = Table({"a": np.arange(10)}, 10)
    repairing = RepairedRows([part], schema, 1)
    assert next(iter(repairing)) is part
    assert repairing.repairs is None

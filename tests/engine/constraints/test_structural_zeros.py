"""Impossible cells are those of which every combination of codes breaks the rule."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ruled_tables import EVERY, LOOKUP, dictionary
from test_repair import FIELDS, rule

from app.engine.constraints import structural_zeros as zeros
from app.engine.constraints.repair import every_row
from app.engine.constraints.structural_zeros import structural_zeros
from app.engine.grouping import Grouping
from app.engine.inference.estimation import fit
from app.engine.inference.measurements import NoisyMarginal
from app.engine.schema import Schema


def merges(schema: Schema) -> st.SearchStrategy[dict[str, Grouping]]:
    """Any two or three cells of neighbours and strangers for each column."""

    def merged(column: Any, cells: list[int]) -> Grouping:
        _, numbers = np.unique(cells, return_inverse=True)
        return Grouping.identity(column.regular, column.tail).merged(numbers.tolist())

    return st.fixed_dictionaries(
        {
            column.name: st.lists(
                st.integers(0, 3), min_size=column.codes, max_size=column.codes
            ).map(lambda cells, column=column: merged(column, cells))
            for column in schema.columns
        }
    )


@settings(deadline=None, max_examples=150)
@given(rules=st.lists(rule(), min_size=1, max_size=1), data=st.data())
def test_a_merged_cell_is_impossible_only_if_all_its_codes_are(
    rules: list[dict[str, Any]], data: st.DataObject
) -> None:
    schema = dictionary(FIELDS, *rules)
    groupings = data.draw(merges(schema))
    rows = every_row(schema.columns)
    (broken,) = schema.violations(rows)
    kept = {name: groupings[name].cell_of(codes[~broken]) for name, codes in rows.items()}
    rule_of = rules[0]
    exact = rule_of["kind"] in ("forbidden", "lookup") or (
        rule_of["kind"] == "implied" and not rule_of["when"].keys() & rule_of["then"].keys()
    )
    for table in structural_zeros(schema, groupings):
        possible = np.zeros(table.allowed.shape, bool)
        possible[tuple(kept[name] for name in table.axes)] = True
        assert not (possible & ~table.allowed).any()
        if exact:
            assert np.array_equal(possible, table.allowed)


def test_cells_of_bins_and_bounds_are_judged_without_listing_codes() -> None:
    fields = [
        {"name": "wage", "type": "number", "bins": 4, "special": [-1],
         "constraints": {"minimum": 0, "maximum": 100}},
        {"name": "works", "type": "boolean", "constraints": {"required": True}},
    ]  # fmt: skip
    when = {"wage": {"minimum": 50}, "works": [False]}
    schema = dictionary(fields, {"kind": "forbidden", "when": when})
    groupings = {column.name: column.grouping for column in schema.columns}
    (table,) = structural_zeros(schema, groupings)
    assert table.axes == ("wage", "works")
    assert table.allowed[:, 0].tolist() == [True, True, False, False, True, True]
    assert table.allowed[:, 1].all()


def test_days_in_bins_that_lie_apart_have_one_order() -> None:
    fields = [
        {"name": name, "type": "date", "bins": 3,
         "constraints": {"minimum": "2020-01-01", "maximum": "2020-01-30", "required": True}}
        for name in ("from", "to")
    ]  # fmt: skip
    schema = dictionary(fields, {"kind": "order", "columns": ["from", "to"]})
    (table,) = structural_zeros(schema, {c.name: c.grouping for c in schema.columns})
    assert np.array_equal(table.allowed, np.triu(np.ones((3, 3), bool)))


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("names", [("day", "moment"), ("moment", "day")])
def test_cells_of_dates_and_datetimes_are_possible_as_far_as_a_row_in_them_is(
    names: tuple[str, str], strict: bool
) -> None:
    ends = {"minimum": "2020-01-01", "maximum": "2020-01-06", "required": True}
    fields = [
        {"name": "day", "type": "date", "bins": 3, "constraints": ends},
        {"name": "moment", "type": "datetime", "bins": 7, "step": 3600, "constraints": ends},
    ]
    rule = {"kind": "order", "columns": list(names), "strict": strict}
    schema = dictionary(fields, rule)
    groupings = {column.name: column.grouping for column in schema.columns}
    rows = every_row(schema.columns)
    kept = {name: codes[~schema.violations(rows)[0]] for name, codes in rows.items()}
    expected = np.zeros(tuple(groupings[name].cells for name in names), bool)
    expected[tuple(groupings[name].cell_of(kept[name]) for name in names)] = True
    (table,) = structural_zeros(schema, groupings)
    assert table.axes == names
    assert np.array_equal(table.allowed, expected)
    assert 0 < expected.sum() < expected.size


def test_large_tables_are_left_to_repair(monkeypatch: pytest.MonkeyPatch) -> None:
    groupings = {column.name: column.grouping for column in LOOKUP.columns}
    assert len(structural_zeros(LOOKUP, groupings)) == 1
    monkeypatch.setattr(zeros, "MOST_CELLS", 299)
    assert structural_zeros(LOOKUP, groupings) == ()


def test_zeros_that_would_enlarge_a_model_too_much_are_left_to_repair(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    groupings = {column.name: column.grouping for column in LOOKUP.columns}
    monkeypatch.setattr(zeros, "MOST_MODEL_CELLS", 100 * 3 - 100 - 3 - 1)
    assert structural_zeros(LOOKUP, groupings) == ()
    assert len(structural_zeros(LOOKUP, groupings, [("band", "age")])) == 1


def test_a_model_fitted_with_them_makes_no_forbidden_rows() -> None:
    groupings = {name: EVERY.column(name).grouping for name in ("band", "status")}
    found = structural_zeros(EVERY, groupings)
    assert [each.axes for each in found] == [("band", "status")]
    even = [NoisyMarginal((name,), np.full(3, 100.0), np.ones(3)) for name in groupings]
    model = fit({"band": 3, "status": 3}, even, 300.0, zeros=found)
    rows = model.sample(2000, np.random.default_rng(0))
    assert not ((rows["band"] == 0) & (rows["status"] > 0)).any()
    assert (rows["status"] > 0).any()


@pytest.mark.parametrize("names", [("age",), ("band", "wage")])
def test_rules_on_other_columns_say_nothing(names: tuple[str, ...]) -> None:
    found = structural_zeros(EVERY, {name: EVERY.column(name).grouping for name in names})
    assert all(set(table.axes) <= set(names) for table in found)

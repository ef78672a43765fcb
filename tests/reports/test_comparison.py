"""The exact figures, on tables small enough to count by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.engine.columns.axes import Axes
from app.engine.grouping import Grouping
from app.engine.marginals import Marginal
from app.engine.method import ExpectedError
from app.engine.privacy.source import ArraySource
from app.engine.schema import PrivacyUnit, Schema
from app.engine.synthesizers.aggregate_seeded.aggregates import Aggregates, Level
from app.engine.synthesizers.aggregate_seeded.layout import Layout
from app.engine.table import Table
from app.reports import comparison
from app.reports.combinations import PublishedCombinations
from app.reports.comparison import Measured, Subject, compared
from app.reports.exact import ExactRows
from app.reports.schemas import Exact
from app.reports.synthetic import SyntheticRows

RowsOf = Sequence[tuple[int, ...]]
ROW, ENTITY = PrivacyUnit("row"), PrivacyUnit("entity", "id", 2)


def digits(
    names: str, constraints: Sequence[dict[str, Any]] = (), *, entity: bool = False
) -> Schema:
    """Required columns of the values 0 to 3, one for each letter."""
    bounds = {"minimum": 0, "maximum": 3, "required": True}
    fields: list[dict[str, Any]] = [
        {"name": name, "type": "integer", "constraints": bounds} for name in names
    ]
    if entity:
        fields.append({"name": "id", "type": "string", "role": "entity"})
    return Schema.parse({"fields": fields, "constraints": list(constraints)})


def columns_of(rows: RowsOf, names: Sequence[str]) -> dict[str, np.ndarray[Any, Any]]:
    table = np.array(rows, dtype=np.int64).reshape(len(rows), len(names))
    return {name: table[:, place] for place, name in enumerate(names)}


def quiet(fraction: float, stage: str) -> None:
    assert 0 <= fraction <= 1
    assert stage


def figures(
    real: RowsOf,
    synthetic: RowsOf,
    schema: Schema,
    *,
    owners: tuple[Sequence[int], Sequence[int]] | None = None,
    modelled: str | None = None,
    **of_subject: Any,
) -> Exact:
    """The comparison of two tables; `owners` are the entities of their rows."""
    names = [column.name for column in schema.columns]
    kept = tuple(modelled or names)
    ids = (None, None) if owners is None else tuple(np.array(each) for each in owners)
    unit = ROW if owners is None else ENTITY
    source = ArraySource(schema, unit, columns_of(real, names), ids[0], chunk_size=2)
    made = Table(columns_of(synthetic, kept), len(synthetic), ids[1])
    subject: dict[str, Any] = {"measured": (), "expected": (), "combinations": None, **of_subject}
    return compared(
        ExactRows(source, lambda: None),
        SyntheticRows.of([made], schema),
        Subject(schema, unit, kept, **subject),
        quiet,
    )


REAL = [(0, 0), (0, 1), (1, 1), (1, 1)]
MADE = [(0, 0), (0, 0), (0, 1), (2, 1)]


def test_distances_of_columns_and_pairs_by_hand() -> None:
    found = figures(REAL, MADE, digits("ab"))
    assert (found.rows.real, found.rows.synthetic) == (4, 4)
    # a: 1/2 1/2 0 beside 3/4 0 1/4; b: 1/4 3/4 beside 1/2 1/2; pairs: 00 01 11 21
    assert [each.distance for each in found.columns] == [0.5, 0.25]
    assert found.pairs.worst is not None
    assert (found.pairs.possible, found.pairs.compared, found.pairs.worst.cells) == (1, 1, 16)
    assert found.pairs.mean == found.pairs.worst.distance == 0.5
    assert (found.triples.possible, found.triples.mean, found.triples.worst) == (0, None, None)
    assert (found.entities, found.combinations, found.left_out) == (None, None, [])
    assert found.notice == "not private: do not publish"


def test_the_worst_pairs_come_first_and_the_list_is_capped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison, "MOST_LISTED", 2)
    real, made = [(0, 0, 0, 0)] * 4, [(0, 0, 0, 1), (0, 0, 0, 0), (0, 0, 0, 0), (0, 0, 1, 0)]
    found = figures(real, made, digits("abcd"))
    assert [(each.columns, each.distance) for each in found.pairs.listed] == [
        (["c", "d"], 0.5),
        (["a", "c"], 0.25),
    ]
    assert found.pairs.mean == pytest.approx((0.5 + 0.25 * 4) / 6)
    assert (found.triples.possible, found.triples.compared) == (4, 4)


def test_of_very_many_pairs_some_are_drawn_and_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison, "MOST_PAIRS", 3)
    row = [tuple(range(4)) * 2]
    found = figures(row, row, digits("abcdefgh"))
    assert (found.pairs.possible, found.pairs.compared) == (28, 3)
    assert found.left_out == ["all but 3 pairs of columns, which a public seed draws"]


def test_bounds_and_measured_marginals_beyond_a_number_or_of_too_many_cells_are_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As a plug-in may state thousands of bounds on all columns together."""
    monkeypatch.setattr(comparison, "MOST_EXPECTED", 2)
    monkeypatch.setattr(comparison, "MOST_CELLS", 40)
    row, schema = [tuple(range(4))], digits("abcd")
    of = ["abcd", "ab", "c", "d"]
    found = figures(
        row,
        row,
        schema,
        expected=tuple(ExpectedError(tuple(names), 0.5, 0.95) for names in of),
        measured=tuple(
            Measured(Marginal({name: schema.column(name).grouping for name in names}))
            for names in ("ab", "bc", "cd")
        ),
    )
    assert [each.columns for each in found.expected] == [["a", "b"], ["c"]]
    assert [each.columns for each in found.measured] == [["a", "b"], ["b", "c"]]
    assert found.left_out == [
        "1 of 3 measured marginals: too many, or of too many cells",
        "2 of 4 expected errors: too many, or of too many cells",
    ]


def test_a_column_that_is_not_modelled_is_left_out_and_it_is_said() -> None:
    found = figures(REAL, [(1,), (1,)], digits("ab"), modelled="b")
    assert [each.columns for each in found.columns] == [["b"]]
    assert found.left_out == ["columns that the release does not model: a"]


def test_a_measured_marginal_is_compared_on_its_own_cells_and_bounds_beside_it() -> None:
    halves = Marginal({"a": Grouping((0, 2, 4), 0)})
    found = figures(
        REAL,
        MADE,
        digits("ab"),
        measured=(Measured(halves, np.array([3, -1])), Measured(halves, None)),
        expected=(ExpectedError(("a",), 0.3, 0.95), ExpectedError(("b",), 4.0, 0.9)),
    )
    assert [(each.columns, each.cells, each.distance, each.noisy) for each in found.measured] == [
        (["a"], 2, 0.25, 0.0),  # 0 and 1 are one cell: 4 and 0 beside 3 and 1; noisy 3 and 0
        (["a"], 2, 0.25, None),
    ]
    assert [(each.distance, each.confidence, each.exact) for each in found.expected] == [
        (0.3, 0.95, 0.25),
        (1.0, 0.9, 0.25),
    ]


def test_a_bound_is_of_the_models_cells_whatever_was_counted_on_the_way_to_them() -> None:
    whole, halves = (Grouping(edges, 0) for edges in ((0, 4), (0, 2, 4)))
    found = figures(
        REAL,
        MADE,
        digits("ab"),
        measured=(Measured(Marginal({"a": whole})),),
        expected=(ExpectedError(("a",), 0.3, 0.95),),
        cells={"a": halves},
    )
    assert [each.exact for each in found.expected] == [0.25]


def test_rows_that_break_a_constraint_are_counted_on_both_sides() -> None:
    rules = [
        {"kind": "order", "columns": ["a", "b"]},
        {"kind": "forbidden", "when": {"c": [3]}},
        {"kind": "order", "columns": ["b", "a"]},
    ]
    real, made = [(0, 1, 0), (1, 0, 3), (2, 2, 3)], [(3, 0, 0)]
    found = figures(real, made, digits("abc", rules))
    assert [
        (each.number, each.columns, each.real, each.synthetic) for each in found.constraints
    ] == [
        (0, ["a", "b"], 1, 1),
        (1, ["c"], 2, 0),
        (2, ["b", "a"], 1, 0),
    ]
    partly = figures(real, [(3, 0)], digits("abc", rules), modelled="ab")
    assert [each.number for each in partly.constraints] == [0, 2]


def test_entities_are_compared_by_their_rows_and_their_different_values() -> None:
    real, owners = [(0,), (1,), (2,), (2,), (3,)], [7, 7, 8, 8, 9]
    made, theirs = [(0,), (0,), (1,)], [4, 4, 0]  # an entity without rows is none
    found = figures(real, made, digits("a", entity=True), owners=(owners, theirs)).entities
    assert found is not None
    assert (found.real, found.synthetic) == (3, 2)
    # rows: two of two, one of one beside one and one; values: one of 2, two of 1 beside two of 1
    assert found.rows_per_entity == pytest.approx(2 / 3 - 1 / 2)
    assert [(each.column, each.distance) for each in found.distinct_values] == [
        ("a", pytest.approx(1 / 3))
    ]


def test_rows_count_under_the_bound_of_their_unit() -> None:
    """One entity has five rows, of which any two count; the other's one always does."""
    real, owners = [(0,), (0,), (0,), (0,), (0,), (3,)], [1, 1, 1, 1, 1, 2]
    found = figures(real, [(0,)], digits("a", entity=True), owners=(owners, [0]))
    assert found.rows.real == 3
    assert found.columns[0].distance == pytest.approx(1 / 3)


def aggregates(*levels: dict[tuple[int, ...], int]) -> Aggregates:
    """Kept combinations over the 8 items of two columns of four values."""
    return Aggregates(
        8,
        tuple(
            Level(np.array(list(level), np.int32), np.array(list(level.values()), np.int64))
            for level in levels
        ),
    )


def published(schema: Schema, kept: Aggregates) -> PublishedCombinations:
    axes = Axes({column.name: column.grouping for column in schema.columns})
    return PublishedCombinations(Layout(axes, (None,) * len(axes.shape), {}), kept)


KEPT = aggregates(
    {(0,): 3, (1,): 2, (4,): 1, (5,): 5},  # really 2, 2, 1, 3
    {(0, 4): 1, (0, 5): 1, (1, 4): 1},  # really 00, 01 and twice 11: 14 is made up, 15 missing
)


def test_combination_errors_by_hand() -> None:
    schema = digits("ab")
    found = figures(REAL, MADE, schema, combinations=published(schema, KEPT)).combinations
    assert found is not None
    singles, pairs = found.aggregates
    assert (singles.original, singles.reported, singles.suppressed, singles.fabricated) == (
        4,
        4,
        0,
        0,
    )
    assert (singles.mean_error, singles.mean_count) == (0.75, 2.0)  # 1, 0, 0 and 2 off
    assert singles.combination_error == pytest.approx(0.375)
    assert (pairs.length, pairs.original, pairs.reported) == (2, 3, 3)
    assert pairs.suppressed == pairs.fabricated == pytest.approx(1 / 3)
    assert (pairs.mean_error, pairs.mean_count) == (0.0, 1.0)
    # the rows: twice 00, 01, and 21, which is made up; 11 is missing
    singles, pairs = found.rows
    assert (singles.original, singles.reported) == (4, 4)
    assert singles.suppressed == singles.fabricated == pytest.approx(1 / 4)
    assert (pairs.original, pairs.reported) == (3, 3)
    assert pairs.suppressed == pairs.fabricated == pytest.approx(1 / 3)
    assert (pairs.mean_error, pairs.mean_count) == (0.5, 1.0)


def test_combinations_are_of_entities_on_an_entity_unit() -> None:
    """Of 11 in two rows of one entity one is counted."""
    schema = digits("ab", entity=True)
    owners = ([1, 1, 2, 2], [0, 0, 1, 2])
    found = figures(
        REAL, MADE, schema, owners=owners, combinations=published(schema, KEPT)
    ).combinations
    assert found is not None
    singles, pairs = found.aggregates
    # entities with 0 of a: 1; with 1 of a: 1; with 0 of b: 1; with 1 of b: 2
    assert singles.mean_count == pytest.approx(5 / 4)
    assert singles.mean_error == pytest.approx((2 + 1 + 0 + 3) / 4)
    assert pairs.mean_count == 1.0


def test_combinations_of_a_large_table_are_left_out_and_it_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(comparison, "MOST_VALUES_IN_MEMORY", 7)
    schema = digits("ab")
    found = figures(REAL, MADE, schema, combinations=published(schema, KEPT))
    assert found.combinations is None
    assert found.left_out == ["combinations: the tables are too large to count them in memory"]


def test_lengths_with_too_many_combinations_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.reports.combinations.MOST_COUNTED", 4)
    schema = digits("ab")
    found = figures(REAL[:2], MADE[:2], schema, combinations=published(schema, KEPT)).combinations
    assert found is not None
    assert [each.length for each in found.aggregates] == [1, 2]  # 2 axes and one pair, 2 rows each
    found = figures(REAL, MADE, schema, combinations=published(schema, KEPT)).combinations
    assert found is not None
    assert found.rows == []


def test_nothing_is_as_far_from_something_as_can_be() -> None:
    rules = [{"kind": "order", "columns": ["a", "b"]}]
    schema = digits("ab", rules, entity=True)
    for real, made in (([], MADE), (REAL, []), ([], [])):
        owners = (np.arange(len(real)), np.arange(len(made)))
        found = figures(real, made, schema, owners=owners, combinations=published(schema, KEPT))
        distance = float(bool(real or made))
        assert found.pairs.mean == distance
        assert found.entities is not None
        assert found.entities.rows_per_entity == distance
        assert found.combinations is not None


codes = st.lists(st.tuples(*[st.integers(0, 3)] * 3), min_size=1, max_size=8)


@given(codes, codes)
def test_what_is_stored_reads_back_the_same(real: RowsOf, made: RowsOf) -> None:
    found = figures(real, made, digits("abc"))
    assert Exact.model_validate_json(found.model_dump_json()) == found
    assert all(0 <= each.distance <= 1 for each in [*found.columns, *found.pairs.listed])
    same = figures(real, real, digits("abc"))
    assert (same.pairs.mean, same.triples.mean) == (0.0, 0.0)

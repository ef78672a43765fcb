"""Bounded histograms before any noise, and where they are read from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from privacy_tables import schema, table

from app.engine.privacy.bounding import bound_rows, rank_within
from app.engine.privacy.contributions import Histogram, counted_codes, exact_histograms
from app.engine.privacy.kernel import Kernel
from app.engine.privacy.loss import PrivacyLoss
from app.engine.privacy.queries import Contribution, Count
from app.engine.privacy.sensitivity import LARGEST_CLIPPED, clip_radius
from app.engine.privacy.source import ArraySource
from app.engine.privacy.units import EntityCells
from app.engine.schema import PrivacyUnit

SIZES = {"a": 3, "b": 4}
rows_of_entities = st.lists(
    st.tuples(st.integers(0, 4), st.integers(0, 2), st.integers(0, 3)), max_size=30
)


def histogram(source: ArraySource, columns: Sequence[str], rule: Contribution) -> Histogram:
    groupings = tuple(source.schema.column(name).grouping for name in columns)
    return Histogram(tuple(columns), groupings, rule)


@settings(max_examples=80, deadline=None)
@given(rows_of_entities, st.integers(1, 5), st.integers(1, 9))
def test_bounding_keeps_k_rows_of_each_entity_and_all_of_smaller_ones(
    rows: list[tuple[int, int, int]], max_rows: int, chunk_size: int
) -> None:
    ids = [row[0] for row in rows]
    source = table(SIZES, [row[1:] for row in rows], ids, max_rows, chunk_size)
    bounded = bound_rows(source)
    assert bounded.place is not None
    assert bounded.starts is not None
    kept = np.array(ids)[bounded.place >= 0] if ids else np.array([])
    for entity in set(ids):
        assert (kept == entity).sum() == min(ids.count(entity), max_rows)
    codes, entity_of = counted_codes(source, bounded, ["a", "b"])
    assert entity_of is not None
    assert np.diff(bounded.starts).tolist() == np.bincount(entity_of).tolist()
    handed = sorted(zip(codes["a"].tolist(), codes["b"].tolist(), strict=True))
    places = np.flatnonzero(bounded.place >= 0)
    assert handed == sorted(rows[place][1:] for place in places)


@settings(max_examples=80, deadline=None)
@given(rows_of_entities, st.integers(1, 9))
def test_each_rule_counts_what_it_says(rows: list[tuple[int, int, int]], chunk_size: int) -> None:
    source = table(SIZES, [row[1:] for row in rows], [row[0] for row in rows], 30, chunk_size)
    rules = [Contribution(), Contribution("distinct", limit=2), Contribution("one")]
    every_row, distinct, one = exact_histograms(
        source, bound_rows(source), [histogram(source, ["a", "b"], rule) for rule in rules]
    )
    cells: dict[int, list[int]] = {}
    for entity, a, b in rows:
        cells.setdefault(entity, []).append(4 * a + b)
    assert every_row.sum() == len(rows)
    assert one.sum() == len(cells)
    assert distinct.sum() == sum(min(2, len(set(held))) for held in cells.values())
    for cell in range(12):
        holders = [held for held in cells.values() if cell in held]
        surely = [h for h in holders if h.count(cell) > max([*map(h.count, set(h) - {cell}), 0])]
        assert every_row[cell] == sum(held.count(cell) for held in cells.values())
        assert sum(len(set(h)) <= 2 for h in holders) <= distinct[cell] <= len(holders)
        assert len(surely) <= one[cell] <= len(holders)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.integers(1, LARGEST_CLIPPED // 8), min_size=1, max_size=8),
    st.floats(0.001, float(LARGEST_CLIPPED)),
)
def test_clipped_vectors_are_within_the_norm_in_integers(rows: list[int], norm: float) -> None:
    radius = clip_radius(norm, LARGEST_CLIPPED)
    counts = np.array(rows, dtype=np.int64)
    entity = np.zeros(len(rows), dtype=np.int64)
    clipped = EntityCells(entity, np.arange(len(rows)), counts).clipped(norm)
    exact = [float(steps) for steps in counts * 1024]
    length = sum(value**2 for value in exact) ** 0.5
    assert sum(int(value) ** 2 for value in clipped) <= radius**2
    assert (clipped <= counts * 1024).all()
    wanted = np.array(exact) * min(1.0, radius / length)
    assert (np.abs(clipped - wanted) <= 2).all()


def test_a_float_that_rounds_up_loses_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(np, "floor", np.ceil)  # the worst that rounding could do
    counts = np.array([1, 2, 2], dtype=np.int64)
    pairs = EntityCells(np.array([0, 0, 0]), np.arange(3), counts)
    clipped = pairs.clipped(1.0001)
    assert sum(int(value) ** 2 for value in clipped) <= clip_radius(1.0001, 9) ** 2


def test_wide_tables_are_counted_sparsely() -> None:
    source = table({"a": 2000, "b": 2000}, [(1999, 1999), (0, 0), (1999, 1999)])
    (counts,) = exact_histograms(
        source, bound_rows(source), [histogram(source, ["a", "b"], Contribution())]
    )
    assert counts.sum() == 3
    assert (counts[0], counts[-1]) == (1, 2)


def test_entities_larger_than_a_block_are_counted_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.engine.privacy.units._BLOCK_ROWS", 4)
    rows = [(place % 3, 0) for place in range(30)]
    source = table(SIZES, rows, [1] * 9 + [2] * 3 + [3] * 2 + [4] * 16, max_rows=50)
    bounded = bound_rows(source)
    distinct, one = exact_histograms(
        source,
        bounded,
        [
            histogram(source, ["a"], Contribution("distinct", limit=3)),
            histogram(source, [], Contribution("one")),
        ],
    )
    assert distinct.sum() == 3 + 3 + 2 + 3
    assert one.tolist() == [4]


@pytest.mark.parametrize("rows", [1, 3])
def test_a_table_that_changed_under_the_session_is_an_error(rows: int) -> None:
    bounded = bound_rows(table(SIZES, [(0, 0), (1, 1)], [1, 2]))
    other = table(SIZES, [(0, 0)] * rows, [1] * rows)
    with pytest.raises((ValueError, IndexError)):
        exact_histograms(other, bounded, [histogram(other, ["a"], Contribution())])


def test_ranks_start_again_with_each_group() -> None:
    assert rank_within(np.array([0, 0, 3, 4, 4, 4])).tolist() == [0, 1, 0, 0, 1, 2]
    assert rank_within(np.array([], dtype=np.int64)).tolist() == []


def test_exact_histograms_are_kept_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.engine.privacy.exact._CELLS_AT_ONCE", 8)
    monkeypatch.setattr("app.engine.privacy.exact._CACHED_CELLS", 8)
    passes = []

    class Watched(ArraySource):
        def chunks(self, columns: Sequence[str]) -> Any:
            passes.append(tuple(columns))
            return super().chunks(columns)

    codes = {"a": np.array([0, 2]), "b": np.array([3, 3])}
    kernel = Kernel(Watched(schema(**SIZES), PrivacyUnit("row"), codes), PrivacyLoss.pure(1))
    a, b, ab = kernel._planner.resolved([Count(("a",)), Count(("b",)), Count(("a", "b"))])
    asked = [values.tolist() for values in kernel._exact.each([a, b, ab, a])]
    assert asked[0] == asked[3] == [1, 0, 1]
    assert asked[1] == [0, 0, 0, 2]
    assert len(asked[2]) == 12
    assert passes == [("a", "b"), ("a", "b"), ("a",)]  # too much for all to be kept: none is
    for expected in ([("a", "b")], []):
        passes.clear()
        assert len(list(kernel._exact.each([a, b]))) == 2
        assert passes == expected


@pytest.mark.parametrize(
    ("codes", "entities"),
    [
        ({"a": [0, 1]}, None),
        ({"a": [0, 1], "b": [0]}, None),
        ({"a": [0, 3], "b": [0, 0]}, None),
        ({"a": [-1, 0], "b": [0, 0]}, None),
        ({"a": [0.0, 1.0], "b": [0, 0]}, None),
        ({"a": [0, 1], "b": [0, 0]}, [1, 2]),
    ],
    ids=["missing", "unequal", "beyond", "negative", "floats", "ids of rows"],
)
def test_arrays_that_do_not_fit_are_refused(codes: dict[str, Any], entities: Any) -> None:
    arrays = {name: np.array(values) for name, values in codes.items()}
    with pytest.raises(ValueError):
        ArraySource(
            schema(**SIZES),
            PrivacyUnit("row"),
            arrays,
            None if entities is None else np.array(entities),
        )


def test_entity_ids_are_one_for_each_row() -> None:
    unit = PrivacyUnit("entity", "id", 2)
    codes = {"a": np.array([0, 1]), "b": np.array([0, 1])}
    for ids in (None, np.array([1]), np.array([0.5, 1.5]), np.zeros((2, 3), dtype=np.int64)):
        with pytest.raises(ValueError):
            ArraySource(schema(**SIZES), unit, codes, ids)
    digests = np.array([[1, 2], [1, 3]], dtype=np.uint64)
    assert len(next(ArraySource(schema(**SIZES), unit, codes, digests).entities())) == 2

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from app.engine.columns.rare_cells import Compression
from app.engine.grouping import Grouping
from app.engine.method.model_file import ModelFormatError


def below(counts: list[float], least: float, ordered: int = 0) -> Compression:
    return Compression.below(np.array(counts), least, ordered)


def test_rare_cells_in_no_order_are_merged_into_one_and_dealt_in_proportion() -> None:
    compression = below([100, 20, 50, 30, 0, 31], 31)
    assert compression.merge.tolist() == [0, 1, 2, 1, 1, 3]
    assert compression.rare.tolist() == [1, 3, 4]
    assert compression.shares == pytest.approx([1, 0.4, 1, 0.6, 0, 1])
    assert compression.merged_cells == 4


def test_rare_cells_in_order_are_merged_with_their_neighbours() -> None:
    # 9 + 8 + 5 and 12 + 9 reach 20; the 6 that is left joins the second run.
    compression = below([9, 8, 5, 400, 12, 9, 6, 300], 20, ordered=8)
    assert compression.merge.tolist() == [0, 0, 0, 1, 2, 2, 2, 3]
    assert compression.shares == pytest.approx(
        [9 / 22, 8 / 22, 5 / 22, 1, 12 / 27, 9 / 27, 6 / 27, 1]
    )


def test_cells_out_of_order_are_merged_by_themselves() -> None:
    compression = below([10, 15, 400, 3, 500, 4], 20, ordered=3)
    assert compression.merge.tolist() == [0, 0, 1, 2, 3, 2]


def test_too_few_rows_in_order_join_the_others() -> None:
    assert below([4, 5, 400, 3, 500, 4], 20, ordered=3).merge.tolist() == [0, 0, 1, 0, 2, 0]
    assert below([4, 5, 400], 20, ordered=3).merge.tolist() == [0, 0, 1]


@pytest.mark.parametrize("counts", [[100.0, 200.0], [100.0, 5.0, 200.0]])
def test_nothing_is_merged_where_no_two_cells_are_rare(counts: list[float]) -> None:
    compression = below(counts, 30)
    own = Grouping.identity(len(counts), 0)
    assert compression.merged_cells == len(counts)
    assert not compression.rare.size
    assert compression.grouping(own) == own
    cells = np.array([0, 1, 1])
    assert compression.restore(cells, np.random.default_rng(0)).tolist() == [0, 1, 1]


def test_a_column_of_nothing_but_noise_becomes_one_cell() -> None:
    compression = below([0, 0, 0, 0], 30)
    assert compression.merged_cells == 1
    assert compression.shares.tolist() == [0.25] * 4


def test_null_and_other_are_cells_like_any_other() -> None:
    own = Grouping((0, 5, 10), tail=2)
    grouping = below([100, 1, 80, 2], 30).grouping(own)
    # Bins 5..9 and null (code 11) are merged; bins 0..4 and `other` (code 10) are kept.
    assert grouping.cell_of(np.array([4, 5, 9, 10, 11])).tolist() == [0, 1, 1, 2, 1]


def test_merged_values_are_sums() -> None:
    compression = below([100, 20, 50, 29], 30)
    assert compression.add_up(np.array([1.0, 2.0, 4.0, 8.0])).tolist() == [1, 10, 4]


@given(
    arrays(np.float64, st.integers(1, 30), elements=st.floats(0, 200)),
    st.integers(0, 30),
    st.integers(0, 500),
    st.integers(0, 2**32),
)
def test_restored_cells_merge_back_and_follow_their_shares(
    counts: np.ndarray, ordered: int, rows: int, seed: int
) -> None:
    compression = Compression.below(counts, 30.0, min(ordered, counts.size))
    rng = np.random.default_rng(seed)
    merged = rng.integers(0, compression.merged_cells, rows)
    restored = compression.restore(merged, rng)
    assert np.array_equal(compression.merge[restored], merged)
    drawn = np.bincount(restored, minlength=counts.size)
    expected = compression.add_up(drawn.astype(np.float64))[compression.merge] * compression.shares
    assert np.abs(drawn - expected).max() < 1 + 1e-6


@given(
    arrays(np.float64, st.integers(1, 30), elements=st.floats(0, 200)),
    st.integers(0, 30),
    st.floats(0, 100),
)
def test_only_rare_cells_are_merged(counts: np.ndarray, ordered: int, least: float) -> None:
    compression = Compression.below(counts, least, min(ordered, counts.size))
    assert (counts[compression.rare] < least).all()
    assert np.array_equal(np.unique(compression.merge), np.arange(compression.merged_cells))
    assert compression.add_up(compression.shares) == pytest.approx(1)


@pytest.mark.parametrize(
    ("merge", "shares"),
    [
        ([0, 2, 2], [1.0, 0.5, 0.5]),
        ([0, 1, 1], [1.0, 0.5, 0.6]),
        ([0, 1, 1], [0.0, 0.5, 0.5]),
    ],
)
def test_impossible_stored_merges_are_refused(merge: list[int], shares: list[float]) -> None:
    with pytest.raises(ModelFormatError):
        Compression.stored(np.array(merge), np.array(shares))


def test_cells_of_different_kinds_are_never_merged() -> None:
    kinds = np.array([0, 0, 1, 1, 0, 0])
    counts = np.array([5.0, 6.0, 7.0, 400.0, 8.0, 3.0])
    free = Compression.below(counts, 20.0, ordered=3)
    assert free.merge.tolist() == [0, 0, 0, 1, 0, 0]
    kept = Compression.below(counts, 20.0, ordered=3, kinds=kinds)
    assert kept.merge.tolist() == [0, 0, 1, 2, 0, 0]

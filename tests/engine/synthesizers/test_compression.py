from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from app.engine.grouping import Grouping
from app.engine.privacy.queries import Count, Measurement
from app.engine.synthesizers.archive import ModelFormatError
from app.engine.synthesizers.compression import Compression


def noisy(values: list[int] | np.ndarray, error: float = 10.0) -> Measurement:
    return Measurement(
        Count(("x",)), np.asarray(values, dtype=np.int64), "gaussian", error, error, 1.0, 1.0
    )


def test_cells_below_three_errors_are_merged_into_the_last() -> None:
    compression = Compression.of(noisy([100, 20, 50, 29, -5, 30]), 3.0)
    assert compression.rare.tolist() == [1, 3, 4]
    assert compression.merged_cells == 4
    assert compression.merge().tolist() == [0, 3, 1, 3, 3, 2]
    # 20, 29 and -5 sum to 44; the nearest counts that could be real are 17.5, 26.5 and 0.
    assert compression.rare_shares == pytest.approx([17.5 / 44, 26.5 / 44, 0])


def test_cells_of_few_counts_are_merged_and_dealt_in_proportion() -> None:
    compression = Compression.below(np.array([100.0, 20.0, 50.0, 30.0, 0.0]), 31.0)
    assert compression.rare.tolist() == [1, 3, 4]
    assert compression.rare_shares == pytest.approx([0.4, 0.6, 0])
    assert Compression.below(np.array([100.0, 20.0, 50.0]), 31.0).merged_cells == 3
    assert Compression.below(np.zeros(4), 31.0).rare_shares.tolist() == [0.25] * 4


@pytest.mark.parametrize("values", [[100, 200], [100, 5, 200]])
def test_nothing_is_merged_where_no_two_cells_are_rare(values: list[int]) -> None:
    compression = Compression.of(noisy(values), 3.0)
    own = Grouping.identity(len(values), 0)
    assert compression.merged_cells == len(values)
    assert compression.grouping(own) == own
    cells = np.array([0, 1, 1])
    assert compression.restore(cells, np.random.default_rng(0)).tolist() == [0, 1, 1]


def test_a_column_of_nothing_but_noise_becomes_one_cell() -> None:
    compression = Compression.of(noisy([3, -9, 4, -8]), 3.0)
    assert compression.merged_cells == 1
    assert compression.rare_shares.tolist() == [0.25] * 4


def test_null_and_other_are_cells_like_any_other() -> None:
    own = Grouping((0, 5, 10), tail=2)
    grouping = Compression.of(noisy([100, 1, 80, 2]), 3.0).grouping(own)
    # Bins 5..9 and null (code 11) are merged; bins 0..4 and `other` (code 10) are kept.
    assert grouping.cell_of(np.array([4, 5, 9, 10, 11])).tolist() == [0, 2, 2, 1, 2]


def test_merged_values_are_sums() -> None:
    compression = Compression.of(noisy([100, 20, 50, 29]), 3.0)
    assert compression.add_up(np.array([1.0, 2.0, 4.0, 8.0])).tolist() == [1, 4, 10]


@given(
    arrays(np.int64, st.integers(1, 30), elements=st.integers(-50, 200)),
    st.integers(0, 500),
    st.integers(0, 2**32),
)
def test_restored_cells_merge_back_and_follow_their_shares(
    values: np.ndarray, rows: int, seed: int
) -> None:
    compression = Compression.of(noisy(values), 3.0)
    rng = np.random.default_rng(seed)
    merged = rng.integers(0, compression.merged_cells, rows)
    restored = compression.restore(merged, rng)
    assert np.array_equal(compression.merge()[restored], merged)
    if compression.rare.size:
        counts = np.bincount(restored, minlength=values.size)[compression.rare]
        expected = counts.sum() * compression.rare_shares
        assert np.abs(counts - expected).max() < 1 + 1e-6


@pytest.mark.parametrize(
    ("rare", "shares"),
    [
        ([1], [1.0]),
        ([2, 1], [0.5, 0.5]),
        ([1, 9], [0.5, 0.5]),
        ([-1, 1], [0.5, 0.5]),
        ([0, 1], [0.5, 0.6]),
    ],
)
def test_impossible_stored_merges_are_refused(rare: list[int], shares: list[float]) -> None:
    with pytest.raises(ModelFormatError):
        Compression.stored(4, np.array(rare), np.array(shares))

"""Rows are put in the order of their keys as a plain sort would put them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.engine.inference.balancing import stable_order


@given(
    st.lists(
        st.integers(0, 3) | st.integers(2**16 - 2, 2**16 + 2) | st.integers(0, 2**63 - 1),
        max_size=40,
    )
)
def test_keys_are_sorted_and_equal_ones_keep_their_order(keys: list[int]) -> None:
    array = np.array(keys, dtype=np.int64)
    assert stable_order(array).tolist() == np.argsort(array, kind="stable").tolist()


@pytest.mark.parametrize("most", [2**8, 2**20])
def test_many_keys_are_sorted_and_equal_ones_keep_their_order(most: int) -> None:
    array = np.random.default_rng(most).integers(0, most, 5000)
    assert stable_order(array).tolist() == np.argsort(array, kind="stable").tolist()

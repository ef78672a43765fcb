"""References on their grid: narrow on the wire and in memory, and exact."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from app.engine.privacy import references
from app.engine.privacy.loss import PrivacyLoss
from app.engine.privacy.messages import encode_question
from app.engine.privacy.queries import Candidate, Count, GridReference, QuestionRefused
from app.engine.privacy.questions import ScoreQuestion
from app.engine.privacy.references import counts_of, narrowed_reference, on_grid, rounding_of

COUNTS = arrays.arrays(
    np.float64, arrays.array_shapes(max_dims=3, max_side=6), elements=st.floats(-(2**20), 2**20)
)


@given(COUNTS)
def test_a_reference_stands_for_the_counts_rounded_to_1024ths(counts: np.ndarray) -> None:
    reference = on_grid(counts)

    assert np.array_equal(counts_of(reference), np.rint(counts * 1024) / 1024)
    off = float(np.abs(counts_of(reference) - counts).sum())
    assert rounding_of(reference, counts) == pytest.approx(off)


@given(COUNTS)
def test_a_narrow_reference_stands_for_the_same_counts(counts: np.ndarray) -> None:
    wide = GridReference(np.rint(counts * 1024).astype(np.int64))
    narrow = narrowed_reference(wide)

    assert narrow.steps.dtype != np.int64
    assert np.array_equal(counts_of(narrow), counts_of(wide))


def test_a_reference_of_several_stretches_is_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = np.arange(-50.0, 50.0).reshape(10, 10) ** 3
    whole = on_grid(counts)
    monkeypatch.setattr(references, "_CELLS_AT_ONCE", 7)

    again = on_grid(counts)

    assert np.array_equal(again.steps, whole.steps)
    assert np.array_equal(again.apart, whole.apart)
    assert np.array_equal(counts_of(again), counts)


def test_few_large_counts_do_not_make_the_others_wide() -> None:
    counts = np.full(1000, 0.05)
    counts[3] = 30_000.0

    reference = on_grid(counts)

    assert reference.steps.dtype == np.int8
    assert reference.apart.tolist() == [[3], [30_000 * 1024]]


def test_wide_references_travel_narrow() -> None:
    reference = GridReference(np.full((4, 5), 1024, dtype=np.int64))
    question = ScoreQuestion((Candidate(Count(("a", "b")), reference),), PrivacyLoss("pure", 1))

    assert encode_question(question).arrays[0].dtype == np.int16


@pytest.mark.parametrize("value", [np.nan, np.inf, 2.0**41])
def test_what_is_no_count_is_refused(value: float) -> None:
    with pytest.raises(QuestionRefused, match="finite"):
        on_grid(np.array([1.0, value]))

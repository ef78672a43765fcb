"""What a question may take in memory is bounded by what it names, before rows are read."""

from __future__ import annotations

from itertools import combinations
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from privacy_tables import session, table

from app.engine.privacy import contributions, planning
from app.engine.privacy.declared import Feature, FeatureClasses, MixtureMode
from app.engine.privacy.kernel import Kernel
from app.engine.privacy.limits import steps_of_row
from app.engine.privacy.loss import PrivacyLoss
from app.engine.privacy.queries import (
    Candidate,
    Count,
    Parts,
    Quantile,
    QuestionRefused,
    TupleCount,
    TupleNumber,
    Tuples,
)
from app.engine.privacy.questions import CountQuestion, QuantileQuestion, Question, SelectQuestion

RHO = PrivacyLoss.zcdp(10**12)
CELLS = 2**13


def kernel(max_rows: int = 3, **sizes: int) -> Kernel:
    source = table(sizes or {"a": 3, "b": 2}, [(1, 0), (0, 1)], [0, 1], max_rows)
    return Kernel(source, PrivacyLoss.zcdp(10**16))


def admitted(answering: Kernel, listed: Tuples) -> None:
    answering.admit(CountQuestion((TupleCount(listed, 2),), RHO))


def lists(listed: Tuples) -> list[Question]:
    return [
        CountQuestion((TupleCount(listed, 2),), RHO),
        QuantileQuestion(Quantile(TupleNumber(listed), 0.5, (0.0, 1.0)), RHO),
    ]


def one_cell_with_all_the_parts() -> Tuples:
    """A table of parts for each cell would have 2^26 entries, the question 2^14."""
    names = tuple(str(number) for number in range(CELLS))
    of_cell = (tuple(range(CELLS)), *[()] * (CELLS - 1))
    return Tuples(("a",), {}, np.array([[0]]), {"a": Parts(names, of_cell)})


@pytest.mark.parametrize("kind", [0, 1], ids=["count", "quantile"])
def test_parts_that_make_a_huge_table_are_refused(kind: int) -> None:
    question = lists(one_cell_with_all_the_parts())[kind]
    with pytest.raises(QuestionRefused, match="entries together"):
        kernel(a=CELLS, b=2).admit(question)


def test_one_list_that_many_queries_name_counts_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    listed = Tuples(("a", "b"), {}, np.array([[0, 3], [1, 4]]))
    monkeypatch.setattr(planning, "MOST_LISTED", 3 * (4 + 5))
    once = TupleCount(listed, 2)
    kernel().admit(CountQuestion((once,) * 3, RHO))
    with pytest.raises(QuestionRefused, match="entries together"):
        kernel().admit(CountQuestion((once,) * 4, RHO))


@pytest.mark.parametrize("kind", [0, 1], ids=["count", "quantile"])
@pytest.mark.parametrize(
    "listed",
    [
        Tuples((), {}, np.zeros((0, 1), dtype=np.int32)),
        Tuples(("a",), {}, np.arange(65, dtype=np.int32)[None]),
    ],
    ids=["no column", "65 items"],
)
def test_tuples_of_no_column_or_too_long_are_refused(listed: Tuples, kind: int) -> None:
    with pytest.raises(QuestionRefused, match="1 to 64 items"):
        kernel().admit(lists(listed)[kind])


def test_rows_of_one_unit_with_too_many_items_are_refused() -> None:
    listed = Tuples(("a", "b"), {}, np.array([[0, 3]]))
    admitted(kernel(2**25), listed)
    with pytest.raises(QuestionRefused, match="items together"):
        admitted(kernel(2**25 + 1), listed)


def test_rows_that_would_be_searched_for_too_long_are_refused() -> None:
    """All pairs of 4096 parts of one cell: over eight million steps for each row in it."""
    parts = Parts(tuple(map(str, range(4096))), (tuple(range(4096)), (), ()))
    pairs = np.stack([np.arange(4095), np.arange(1, 4096)], axis=1).astype(np.int32)
    with pytest.raises(QuestionRefused, match="too many items"):
        admitted(kernel(), Tuples(("a",), {}, pairs, {"a": parts}))
    admitted(kernel(), Tuples(("a",), {}, pairs[:100], {"a": parts}))


@given(st.integers(1, 9), st.integers(1, 4), st.integers(0, 20), st.randoms())
def test_no_row_takes_more_steps_than_are_told(
    width: int, length: int, tuples: int, random: Random
) -> None:
    choices = list(combinations(range(width), length))
    listed = random.sample(choices, min(tuples, len(choices)))
    nodes = {each[:size] for each in listed for size in range(1, length)}
    below = [node[-1] for node in nodes]
    steps = width + sum(width - 1 - last for last in below)
    assert steps <= steps_of_row(width, length, len(listed))


def test_wide_rows_are_counted_in_smaller_stretches(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    rows = np.stack([rng.integers(3, size=40), rng.integers(2, size=40)], axis=1)
    source = table({"a": 3, "b": 2}, rows.tolist(), rng.integers(12, size=40).tolist(), 40)
    listed = Tuples(("a", "b"), {}, np.array([[0, 3], [1, 4], [2, 3]]))

    def answers() -> tuple[list[int], float]:
        asking, loud = session(source, PrivacyLoss.zcdp(10**18)), PrivacyLoss.zcdp(10**17)
        counted = asking.tuples(TupleCount(listed, 3), loud)
        held = Quantile(TupleNumber(listed), 0.5, (0.0, 1.0, 2.0, 3.0))
        return counted.values.tolist(), asking.quantile(held, loud)

    whole = answers()
    monkeypatch.setattr(contributions, "_ITEMS_AT_ONCE", 10)
    assert answers() == whole


def test_mixtures_and_classes_name_a_bounded_number_of_columns() -> None:
    wide = np.zeros(65)
    with pytest.raises(ValueError, match="at most 64 columns"):
        MixtureMode(("a",) * 65, wide, wide + 1, np.ones(1), wide[None], wide[None] + 1)
    with pytest.raises(ValueError, match="at most 32 features"):
        FeatureClasses((Feature("rows"),) * 33, ((),) * 33, (0,))


def test_a_selection_peels_no_more_winners_off_its_candidates_than_take_seconds() -> None:
    candidate = Candidate(Count(("a",)), np.ones(3))
    SelectQuestion((candidate,) * 1024, RHO, 1024)
    SelectQuestion((candidate,) * 2**16, RHO, 16)
    for candidates, winners in ((1025, 1024), (3000, 3000), (2**16, 17)):
        with pytest.raises(QuestionRefused, match="winners times candidates"):
            SelectQuestion((candidate,) * candidates, RHO, winners)

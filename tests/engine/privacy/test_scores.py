"""Noisy distances of many candidates: what they are, what they cost, what is refused."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from fractions import Fraction
from itertools import combinations
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from privacy_tables import schema, session, table

from app.engine.grouping import Grouping
from app.engine.privacy.declared import RowNumber
from app.engine.privacy.kernel import Kernel
from app.engine.privacy.library import open_session
from app.engine.privacy.loss import PrivacyLoss
from app.engine.privacy.planning import Planner, ScorePlan
from app.engine.privacy.queries import (
    BudgetExhausted,
    Candidate,
    Contribution,
    Count,
    GridReference,
    QuestionRefused,
    Scored,
)
from app.engine.privacy.questions import ScoreQuestion
from app.engine.privacy.references import GridCells, ProductCells, checked_reference, on_grid
from app.engine.privacy.scores import expected_distance_errors, relative_weights
from app.engine.privacy.unit_budget import UnitBudget
from app.engine.schema import PrivacyUnit

ONE = 10**12
RHO = PrivacyLoss.zcdp(ONE)
SIZES = {"a": 3, "b": 4}
ROWS = [(0, 1), (2, 3), (0, 1), (1, 0), (2, 2), (2, 3), (0, 0)]
ENTITIES = [7, 7, 7, 7, 8, 8, 9]
EXACT = np.array([[1, 2, 0, 0], [1, 0, 0, 0], [0, 0, 1, 2]])
QUIET = PrivacyLoss.zcdp(2**61)
"""So large a loss that its noise is below a thousandth of a count for a few candidates."""
AB, A = Count(("a", "b")), Count(("a",))


def scored(*candidates: Candidate, loss: PrivacyLoss = QUIET) -> Scored:
    return session(table(SIZES, ROWS), loss).scores(candidates, loss)


def near(*values: float) -> Any:
    return pytest.approx(values, abs=0.02)


def test_scores_are_distances_in_counts() -> None:
    answer = scored(
        Candidate(AB, (EXACT.astype(float),)),
        Candidate(AB, (np.zeros(3), np.zeros(4))),
        Candidate(A, (np.array([3.0, 3.0, 0.0]),)),
        Candidate(Count(()), (np.array(10.0),)),
    )
    assert answer.values.tolist() == near(0, 7, 5, 3)
    assert answer.counts[2] == A
    assert answer.reference_totals.tolist() == [7, 0, 6, 10]


def test_a_reference_below_half_a_row_still_counts() -> None:
    product = (np.array([0.3, 0.3, 0.3]), np.full(4, 0.5))
    whole = np.multiply.outer(*product)
    expected = float(np.abs(EXACT - whole).sum())
    answer = scored(
        Candidate(AB, product),
        Candidate(AB, (whole,)),
        Candidate(AB, GridReference(np.rint(whole * 1024).astype(np.int16))),
    )
    assert answer.values.tolist() == near(expected, expected, expected)


def test_scores_of_every_contribution_rule() -> None:
    source = table(SIZES, ROWS, ENTITIES, max_rows=9)
    rules = [
        Contribution(),
        Contribution("distinct", limit=9),
        Contribution("one"),
        Contribution("clipped", norm=50.0),
    ]
    candidates = [Candidate(Count(("a",), contribution=rule), (np.zeros(3),)) for rule in rules]
    candidates.append(Candidate(Count.of_units(RowNumber(9)), (np.zeros(9),)))
    answer = session(source, QUIET).scores(candidates, QUIET)
    assert answer.values.tolist() == near(7, 5, 3, 7, 3)


@pytest.mark.parametrize("cells", [(3, 5), (70_000, 2), (2, 70_000), (1, 1), (4, 3, 5)])
def test_products_are_worked_through_without_being_held(cells: tuple[int, ...]) -> None:
    rng = np.random.default_rng(3)
    factors = tuple(rng.normal(size=size) * 3 for size in cells)
    checked = checked_reference(factors, cells)
    assert isinstance(checked, ProductCells)
    whole = factors[0]
    for factor in factors[1:]:
        whole = np.multiply.outer(whole, factor)
    parts = list(checked.blocks())
    assert [part.start for part, _ in parts] == [0, *(part.stop for part, _ in parts[:-1])]
    steps = np.concatenate([steps for _, steps in parts])
    assert steps.tolist() == np.rint(whole.reshape(-1) * 1024).tolist()
    assert max(len(steps) for _, steps in parts) <= max(2**16, cells[-1])


@pytest.mark.parametrize("max_rows", [1, 3])
def test_candidates_of_one_weight_share_one_scale(max_rows: int) -> None:
    source = table(SIZES, ROWS, ENTITIES, max_rows)
    candidates = [Candidate(A, (np.zeros(3),))] * 16
    zcdp = session(source, RHO).scores(candidates, RHO)
    assert (zcdp.noise, zcdp.l2_sensitivity) == ("gaussian", 4.0 * max_rows)
    assert zcdp.scale == pytest.approx(np.full(16, max_rows * 4 / math.sqrt(2)))
    assert zcdp.standard_error == pytest.approx(zcdp.scale)
    pure = session(source, PrivacyLoss.pure(ONE)).scores(candidates, PrivacyLoss.pure(ONE))
    assert (pure.noise, pure.l1_sensitivity) == ("laplace", 16.0 * max_rows)
    assert pure.scale == pytest.approx(np.full(16, max_rows * 16))
    assert pure.standard_error == pytest.approx(pure.scale * math.sqrt(2))


def test_twice_the_weight_halves_the_noise() -> None:
    answer = scored(
        Candidate(A, (np.zeros(3),), weight=6.0), Candidate(A, (np.zeros(3),), weight=3.0), loss=RHO
    )
    assert answer.weights.tolist() == [1.0, 0.5]
    assert answer.l1_sensitivity == 1.5
    assert answer.l2_sensitivity == pytest.approx(math.sqrt(1.25))
    sigma = math.sqrt(1.25 / 2)
    assert answer.scale.tolist() == pytest.approx([sigma, 2 * sigma])


@given(st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=30))
def test_weights_are_rounded_by_little(weights: list[float]) -> None:
    used = np.array(relative_weights(weights))
    assert used.max() == 1
    ratio = used / (np.array(weights) / max(weights))
    assert np.abs(np.log2(ratio)).max() <= 1 / 32 + 1e-9


RULES = [
    Contribution(),
    Contribution("distinct", limit=2),
    Contribution("one"),
    Contribution("clipped", norm=1.5),
]


def plan_of(candidates: list[Candidate], loss: PrivacyLoss, max_rows: int = 3) -> ScorePlan:
    planner = Planner(schema(**SIZES), PrivacyUnit("entity", "id", max_rows), loss.kind)
    plan = planner.plan(ScoreQuestion(tuple(candidates), loss))
    assert isinstance(plan, ScorePlan)
    return plan


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(RULES), st.floats(0.1, 10)), min_size=1, max_size=6),
    st.integers(10**9, 10**14),
    st.sampled_from(["zcdp", "pure"]),
)
def test_the_noise_of_all_entries_costs_no_more_than_the_loss(
    asked: list[tuple[Contribution, float]], amount: int, kind: Any
) -> None:
    candidates = [
        Candidate(Count(("a",), contribution=rule), (np.zeros(3),), weight)
        for rule, weight in asked
        if kind == "zcdp" or rule.rule != "clipped"
    ]
    if not candidates:
        return
    plan = plan_of(candidates, PrivacyLoss(kind, amount))
    moved = [Fraction(distance.sensitivity) for distance in plan.distances]
    scales = [Fraction(scale) for scale in plan.scales]
    pairs = list(zip(moved, scales, strict=True))
    if kind == "pure":
        cost = sum(most / scale for most, scale in pairs)
    else:
        cost = sum(most**2 / (2 * scale**2) for most, scale in pairs)
    assert cost * ONE <= amount
    assert cost * ONE >= amount * Fraction(999, 1000) - len(pairs)


@pytest.mark.parametrize("loss", [PrivacyLoss.zcdp(ONE // 50), PrivacyLoss.pure(ONE // 10)])
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.rule)
def test_errors_are_known_before_from_public_facts(rule: Contribution, loss: PrivacyLoss) -> None:
    if rule.rule == "clipped" and loss.kind == "pure":
        return
    grouping = Grouping.identity(3, 0)
    counts = [Count(("a",), {"a": grouping}, rule), Count(("a",), {"a": grouping})]
    weights = [1.0, 5.0]
    candidates = [
        Candidate(count, (np.zeros(3),), weight)
        for count, weight in zip(counts, weights, strict=True)
    ]
    source = table(SIZES, ROWS, ENTITIES, 2)
    answer = session(source, loss).scores(candidates, loss)
    forecast = expected_distance_errors(counts, weights, UnitBudget(source.unit, loss))
    assert answer.standard_error == pytest.approx(np.array(forecast), rel=1e-5)
    none = PrivacyLoss(loss.kind, 0)
    assert min(expected_distance_errors(counts, weights, UnitBudget(source.unit, none))) > 2**61


@pytest.mark.parametrize("kind", ["zcdp", "pure"])
def test_what_the_kernel_refuses_for_its_many_parts_is_known_before(
    kind: Literal["zcdp", "pure"],
) -> None:
    """Each of 100 distances takes one unit of loss at least."""
    count = Count(("a",), {"a": Grouping.identity(3, 0)})
    source = table(SIZES, ROWS, ENTITIES, 2)
    for amount in (99, 100):
        loss = PrivacyLoss(kind, amount)
        forecast = expected_distance_errors(
            [count] * 100, [1.0] * 100, UnitBudget(source.unit, loss)
        )
        assert (max(forecast) > 2**61) == (amount < 100)
        asked = session(source, loss)
        if amount < 100:
            with pytest.raises(QuestionRefused):
                asked.scores([Candidate(count, (np.zeros(3),))] * 100, loss)


ZEROS = (np.zeros(3),)
REFUSED: dict[str, Callable[[], list[Candidate]]] = {
    "no candidate": list,
    "a bias": lambda: [Candidate(A, ZEROS, bias=1e-9)],
    "a bias that is no number": lambda: [Candidate(A, ZEROS, bias=math.nan)],
    "no weight": lambda: [Candidate(A, ZEROS, weight=0.0), Candidate(A, ZEROS)],
    "a negative weight": lambda: [Candidate(A, ZEROS, weight=-1.0)],
    "an infinite weight": lambda: [Candidate(A, ZEROS, weight=math.inf)],
    "weights too far apart": lambda: [Candidate(A, ZEROS, weight=1e-9), Candidate(A, ZEROS)],
    "weights as far apart as numbers are": lambda: [
        Candidate(A, ZEROS, weight=5e-324),
        Candidate(A, ZEROS, weight=1e308),
    ],
    "another shape": lambda: [Candidate(AB, (np.zeros((4, 3)),))],
    "a factor too few": lambda: [Candidate(Count(("a", "b", "c")), (np.zeros(3), np.zeros(4)))],
    "no factor": lambda: [Candidate(AB, ())],
    "steps of another shape": lambda: [Candidate(A, GridReference(np.zeros(4, np.int8)))],
    "steps too large": lambda: [Candidate(A, GridReference(np.full(3, -(2**63))))],
    "large steps of another shape": lambda: [
        Candidate(A, GridReference(np.zeros(4, np.int8), np.array([[3], [200]])))
    ],
    "large steps too large": lambda: [
        Candidate(A, GridReference(np.zeros(3, np.int8), np.array([[2], [2**62]])))
    ],
    "no numbers": lambda: [Candidate(A, (np.array(["x", "y", "z"]),))],
    "not a number": lambda: [Candidate(A, (np.array([0.0, math.nan, 0.0]),))],
    "too large": lambda: [Candidate(AB, (np.full(3, 1e300), np.full(4, 1e300)))],
    "hidden infinity": lambda: [Candidate(AB, (np.full(3, math.inf), np.zeros(4)))],
    "an unknown column": lambda: [Candidate(Count(("z",)), ZEROS)],
}


@pytest.mark.parametrize("made", REFUSED.values(), ids=REFUSED.keys())
def test_a_refused_question_costs_nothing(made: Callable[[], list[Candidate]]) -> None:
    sizes = {**SIZES, "c": 2}
    opened = session(table(sizes, [(0, 0, 0)]), RHO)
    with pytest.raises(QuestionRefused):
        opened.scores(made(), RHO)
    assert opened.remaining == RHO
    with pytest.raises(BudgetExhausted):
        opened.scores([Candidate(A, ZEROS)], PrivacyLoss.zcdp(ONE + 1))
    opened.scores([Candidate(A, ZEROS)], RHO)
    assert opened.remaining.amount == 0


def test_clipped_scores_are_not_for_pure_sessions() -> None:
    rule = Contribution("clipped", norm=1.0)
    loss = PrivacyLoss.pure(ONE)
    opened = session(table(SIZES, ROWS, ENTITIES), loss)
    with pytest.raises(QuestionRefused, match="pure"):
        opened.scores([Candidate(Count(("a",), contribution=rule), ZEROS)], loss)


def test_noise_beyond_the_largest_scale_is_refused() -> None:
    opened = session(table(SIZES, ROWS, ENTITIES, max_rows=2**31 - 1), RHO)
    with pytest.raises(QuestionRefused, match="too small"):
        opened.scores([Candidate(A, ZEROS)] * 100, PrivacyLoss.zcdp(10**6))
    assert opened.remaining == RHO


def test_steps_are_signed_integers() -> None:
    for steps in (np.zeros(3), np.zeros(3, np.uint8), np.zeros(3, bool)):
        with pytest.raises(ValueError, match="integers"):
            GridReference(steps)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("apart", "said"),
    [
        ([[3], [200]], "outside"),
        ([[-1], [200]], "outside"),
        ([[1, 1], [200, 300]], "increasing"),
        ([[2, 0], [200, 300]], "increasing"),
        ([[0, 1]], "places"),
        ([0, 1], "places"),
        ([[0.0], [1.0]], "integers"),
    ],
)
def test_steps_apart_lie_each_in_a_place_of_its_own(apart: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        GridReference(np.zeros(3, np.int8), np.array(apart))


@pytest.mark.parametrize("large", [0, 1, 40, 4000])
@pytest.mark.parametrize("height", [0.1, 20.0, 1e5, 1e8])
def test_a_reference_is_kept_in_few_bytes_and_lost_nowhere(large: int, height: float) -> None:
    rng = np.random.default_rng(8)
    counts = rng.uniform(-0.1, 0.1, (40, 2, 1000))
    counts.reshape(-1)[rng.permutation(80_000)[:large]] = rng.choice([-height, height], large)
    reference = on_grid(counts)
    steps = np.concatenate([steps for _, steps in GridCells(reference).blocks()])
    assert steps.tolist() == np.rint(counts * 1024).reshape(-1).tolist()
    assert GridCells(reference).total == pytest.approx(counts.sum(), abs=40)
    assert reference.steps.shape == counts.shape
    assert reference.steps.itemsize == 1
    assert reference.apart.shape == (2, large if height > 0.12 else 0)


def test_a_reference_of_large_cells_is_as_wide_as_they_are() -> None:
    for height, width in ((0.1, 1), (10.0, 2), (1000.0, 4)):
        reference = on_grid(np.full(50, height))
        assert (reference.steps.itemsize, reference.apart.shape) == (width, (2, 0))
    huge = on_grid(np.full(50, 2.0**30))
    assert huge.apart.tolist() == [list(range(50)), [2**40] * 50]


class Unreadable:
    """A table whose rows nobody may look at."""

    schema = schema(**SIZES)
    unit = PrivacyUnit("row")

    def chunks(self, columns: Any) -> Any:
        raise PermissionError(f"the rows of {columns} hold a secret")

    def entities(self) -> Any:
        raise PermissionError("the ids hold a secret")


def test_admission_never_looks_at_rows() -> None:
    kernel = Kernel(Unreadable(), RHO)
    admitted = kernel.admit(ScoreQuestion((Candidate(A, ZEROS),), RHO))
    assert admitted.loss == RHO
    with pytest.raises(QuestionRefused):
        kernel.admit(ScoreQuestion((Candidate(Count(("z",)), ZEROS),), RHO))


def test_many_candidates_are_counted_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.engine.privacy.exact._CELLS_AT_ONCE", 24)
    monkeypatch.setattr("app.engine.privacy.exact._CACHED_CELLS", 24)
    kernel = Kernel(table(SIZES, ROWS), QUIET)
    rng = np.random.default_rng(5)
    references = [rng.integers(0, 4, (3, 4)).astype(float) for _ in range(40)]
    question = ScoreQuestion(tuple(Candidate(AB, (each,)) for each in references), QUIET)
    answer = kernel.answer(kernel.admit(question))
    assert isinstance(answer, Scored)
    expected = [float(np.abs(EXACT - each).sum()) for each in references]
    assert answer.values.tolist() == near(*expected)
    assert not kernel._exact._kept


def test_all_pairs_of_100_columns_are_scored_in_seconds() -> None:
    rng = np.random.default_rng(1)
    sizes = {f"c{place}": 12 for place in range(100)}
    codes = {name: rng.integers(0, 12, 20_000) for name in sizes}
    opened = open_session(codes, schema(**sizes), PrivacyUnit("row"), RHO)
    shares = np.full(12, 1 / 12)
    candidates = [
        Candidate(Count(pair), (20_000 * shares, shares)) for pair in combinations(sizes, 2)
    ]
    started = time.process_time()
    answer = opened.scores(candidates, RHO)
    assert time.process_time() - started < 4
    assert answer.values.shape == (4950,)
    assert answer.standard_error == pytest.approx(np.full(4950, math.sqrt(4950 / 2)))

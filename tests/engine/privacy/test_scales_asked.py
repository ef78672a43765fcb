"""Which noise is asked for: the scale of every draw, from the loss and the sensitivity alone.

What a session has left says that something was charged, not that the noise was worth it. So the
samplers are replaced here by ones that write down the scale. Each is compared with a formula that
is written out by hand.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import pytest
from numpy.typing import NDArray
from privacy_tables import schema, session

from app.engine.privacy import kernel
from app.engine.privacy.declared import RowNumber
from app.engine.privacy.loss import PrivacyLoss
from app.engine.privacy.queries import (
    BudgetExhausted,
    Candidate,
    Contribution,
    Count,
    KernelFailure,
    Keys,
    Quantile,
    Sum,
    TupleCount,
    Tuples,
    Values,
)
from app.engine.privacy.session_base import Session
from app.engine.privacy.source import ArraySource
from app.engine.schema import PrivacyUnit, Schema

ONE = 10**12
MOST = 5
"""The most rows of one entity that count."""

RULES = [
    (Contribution("rows"), MOST, MOST),
    (Contribution("distinct", limit=2), 2, math.sqrt(2)),
    (Contribution("distinct", limit=9), 3, math.sqrt(3)),  # `a` has three cells
    (Contribution("one"), 1, 1),
]


@dataclass
class Draws:
    """The scales that samplers were asked for, in the integers that they were given."""

    noise: list[float] = field(default_factory=list)
    selections: list[float] = field(default_factory=list)
    moved_by: NDArray[np.int64] | None = None

    def add_noise(self, values: NDArray[np.int64], noise: str, scale: float) -> NDArray[np.int64]:
        del noise
        self.noise.append(scale)
        return values if self.moved_by is None else values + self.moved_by

    def noisy_winners(
        self, scores: Sequence[int], kind: str, scale: float, winners: int
    ) -> tuple[int, ...]:
        del kind
        self.selections += [scale] * winners
        return tuple(int(place) for place in np.argsort(-np.array(scores), kind="stable")[:winners])


@pytest.fixture
def draws(monkeypatch: pytest.MonkeyPatch) -> Draws:
    recorded = Draws()
    monkeypatch.setattr(kernel, "add_noise", recorded.add_noise)
    monkeypatch.setattr(kernel, "noisy_winners", recorded.noisy_winners)
    return recorded


def people(allowance: PrivacyLoss) -> Session:
    """Entities of up to five rows, with `a` of three and `b` of four values."""
    rng = np.random.default_rng(0)
    codes = {"a": rng.integers(0, 3, 40), "b": rng.integers(0, 4, 40)}
    unit = PrivacyUnit("entity", "id", MOST)
    return session(ArraySource(schema(a=3, b=4), unit, codes, np.arange(40) // 5), allowance)


def of_kind(kind: Literal["pure", "zcdp"], amount: int = ONE, delta: int = 0) -> PrivacyLoss:
    return PrivacyLoss(kind, amount, delta)


def pays_for(kind: str, amount: float, l1: float, l2: float) -> float:
    """The scale of noise on counts: b = L1 / epsilon, or sigma = L2 / sqrt(2 rho)."""
    return l1 / amount if kind == "pure" else l2 / math.sqrt(2 * amount)


def selects_for(kind: str, amount: float, delta: float) -> float:
    """The scale of a noisy max: 2 Delta / epsilon, where rho is epsilon^2 / 8."""
    return 2 * delta / (amount if kind == "pure" else math.sqrt(8 * amount))


BOTH = pytest.mark.parametrize("kind", ["pure", "zcdp"])


@BOTH
@pytest.mark.parametrize(("rule", "l1", "l2"), RULES)
def test_a_count_has_the_noise_of_its_rule(
    draws: Draws, kind: Any, rule: Contribution, l1: float, l2: float
) -> None:
    (answer,) = people(of_kind(kind)).count([Count(("a",), contribution=rule)], of_kind(kind))
    expected = pays_for(kind, 1.0, l1, l2)
    assert draws.noise == [pytest.approx(expected)]
    assert answer.scale == pytest.approx(expected)


def test_a_clipped_count_has_the_noise_of_its_norm(draws: Draws) -> None:
    opened = people(of_kind("zcdp"))
    query = Count(("a",), contribution=Contribution("clipped", norm=2.0))
    (answer,) = opened.count([query], of_kind("zcdp"))
    assert draws.noise == [pytest.approx(1024 * 2 / math.sqrt(2))]
    assert answer.scale == pytest.approx(2 / math.sqrt(2))


@BOTH
def test_counts_of_one_question_share_its_loss(draws: Draws, kind: Any) -> None:
    queries = [Count(("a",)), Count(("b",)), Count(("a", "b"))]
    people(of_kind(kind)).count(queries, of_kind(kind), (1.0, 1.0, 2.0))
    parts = (0.25, 0.25, 0.5)
    assert draws.noise == [pytest.approx(pays_for(kind, part, MOST, MOST)) for part in parts]


@BOTH
@pytest.mark.parametrize(("low", "high"), [(-7.0, 3.0), (0.0, 3.0)])
def test_a_sum_has_the_noise_of_its_larger_bound(
    draws: Draws, kind: Any, low: float, high: float
) -> None:
    people(of_kind(kind)).sum([Sum("b", low, high)], of_kind(kind))
    most = MOST * max(abs(low), abs(high))
    assert draws.noise == [pytest.approx(pays_for(kind, 1.0, most, most))]


@BOTH
@pytest.mark.parametrize("limit", [1, 2, 50])
def test_tuples_have_the_noise_of_as_many_as_one_unit_holds(
    draws: Draws, kind: Any, limit: int
) -> None:
    """However few its rows are: one row holds many tuples."""
    pairs = [[a, 3 + b] for a in range(3) for b in range(4)]
    listed = Tuples(("a", "b"), {}, np.array(pairs, dtype=np.int32))
    people(of_kind(kind)).tuples(TupleCount(listed, limit), of_kind(kind))
    held = min(limit, 12)
    assert draws.noise == [pytest.approx(pays_for(kind, 1.0, held, math.sqrt(held)))]


@BOTH
@pytest.mark.parametrize("winners", [1, 3, 4])
def test_winners_of_a_selection_divide_its_loss(draws: Draws, kind: Any, winners: int) -> None:
    candidates = [Candidate(Count(("a",)), (np.full(3, float(i)),)) for i in range(4)]
    people(of_kind(kind)).select(candidates, of_kind(kind), winners)
    each = selects_for(kind, 1 / winners, MOST)
    assert draws.selections == [pytest.approx(each * kernel.SCORE_UNIT, rel=1e-9)] * winners


@BOTH
@pytest.mark.parametrize("order", [(0, 1, 2), (1, 2, 0), (2, 0, 1)])
def test_a_selection_is_calibrated_for_the_candidate_that_moves_most(
    draws: Draws, kind: Any, order: Sequence[int]
) -> None:
    """Not for the first, the last or the heaviest: half the weight on five rows is the most."""
    reference = (np.zeros(3),)
    candidates = [
        Candidate(Count(("a",), contribution=Contribution("one")), reference, weight=1.0),
        Candidate(Count(("a",)), reference, weight=0.5),
        Candidate(Count(("a",), contribution=Contribution("distinct", limit=2)), reference, 0.5),
    ]
    people(of_kind(kind)).select([candidates[place] for place in order], of_kind(kind))
    expected = selects_for(kind, 1.0, 0.5 * MOST) * kernel.SCORE_UNIT
    assert draws.selections == [pytest.approx(expected, rel=1e-9)]


@BOTH
def test_scores_divide_a_loss_by_how_far_they_move(draws: Draws, kind: Any) -> None:
    reference = (np.zeros(3),)
    candidates = [
        Candidate(Count(("a",), contribution=Contribution("one")), reference),
        Candidate(Count(("a",)), reference),
    ]
    people(of_kind(kind)).scores(candidates, of_kind(kind))
    whole = 1 + MOST if kind == "pure" else math.sqrt(1 + MOST**2)
    # One scale for both: the part of the loss of each is as large as it moves (squared for rho).
    assert draws.noise == [pytest.approx(pays_for(kind, 1.0, whole, whole) * 1024)] * len(
        draws.noise
    )
    assert draws.noise


@BOTH
def test_a_score_of_less_weight_is_drawn_with_more_noise(draws: Draws, kind: Any) -> None:
    reference = (np.zeros(3),)
    candidates = [Candidate(Count(("a",)), reference, weight) for weight in (1.0, 0.5)]
    people(of_kind(kind)).scores(candidates, of_kind(kind))
    moved = (MOST, 0.5 * MOST)
    whole = sum(moved) if kind == "pure" else math.hypot(*moved)
    expected = pays_for(kind, 1.0, whole, whole) * 1024
    assert draws.noise == [pytest.approx(expected), pytest.approx(2 * expected)]


@BOTH
@pytest.mark.parametrize("q", [0.0, 0.25, 0.5, 0.9])
@pytest.mark.parametrize(("of", "numbers"), [("b", MOST), (RowNumber(MOST), 1)])
def test_a_quantile_moves_by_the_farther_side_of_all_numbers_of_a_unit(
    draws: Draws, kind: Any, q: float, of: Any, numbers: int
) -> None:
    people(of_kind(kind)).quantile(Quantile(of, q, (0.0, 1.0, 2.0)), of_kind(kind))
    expected = selects_for(kind, 1.0, max(q, 1 - q) * numbers)
    assert draws.selections == [pytest.approx(expected * 2**20, rel=1e-5)]


def tail_at_least(scale: float, least: int) -> float:
    """P[Z >= least] of a discrete Gaussian, summed term by term."""
    support = np.arange(-4000, 4001)
    weights = np.exp(-((support / scale) ** 2) / 2)
    return float(weights[support >= least].sum() / weights.sum())


def chance_of_showing(scale: float, threshold: int, keys: int) -> float:
    """That a unit alone shows any of so many keys, each of count 1."""
    return float(-np.expm1(keys * np.log1p(-tail_at_least(scale, threshold - 1))))


def expect_threshold(answer: Any, keys: int, delta: float) -> None:
    assert chance_of_showing(answer.scale, answer.threshold, keys) <= delta * (1 + 1e-6)
    assert chance_of_showing(answer.scale, answer.threshold - 1, keys) > delta


@pytest.mark.parametrize(("limit", "held"), [(1, 1), (3, 3), (50, MOST)])
def test_keys_are_kept_by_noise_and_threshold_for_all_keys_of_a_unit(
    draws: Draws, limit: int, held: int
) -> None:
    rho, delta = 0.02, 1e-6
    loss = of_kind("zcdp", int(rho * ONE), int(delta * 10**18))
    answer = people(loss).discover(Keys(("a", "b"), limit=limit), loss)
    assert draws.noise == [pytest.approx(pays_for("zcdp", rho, 0, math.sqrt(held)))]
    expect_threshold(answer, held, delta)


def towns(names: Sequence[str], loss: PrivacyLoss, most: int, of_unit: int = 1) -> Session:
    wire: list[dict[str, Any]] = [
        {"name": "town", "type": "string", "values": {"discover": most}, "other": "Other"}
    ]
    unit, ids = PrivacyUnit("row"), None
    if of_unit > 1:
        wire.append({"name": "id", "type": "string", "role": "entity"})
        unit, ids = PrivacyUnit("entity", "id", of_unit), np.arange(len(names)) // of_unit
    codes = {"town": np.zeros(len(names), dtype=np.int64)}
    dictionary = Schema.parse({"fields": wire})
    return session(ArraySource(dictionary, unit, codes, ids, texts={"town": list(names)}), loss)


@pytest.mark.parametrize(("limit", "held"), [(1, 1), (2, 2), (50, MOST)])
def test_values_are_found_by_noise_and_threshold_for_all_values_of_a_unit(
    draws: Draws, limit: int, held: int
) -> None:
    rho, delta = 0.02, 1e-6
    loss = of_kind("zcdp", int(rho * ONE), int(delta * 10**18))
    answer = towns(["Ur"] * 400, loss, 9, MOST).find_values(Values("town", limit), loss)
    assert draws.noise == [pytest.approx(pays_for("zcdp", rho, 0, math.sqrt(held)))]
    expect_threshold(answer, held, delta)


def test_of_more_values_than_are_wanted_noisy_counts_decide(draws: Draws) -> None:
    """Ranking by exact counts would tell which of two values has one row more."""
    loss = of_kind("zcdp", ONE, 10**12)
    draws.moved_by = np.array([-30, 0, 30, 15])  # of Eridu, Kish, Lagash and Ur
    names = ["Eridu"] * 90 + ["Kish"] * 80 + ["Lagash"] * 70 + ["Ur"] * 60
    found = towns(names, loss, 2).find_values(Values("town"), loss)
    assert found.texts == ("Kish", "Lagash")
    assert found.values.tolist() == [80, 100]


@pytest.mark.parametrize("of_values", [True, False])
def test_noisy_counts_decide_what_reaches_the_threshold(draws: Draws, of_values: bool) -> None:
    loss = of_kind("zcdp", ONE, 10**12)  # threshold 5
    names = ["Kish"] * 4 + ["Ur"] * 6 + ["Zabala"] * 5
    draws.moved_by = np.array([3, -2, 0])  # Ur comes to 4, one below the threshold
    if of_values:
        found: Any = towns(names, loss, 9).find_values(Values("town"), loss)
        kept = list(found.texts)
    else:
        codes = {"a": np.unique(names, return_inverse=True)[1], "b": np.zeros(15, np.int64)}
        source = ArraySource(schema(a=3, b=4), PrivacyUnit("row"), codes)
        found = session(source, loss).discover(Keys(("a",)), loss)
        kept = [("Kish", "Ur", "Zabala")[key] for key in found.keys[:, 0]]
    assert found.threshold == 5
    assert kept == ["Kish", "Zabala"]
    assert found.values.tolist() == [7, 5]


def test_delta_is_a_limit_of_a_session_to_the_last_unit(draws: Draws) -> None:
    allowance = of_kind("zcdp", 10 * ONE, 10**12)
    for delta, fits in ((10**12, True), (10**12 + 1, False)):
        loss = of_kind("zcdp", ONE, delta)
        for ask in (
            lambda loss=loss: people(allowance).discover(Keys(("a",)), loss),
            lambda loss=loss: towns(["Ur"] * 40, allowance, 9).find_values(Values("town"), loss),
        ):
            with contextlib.nullcontext() if fits else pytest.raises(BudgetExhausted):
                ask()
    assert len(draws.noise) == 2


@BOTH
def test_a_question_is_charged_before_a_sampler_is_asked(
    monkeypatch: pytest.MonkeyPatch, kind: Any
) -> None:
    """What fails as it draws may have shown something, so it has been paid for."""
    left: list[int] = []

    def fails(*_: Any) -> Any:
        left.append(opened._kernel.remaining.amount)
        raise RuntimeError

    monkeypatch.setattr(kernel, "add_noise", fails)
    monkeypatch.setattr(kernel, "noisy_winners", fails)
    loss = of_kind(kind)
    candidates = [Candidate(Count(("a",)), (np.zeros(3),))]
    asks: list[Callable[[], object]] = [
        lambda: opened.count([Count(("a",))], loss),
        lambda: opened.select(candidates, loss),
        lambda: opened.scores(candidates, loss),
        lambda: opened.quantile(Quantile("b", 0.5, (0.0, 1.0)), loss),
    ]
    opened: Any
    for ask in asks:
        opened = people(of_kind(kind, 3 * ONE))
        with pytest.raises(KernelFailure):
            ask()
    if kind == "zcdp":
        both = of_kind("zcdp", ONE, 10**12)
        opened = people(of_kind("zcdp", 3 * ONE, 10**13))
        with pytest.raises(KernelFailure):
            opened.discover(Keys(("a",)), both)
        opened = towns(["Ur"] * 9, of_kind("zcdp", 3 * ONE, 10**13), 9)
        with pytest.raises(KernelFailure):
            opened.find_values(Values("town"), both)
    assert left == [2 * ONE] * (6 if kind == "zcdp" else 4)


@BOTH
def test_nothing_is_drawn_for_a_question_that_the_rest_does_not_cover(
    draws: Draws, kind: Any
) -> None:
    opened = people(of_kind(kind, 2 * ONE))
    half, rest = of_kind(kind, ONE), of_kind(kind, ONE + 1)
    opened.count([Count(("a",))], half)
    for ask in (
        lambda: opened.count([Count(("a",))], rest),
        lambda: opened.select([Candidate(Count(("a",)), (np.zeros(3),))], rest),
        lambda: opened.scores([Candidate(Count(("a",)), (np.zeros(3),))], rest),
        lambda: opened.quantile(Quantile("b", 0.5, (0.0, 1.0)), rest),
    ):
        with pytest.raises(BudgetExhausted):
            ask()
    assert (len(draws.noise), len(draws.selections)) == (1, 0)
    opened.count([Count(("a",))], half)  # the rest is covered to the last unit
    assert opened.remaining.amount == 0

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from public_tables import CELLS, FIELDS, SCHEMA, columns_of, contrary, public_of, read, rows_of
from small_tables import EXACT, ROW, session_on

from app.engine.columns.axes import choose_axes
from app.engine.method import PublicFacts
from app.engine.prior.distances import PairDistances, distance_errors, distance_rule, pair_distances
from app.engine.prior.drift import PriorLimits, PublicPrior, public_prior, without_drifted_pairs
from app.engine.prior.public_model import PublicModel, pairs_within
from app.engine.privacy.library import LocalSession
from app.engine.privacy.loss import PrivacyLoss
from app.engine.privacy.queries import Candidate, Contribution, Scored
from app.engine.privacy.unit_budget import UnitBudget
from app.engine.schema import PrivacyUnit, Schema
from app.engine.table import PublicTable, Table

Codes = dict[str, np.ndarray]
CHAIN = {("a", "b"), ("b", "c"), ("a", "d")}


def started(public: Codes, private: Codes) -> tuple[PublicModel, tuple[PairDistances, ...]]:
    """A start, and how far it is from the truth without any noise."""
    columns = columns_of(private, EXACT)
    start = PublicModel.of(read(public), SCHEMA, columns, 10_000, 1000)
    session = session_on(SCHEMA, private)
    pairs = pairs_within(columns, 1000)
    return start, pair_distances(session, start, pairs, Contribution(), EXACT)


def true_distance(codes: Codes, pair: tuple[str, str], reference: np.ndarray) -> float:
    one, other = pair
    cells = CELLS[one] * CELLS[other]
    counts = np.bincount(codes[one] * CELLS[other] + codes[other], minlength=cells)
    return float(np.abs(counts - reference.ravel()).sum())


def test_distances_are_of_the_exact_rows_from_both_references() -> None:
    private = rows_of(3000, 1)
    start, compared = started(rows_of(3000, 2), private)
    assert [each.pair for each in compared] == pairs_within(start.cells.columns, 1000)
    for each in compared:
        table = 3000 * start.model.marginal(each.pair)
        assert each.from_model == pytest.approx(true_distance(private, each.pair, table), abs=1)
        if each.model_dependence:
            one, other = (start.cells.columns.shares[name] for name in each.pair)
            product = 3000 * np.multiply.outer(one, other)
            expected = true_distance(private, each.pair, product)
            assert each.from_independence == pytest.approx(expected, abs=1)
            assert each.model_dependence == pytest.approx(
                float(np.abs(table - product).sum()), abs=0.1
            )


def test_a_start_alike_keeps_its_pairs_and_one_turned_round_is_given_up() -> None:
    private = rows_of(3000, 1)
    start, compared = started(rows_of(3000, 2), private)
    kept = without_drifted_pairs(start, compared)
    assert kept is not None
    assert set(kept.pairs) >= CHAIN
    start, compared = started(contrary(rows_of(3000, 2)), private)
    assert set(start.pairs) >= CHAIN
    assert without_drifted_pairs(start, compared) is None


def test_the_one_pair_that_has_drifted_is_taken_out() -> None:
    private, public = rows_of(3000, 1), rows_of(3000, 2)
    public["d"] = 3 - public["d"]
    start, compared = started(public, private)
    kept = without_drifted_pairs(start, compared)
    assert kept is not None
    assert ("a", "d") in start.pairs
    assert ("a", "d") not in kept.pairs
    assert {("a", "b"), ("b", "c")} <= set(kept.pairs)
    left = PublicPrior(kept, start, compared).gains
    by_pair = {each.pair: each for each in compared}
    assert left["a", "d"] == pytest.approx(by_pair["a", "d"].from_independence)
    assert left["a", "b"] == pytest.approx(by_pair["a", "b"].from_model)
    none = PublicPrior(None, start, compared).gains
    assert none["a", "b"] == pytest.approx(by_pair["a", "b"].from_independence)


def pair_of(surplus: float, apart: float, error: float) -> PairDistances:
    return PairDistances(("a", "b"), 1000 + surplus, 1000.0, apart, error)


@given(st.floats(-1, 1), st.floats(1, 5000), st.floats(0, 3))
@settings(max_examples=60, deadline=None)
def test_little_noise_decides_by_the_distances_and_much_by_what_was_thought_before(
    surplus: float, apart: float, error: float
) -> None:
    """By Bayes: a difference thought to be -apart/2 give or take apart/2, seen with noise."""
    start = chained()
    compared = [pair_of(surplus * apart, apart, error * apart)]
    seen, thought = 2 * (error * apart) ** 2, (apart / 2) ** 2
    mean = surplus * apart * thought - apart / 2 * seen
    if abs(mean) > 1e-6 * apart**3:
        assert (without_drifted_pairs(start, compared) is None) == (mean > 0)


@cache
def chained() -> PublicModel:
    start, _ = started(rows_of(3000, 2), rows_of(3000, 1))
    return start


def test_a_start_of_no_pair_is_none() -> None:
    rng = np.random.default_rng(0)
    flat = {name: rng.integers(0, most, 200) for name, most in CELLS.items()}
    start = PublicModel.over(chained().cells, SCHEMA, ())
    assert without_drifted_pairs(start, ()) is None
    session = session_on(SCHEMA, rows_of(300, 1))
    made = public_prior(
        session,
        columns_of(rows_of(300, 1), EXACT),
        None,
        public_of(flat),
        read(flat),
        EXACT,
        PriorLimits(tree=10, pair=10),
        entity_use="auto",
        seed=0,
    )
    assert made is None or (isinstance(made, PublicPrior) and made.factors is None)


def test_no_reference_is_beyond_what_the_kernel_takes() -> None:
    """A noisy total that is far off must not end a run that was charged."""
    private = rows_of(300, 1)
    columns = columns_of(private, EXACT)
    size = replace(columns.size, rows=2.0**45)
    many = replace(columns, measured=replace(columns.measured, size=size))
    start = PublicModel.of(read(private), SCHEMA, many, 10_000, 1000)
    pairs = pairs_within(many, 1000)
    compared = pair_distances(session_on(SCHEMA, private), start, pairs, Contribution(), EXACT)
    assert len(compared) == len(pairs)


def people() -> tuple[Schema, PublicTable, PrivacyUnit]:
    identity = {"name": "id", "type": "string", "role": "entity"}
    schema = Schema.parse({"fields": [identity, *FIELDS]})
    table = Table(rows_of(4000, 2), 4000, np.arange(4000) // 8)
    return schema, PublicTable(schema, table), PrivacyUnit("entity", "id", 30)


class Counting:
    """A session that keeps what was asked of it."""

    def __init__(self, inner: LocalSession) -> None:
        self.inner = inner
        self.asked: list[tuple[Sequence[Candidate], PrivacyLoss]] = []

    def __getattr__(self, name: str) -> object:
        return getattr(self.inner, name)

    def scores(self, candidates: Sequence[Candidate], loss: PrivacyLoss) -> Scored:
        self.asked.append((candidates, loss))
        return self.inner.scores(candidates, loss)


@pytest.mark.parametrize("times", [1, 3])
def test_distances_of_entities_are_of_few_distinct_cells_each(times: int) -> None:
    """Private entities have `times` as many rows as public ones, which a first question tells."""
    schema, public, unit = people()
    private = rows_of(6000, 1)
    entity = np.arange(6000) // (8 * times)
    rule = distance_rule(unit, public)
    assert rule == Contribution("distinct", limit=7)
    session = Counting(session_on(schema, private, EXACT, unit, entity))
    columns = columns_of(private, EXACT)
    start = PublicModel.of(read(public.table.codes, public.table.entity), SCHEMA, columns, 9999, 99)
    pairs = pairs_within(columns, 99)
    compared = pair_distances(session, start, pairs, rule, EXACT)  # type: ignore[arg-type]
    assert all(each.count.contribution == rule for asked, _ in session.asked for each in asked)
    assert sum(loss.amount for _, loss in session.asked) <= EXACT.amount
    for each in compared:
        if each.pair in CHAIN:
            assert each.from_model < 0.5 * each.from_independence


def test_public_rows_of_nobody_and_rows_as_units_are_counted_as_they_are() -> None:
    _, public, unit = people()
    assert distance_rule(ROW, public) == Contribution()
    assert distance_rule(unit, public_of(rows_of(10, 1))) == Contribution()


def test_the_noise_foretold_is_that_of_the_answers() -> None:
    private = rows_of(3000, 1)
    loss = PrivacyLoss.zcdp(10**11)
    axes, _ = choose_axes(SCHEMA, None, {})
    (foretold,) = distance_errors(axes, PublicFacts(SCHEMA, 10), UnitBudget(ROW, loss))
    columns = columns_of(private, EXACT)
    start = PublicModel.of(read(rows_of(3000, 2)), SCHEMA, columns, 10_000, 1000)
    session = session_on(SCHEMA, private, loss)
    compared = pair_distances(session, start, pairs_within(columns, 1000), Contribution(), loss)
    assert max(each.error for each in compared) <= foretold * 1.01
    assert max(each.error for each in compared) >= foretold / 2**0.5 * 0.99


def test_the_noise_of_what_tells_the_scale_is_foretold_too() -> None:
    _, public, unit = people()
    axes, _ = choose_axes(SCHEMA, ("a", "b", "c"), {})
    facts = PublicFacts(public.schema, 10)
    scale, apart = distance_errors(axes, facts, UnitBudget(unit, PrivacyLoss.pure(10**9)))
    assert scale / apart == pytest.approx((3 / 0.1) / (9 / 0.9), rel=0.01), "of three pairs"

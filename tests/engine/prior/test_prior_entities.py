"""The parts of `public_reweighted` by hand: features, duals, choice, redrawing, what is missing."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy
from hypothesis import given, settings
from hypothesis import strategies as st
from small_tables import EXACT, digits

from app.engine.columns.axes import choose_axes
from app.engine.grouping import Grouping
from app.engine.prior.entities.fitting import most_and_least_dependent, mutual_information, pools
from app.engine.prior.entities.rows import OneWay, mixed, with_missing_values
from app.engine.prior.entities.sampling import WeightedRows, assembled_rows
from app.engine.prior.entities.selection import Option, chosen
from app.engine.prior.entities.weights import Target, dispersion, maximum_entropy, reweighted
from app.engine.privacy.library import open_session
from app.engine.privacy.queries import Contribution, Count, Noise
from app.engine.public.contributions import Features, features_of
from app.engine.public.rows import PublicRows
from app.engine.schema import PrivacyUnit
from app.engine.table import generator

TEN = Grouping.identity(10, 0)


def whole(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int64)


def one_column(values: np.ndarray, entity: np.ndarray) -> PublicRows:
    return PublicRows({"a": values}, entity, int(entity.max()) + 1)


def cells(values: np.ndarray, size: int) -> Features:
    return Features((size,), values, np.ones(len(values)))


def test_amounts_follow_the_contribution_rule() -> None:
    rows = one_column(whole(0, 0, 0, 1, 1, 1, 1, 5), whole(0, 0, 0, 0, 0, 0, 0, 1))
    clipped = features_of(Count(("a",), {"a": TEN}, Contribution("clipped", norm=2.5)), rows)
    assert clipped.counts(np.ones(8))[[0, 1, 5]] == pytest.approx([1.5, 2.0, 1.0])  # norm 5
    distinct = features_of(Count(("a",), {"a": TEN}, Contribution("distinct", limit=1)), rows)
    assert distinct.counts(np.ones(8))[[0, 1, 5]] == pytest.approx([0.5, 0.5, 1.0])
    plain = features_of(Count(("a",), {"a": TEN}), rows)
    assert plain.counts(np.ones(8))[[0, 1, 5]].tolist() == [3, 4, 1]


@pytest.mark.parametrize("rule", [Contribution(), Contribution("clipped", norm=1.5)])
def test_amounts_add_up_to_what_the_kernel_counts(rule: Contribution) -> None:
    rng = np.random.default_rng(1)
    schema, entity = digits({"a": 4, "b": 3}), np.sort(rng.integers(0, 30, 100))
    codes = {"a": rng.integers(0, 4, 100), "b": rng.integers(0, 3, 100)}
    groupings = {name: schema.column(name).grouping for name in codes}
    question = Count(("a", "b"), groupings, rule)
    unit = PrivacyUnit("entity", "id", 100)
    loss = EXACT if rule.rule == "rows" else type(EXACT).zcdp(10**18)
    session = open_session(codes, schema, unit, loss, entities=entity)
    (answer,) = session.count((question,), session.allowance)
    numbers = np.unique(entity, return_inverse=True)[1]
    rows = PublicRows(codes, numbers, int(numbers.max()) + 1)
    counts = features_of(question, rows).counts(np.ones(100))
    # The kernel rounds each entity's vector to 1/1024 of a count, and the noise is below 0.01.
    assert counts == pytest.approx(answer.values.ravel(), abs=1 if rule.rule == "clipped" else 0)


def test_the_dual_of_cells_that_no_atom_shares_is_solved_by_hand() -> None:
    """Two atoms in each of two cells: w = b exp(theta) with 2 w - y + (sigma^2 / phi) theta = 0.
    For theta = ln 2 and w = 10 -> 20, with pull 4: y = 40 + 4 ln 2; theta = 0 for y = 20."""
    features = cells(whole(0, 0, 1, 1), 2)
    values = np.array([40 + 4 * math.log(2), 20.0])
    weights = maximum_entropy(np.full(4, 10.0), [Target(features, values, 8.0)], [2.0])
    assert weights == pytest.approx([20, 20, 10, 10], rel=1e-3)


def test_the_dual_of_two_histograms_meets_its_stationary_point() -> None:
    """F'w - y + pull theta = 0, where theta is read off the weights' logarithms."""
    first, second = cells(whole(0, 0, 1, 1), 2), cells(whole(0, 1, 0, 1), 2)
    y, z = np.array([30.0, 10.0]), np.array([12.0, 25.0])
    base = np.full(4, 10.0)
    weights = maximum_entropy(base, [Target(first, y, 2.0), Target(second, z, 6.0)], [1.0, 3.0])
    theta = (y - first.counts(weights)) / 2.0
    other = (z - second.counts(weights)) / 2.0
    expected = [theta[i] + other[j] for i in (0, 1) for j in (0, 1)]
    assert np.log(weights / base) == pytest.approx(expected, abs=2e-3)


def test_dispersion_is_the_excess_over_noise_less_its_standard_error() -> None:
    """200 cells of m = 10, y = 20 and sigma^2 = 20: (100 - 20) / 10 = 8, less
    sqrt(2 / 200) (8 * 10 + 20) / 10 = 1."""
    m, y = np.full(200, 10.0), np.full(200, 20.0)
    assert dispersion(m, y, 20.0) == pytest.approx(7.0, rel=1e-6)
    assert dispersion(m, m + 4, 20.0) == 0.0, "what noise explains is no difference"
    assert dispersion(np.zeros(3), np.full(3, 50.0), 1.0) == 0.0, "there is nothing to weigh"


def test_dispersion_finds_how_counts_stray() -> None:
    """Counts of variance 4 m under noise of variance 25: the estimate is 4 less one standard
    error (0.13), give or take five of them (a false alarm below 1e-6)."""
    rng = np.random.default_rng(3)
    m = np.full(2000, 100.0)
    y = rng.normal(m, math.sqrt(400)) + rng.normal(0, 5, 2000)
    assert 3.2 < dispersion(m, y, 25.0) < 4.6


def test_noise_alone_moves_no_weight_and_strong_evidence_moves_all() -> None:
    base, features = np.full(4, 100.0), cells(whole(0, 1, 2, 3), 4)
    told_nothing = Target(features, np.array([130.0, 80, 95, 110]), 900.0)
    assert reweighted(base, [told_nothing]).tolist() == base.tolist()
    # Far beyond the noise: the prior's own pull is 1 / phi of the difference, here nothing.
    told_much = Target(features, np.array([1000.0, 10, 500, 100]), 1.0)
    assert reweighted(base, [told_much]) == pytest.approx([1000, 10, 500, 100], rel=0.02)


def test_what_is_far_off_is_measured_and_what_is_near_is_not() -> None:
    expected = np.full(100, 50.0)
    far, near = Option(expected, 2000.0, 5.0), Option(expected, 5.0, 5.0)
    assert chosen([near, far, near], power=0.5, most=9) == (1,)
    assert set(chosen([near, far, far], power=0.5, most=9)) == {1, 2}
    assert chosen([near, near], power=0.5, most=9), "the budget is used in any case"
    assert len(chosen([far, far, far], power=0.5, most=2)) == 2


def test_gain_is_all_of_the_distance_without_noise_and_none_under_much() -> None:
    option = Option(np.full(100, 50.0), 1000.0, 1.0)
    assert option.gain(1e-6) == pytest.approx(1000.0, rel=1e-3)
    assert option.gain(1e6) == pytest.approx(0.0, abs=1e-3)
    # The spread is 1000 / (sqrt(2 / pi) 100); noise as large leaves 1 / sqrt(2) of the distance.
    spread = 1000 / (math.sqrt(2 / math.pi) * 100)
    assert option.gain(spread) == pytest.approx(1000 * (1 - 1 / math.sqrt(2)))


def test_mutual_information_of_equal_and_of_unrelated_columns() -> None:
    one, other = np.repeat([0, 1], 500), np.tile([0, 1], 500)
    assert mutual_information(one, one) == pytest.approx(math.log(2) - 1 / 2000)
    assert mutual_information(one, other) == 0.0


def test_the_hub_tells_most_and_the_rim_is_told_least() -> None:
    rng = np.random.default_rng(5)
    hub = rng.integers(0, 4, 4000)
    codes = {"part": hub // 2, "hub": hub, "other": hub % 2, "alone": rng.integers(0, 2, 4000)}
    axes, _ = choose_axes(digits({"part": 2, "hub": 4, "other": 2, "alone": 2}), None, {})
    assert most_and_least_dependent(axes, codes) == ("hub", "alone")


def test_small_pools_give_up_their_last_columns() -> None:
    codes = {"a": whole(0, 0, 0, 1, 1, 2), "b": whole(0, 0, 1, 0, 1, 0)}
    found = pools(("a", "b"), codes, 6, 2)
    assert found[0] == found[1] != found[2], "(0, 0) has two rows, (0, 1) has one"
    assert found[3] == found[4], "joined by their first column"
    assert len(set(found[[0, 2, 3, 5]].tolist())) == 4
    assert pools((), codes, 6, 2).tolist() == [0] * 6


def test_rows_move_to_values_that_only_the_private_table_has() -> None:
    """1,000 rows of value 0 where the private table has 600 of them and 400 of value 7."""
    entity = np.repeat(np.arange(500), 2)
    rows = one_column(np.zeros(1000, dtype=np.int64), entity)
    values = np.array([600.0, 0, 0, 0, 0, 0, 0, 400, 3, 0])
    answer = OneWay("a", TEN, cells(rows.codes["a"], 10), values, "gaussian", 5.0)
    moved = with_missing_values(rows, np.ones(1000), [answer], generator(1)).codes["a"]
    # Each of 500 pairs goes with chance 0.4: 200 of them, give or take 5 * 11 (below 1e-6).
    assert 145 < (moved == 7).sum() / 2 < 255
    assert set(moved.tolist()) == {0, 7}, "three counts of value 8 are no more than noise"
    assert (moved[::2] == moved[1::2]).all(), "an entity's rows of a value go together"


@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
def test_noise_alone_passes_for_a_value_in_about_one_table_of_eight(noise: Noise) -> None:
    """The least count beyond noise of deviation 1 in any of 100 cells, against the noise's tail."""
    stats = scipy.stats
    law = stats.norm() if noise == "gaussian" else stats.laplace(scale=1 / math.sqrt(2))
    counts = np.arange(0, 6, 0.01)
    answer = OneWay("a", TEN, cells(whole(0), 10), counts, noise, 1.0)
    least = counts[answer.beyond_noise(100)][0]
    assert 100 * law.sf(least) == pytest.approx(1 / 8, rel=0.1)


def test_nothing_moves_where_nothing_is_missing() -> None:
    rows = one_column(whole(0, 1, 2), whole(0, 1, 2))
    answer = OneWay(
        "a", TEN, cells(rows.codes["a"], 10), np.array([9.0, 1, 1, *[2] * 7]), "laplace", 5.0
    )
    moved = with_missing_values(rows, np.ones(3), [answer], generator(1))
    assert moved.codes["a"].tolist() == [0, 1, 2]


def test_mixed_rows_differ_in_one_column_at_most() -> None:
    rng = np.random.default_rng(2)
    codes = {name: rng.integers(0, 50, 300) for name in "abc"}
    rows = PublicRows(codes, np.arange(300), 300)
    made = mixed(rows, ("a", "b"), generator(4)).codes
    differs = np.stack([made[name] != codes[name] for name in "abc"])
    assert differs.sum(axis=0).max() == 1
    assert differs.any(axis=1).tolist() == [True, True, False]


@st.composite
def weighted(draw: st.DrawFn) -> WeightedRows:
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=6))
    rows, lent = sum(sizes), draw(st.integers(0, 5))
    numbers = st.lists(st.integers(0, 2), min_size=rows + lent, max_size=rows + lent)
    amounts = st.lists(st.floats(0.01, 5), min_size=rows + lent, max_size=rows + lent)
    return WeightedRows(
        np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
        np.array(draw(st.lists(st.floats(0.1, 3), min_size=len(sizes), max_size=len(sizes)))),
        np.array(draw(amounts)),
        *(np.array(draw(numbers), dtype=np.int64) for _ in range(3)),
    )


@settings(max_examples=60, deadline=None)
@given(weighted(), st.integers(1, 30), st.integers(1, 5), st.floats(0, 1), st.integers(0, 99))
def test_dealt_rows_are_as_many_as_asked_with_bounded_entities_and_contents_of_their_pool(
    atoms: WeightedRows, rows: int, most: int, smooth: float, seed: int
) -> None:
    entities = max(-(-rows // most), min(rows, 4))
    made = assembled_rows(atoms, entities, rows, most, smooth, generator(seed))
    assert len(made.slots) == len(made.contents) == len(made.entity) == rows
    sizes = np.bincount(made.entity)
    assert sizes.min() >= 1, "numbered without gaps"
    assert sizes.max() <= most
    assert made.slots.max() < atoms.starts[-1], "what is lent has no entity"
    assert (atoms.pool[made.slots] == atoms.pool[made.contents]).all()


def test_what_rounding_takes_in_one_pool_is_given_in_the_next() -> None:
    """200 pools of one slot and two contents, of kinds wanted 0.3 and 0.7 times. Drawn pool by
    pool the first kind would be used 60 times give or take 6.5."""
    pools = 200
    atoms = WeightedRows(
        np.arange(pools + 1),
        np.ones(pools),
        np.repeat([0.3, 0.7], pools),
        np.tile(np.arange(pools), 2),
        np.zeros(2 * pools, dtype=np.int64),
        np.repeat([0, 1], pools),
    )
    for seed in range(20):
        made = assembled_rows(atoms, pools, pools, 1, 1.0, generator(seed))
        assert abs(int((atoms.alike[made.contents] == 0).sum()) - 60) <= 2


def test_too_many_rows_are_refused() -> None:
    atoms = WeightedRows(whole(0, 1), np.ones(1), np.ones(1), whole(0), whole(0), whole(0))
    with pytest.raises(ValueError, match="room"):
        assembled_rows(atoms, 2, 5, 2, 0.0, generator(0))


def test_contents_are_used_as_often_as_they_are_wanted() -> None:
    """One pool, wanted 3 : 1 : 2 : 0; without redrawing the first uses are cut to that."""
    atoms = WeightedRows(
        whole(0, 1, 2, 3, 4),
        np.ones(4),
        np.array([3.0, 1.0, 2.0, 0.0]),
        whole(0, 0, 0, 0),
        whole(0, 1, 2, 3),
        whole(0, 1, 2, 3),
    )
    even = WeightedRows(
        atoms.starts, atoms.entities, atoms.rows, atoms.pool, whole(0, 0, 0, 0), atoms.alike
    )
    for smooth in (0.0, 0.5):
        made = assembled_rows(even, 400, 600, 200, smooth, generator(3))
        counts = np.bincount(made.contents, minlength=4)
        assert counts == pytest.approx([300, 100, 200, 0], abs=1)


def test_half_of_the_uses_of_two_keep_their_content_and_the_others_come_from_other_places() -> None:
    atoms = WeightedRows(
        whole(0, 2, 4),
        np.ones(2),
        np.ones(4),
        whole(0, 0, 0, 0),
        whole(0, 0, 1, 1),
        whole(0, 0, 0, 0),
    )
    made = assembled_rows(atoms, 4, 8, 2, 0.5, generator(6))
    kept = made.slots == made.contents
    assert kept.sum() == 4
    assert (atoms.place[made.slots[~kept]] != atoms.place[made.contents[~kept]]).all()
    assert np.bincount(made.contents).tolist() == [2, 2, 2, 2]

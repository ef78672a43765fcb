from __future__ import annotations

import math
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.engine.inference.elimination import predicted_cells
from app.engine.synthesizers.swift.portfolio import Noise, Option, choose, expected_noise, shared

GAUSSIAN = Noise("gaussian", 10.0)
LAPLACE = Noise("laplace", 10.0)


def option(
    name: str, gain: float, cells: tuple[int, int] = (2, 2), weight: float = 1.0, rows: float = 1e6
) -> Option:
    """A pair of columns, each with even counts."""
    first, second = (np.full(size, rows / size) for size in cells)
    return Option((name[0], name[1]), gain, first, second, weight)


def sizes(*options: Option) -> dict[str, int]:
    shape: dict[str, int] = {}
    for each in options:
        shape |= dict(zip(each.pair, (each.first.size, each.second.size), strict=True))
    return shape


def test_shares_under_gaussian_noise_go_by_the_cells_to_the_power_of_three_tenths() -> None:
    small, large = option("ab", 1, (2, 2)), option("cd", 1, (16, 8))
    chosen = shared([small, large], GAUSSIAN)
    # 4^0.3 and 128^0.3 are 2^0.6 and 2^2.1.
    least = 1 / (1 + 2**1.5)
    assert [each.share for each in chosen] == pytest.approx([least, 1 - least], abs=1e-6)


def test_shares_under_laplace_noise_go_by_the_size_to_the_power_of_a_third() -> None:
    small, large = option("ab", 1, (2, 2)), option("cd", 1, (16, 16))
    chosen = shared([small, large], LAPLACE)
    assert [each.share for each in chosen] == pytest.approx([0.2, 0.8], abs=1e-6)


def test_a_pair_of_weight_two_gets_as_much_as_four_times_the_cells() -> None:
    chosen = shared([option("ab", 1, (2, 2), weight=2), option("cd", 1, (4, 4))], GAUSSIAN)
    assert chosen[0].share == chosen[1].share == 0.5


def test_measured_pairs_have_no_more_cells_together_than_allowed() -> None:
    options = [option("ab", 50_000, (4, 4)), option("cd", 40_000, (4, 4))]
    both = choose(options, sizes(*options), GAUSSIAN, 1000, most_measured=32)
    one = choose(options, sizes(*options), GAUSSIAN, 1000, most_measured=31)
    assert [each.pair for each in both] == [("a", "b"), ("c", "d")]
    assert [each.pair for each in one] == [("a", "b")]


@pytest.mark.parametrize("noise", [GAUSSIAN, LAPLACE])
def test_emphasis_multiplies_the_share(noise: Noise) -> None:
    plain = option("ab", 1)
    chosen = shared([plain, replace(plain, pair=("c", "d"), emphasis=3.0)], noise)
    assert [each.share for each in chosen] == pytest.approx([0.25, 0.75], abs=1e-6)


@pytest.mark.parametrize(("noise", "slack"), [(GAUSSIAN, 0.01), (LAPLACE, 1e-4)])
def test_no_other_shares_make_the_bound_on_the_noise_much_smaller(
    noise: Noise, slack: float
) -> None:
    options = [option("ab", 1, (2, 3)), option("cd", 1, (9, 7), weight=3), option("ef", 1, (5, 4))]

    def bound(shares: np.ndarray) -> float:
        return sum(
            each.weight * math.sqrt(1e6 * each.cells * deviation)
            for each, deviation in zip(options, noise.deviations(shares), strict=True)
        )

    best = bound(np.array([each.share for each in shared(options, noise)]))
    for other in np.random.default_rng(0).dirichlet(np.ones(3), 300):
        assert best <= bound(other) * (1 + slack)


def test_noise_is_the_smaller_of_itself_and_what_the_fit_leaves() -> None:
    # Four cells of 2,500 rows; sqrt(2/pi) sigma is below sqrt(mu sigma) for sigma < 3,927.
    known = option("ab", 1, rows=10_000)
    noise = expected_noise(known, np.array([100.0, 10_000.0]), GAUSSIAN.mean)
    mu = 2.0 ** (round(8 * math.log2(2500)) / 8)
    assert noise == pytest.approx(
        [4 * math.sqrt(2 / math.pi) * 100, 4 * math.sqrt(mu * 10_000)], rel=0.05
    )


def test_cells_that_no_row_is_expected_in_add_no_noise() -> None:
    half = Option(("a", "b"), 1, np.array([100.0, 0.0]), np.array([50.0, 50.0]))
    whole = Option(("a", "b"), 1, np.array([100.0]), np.array([50.0, 50.0]))
    deviations = np.array([1.0, 1000.0])
    assert expected_noise(half, deviations, 0.8) == pytest.approx(
        expected_noise(whole, deviations, 0.8)
    )
    none = Option(("a", "b"), 1, np.zeros(2), np.zeros(2))
    assert expected_noise(none, deviations, 0.8).tolist() == [0, 0]


def test_pairs_are_taken_as_long_as_they_are_worth_their_noise() -> None:
    # Alone, a pair adds 4 cells of 8 rows of noise; two in equal shares add 4 of 11.3 each.
    options = [option("ab", 500), option("cd", 60), option("ef", 40)]
    chosen = choose(options, sizes(*options), GAUSSIAN, 1000)
    # With "ef" as a third, all have 4 cells of 13.8 rows: 55 for a gain of 40.
    assert [each.pair for each in chosen] == [("a", "b"), ("c", "d")]
    assert [each.share for each in chosen] == [0.5, 0.5]


def test_nothing_is_taken_that_noise_would_drown() -> None:
    assert choose([option("ab", 30), option("cd", -5)], {"a": 2, "b": 2}, GAUSSIAN, 1000) == ()
    assert choose([], {"a": 2}, GAUSSIAN, 1000) == ()


def test_weight_makes_a_pair_worth_more() -> None:
    options = [option("ab", 500), option("cd", 400, weight=2)]
    chosen = choose(options, sizes(*options), GAUSSIAN, most_cells=8)
    assert [each.pair for each in chosen] == [("c", "d"), ("a", "b")]


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32), st.integers(20, 2000))
def test_tree_and_pairs_stay_within_their_cells(seed: int, most: int) -> None:
    rng = np.random.default_rng(seed)
    shape = {name: int(rng.integers(2, 12)) for name in "abcdef"}
    options = [
        option(f"{first}{second}", rng.uniform(0, 1e5), (shape[first], shape[second]))
        for first, second in combinations(shape, 2)
    ]
    pairs = [each.pair for each in choose(options, shape, GAUSSIAN, most)]
    if pairs:
        assert predicted_cells(shape, pairs) <= most
    assert sum(shape[first] * shape[second] for first, second in pairs) <= most


def test_the_sum_of_the_chosen_is_that_of_the_best_subset_of_few() -> None:
    rng = np.random.default_rng(4)
    names = ("ab", "cd", "ef", "gh", "ij")
    options = [option(name, rng.uniform(50, 300), (3, int(rng.integers(2, 9)))) for name in names]

    def worth(members: tuple[Option, ...]) -> float:
        shares = np.array([each.share for each in shared(members, GAUSSIAN)])
        return sum(
            each.gain
            - float(expected_noise(each, GAUSSIAN.deviations(np.array([share])), GAUSSIAN.mean)[0])
            for each, share in zip(members, shares, strict=True)
        )

    subsets = [m for size in range(6) for m in combinations(options, size)]
    best = max(worth(members) for members in subsets)
    chosen = {each.pair for each in choose(options, sizes(*options), GAUSSIAN, 10_000)}
    assert worth(tuple(o for o in options if o.pair in chosen)) >= 0.98 * best

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opendp.domains import atom_domain, vector_domain
from opendp.measurements import make_gaussian, make_laplace
from opendp.metrics import l1_distance, l2_distance

from app.engine.privacy.limits import LARGEST_SCALE
from app.engine.privacy.loss import PrivacyLoss
from app.engine.privacy.noise import (
    ScaleTooLarge,
    add_noise,
    count_scale,
    noisy_winners,
    selection_scale,
    standard_deviation,
)
from app.engine.privacy.queries import Noise

ONE = 10**12
amounts = st.integers(10**6, 10**15)
INTEGERS = vector_domain(atom_domain(T="i64"))


def charged(price: float, amount: int) -> bool:
    """Whether the charge covers the price, and is not wastefully above it."""
    units = Fraction(price) * ONE
    return bool(units <= amount <= units * (1 + Fraction(1, 10**9)) + 2)


@settings(max_examples=60, deadline=None)
@given(amounts, st.integers(1, 10**6))
def test_a_gaussian_scale_costs_what_is_charged(amount: int, l2_squared: int) -> None:
    noise, scale = count_scale(PrivacyLoss.zcdp(amount), l2_squared, l2_squared)
    mechanism = make_gaussian(INTEGERS, l2_distance(T=float), scale=scale)
    assert noise == "gaussian"
    assert Fraction(l2_squared) / (2 * Fraction(scale) ** 2) * ONE <= amount
    assert charged(mechanism.map(math.sqrt(l2_squared)), amount)


@settings(max_examples=60, deadline=None)
@given(amounts, st.integers(1, 10**5))
def test_a_laplace_scale_costs_what_is_charged(amount: int, l1: int) -> None:
    noise, scale = count_scale(PrivacyLoss.pure(amount), l1, l1)
    mechanism = make_laplace(INTEGERS, l1_distance(T="i64"), scale=scale)
    assert noise == "laplace"
    assert Fraction(l1) / Fraction(scale) * ONE <= amount
    assert charged(mechanism.map(l1), amount)


@settings(max_examples=60, deadline=None)
@given(amounts, st.integers(1, 2**45))
def test_a_selection_costs_epsilon_squared_over_8_or_epsilon(amount: int, delta: int) -> None:
    gumbel = selection_scale(PrivacyLoss.zcdp(amount), delta, 2**30)
    flip = selection_scale(PrivacyLoss.pure(amount), delta, 2**30)
    assert Fraction(2 * delta) / Fraction(flip) * ONE <= amount
    assert (2 * Fraction(delta) / Fraction(gumbel)) ** 2 / 8 * ONE <= amount
    assert gumbel == pytest.approx(2 * delta / math.sqrt(8 * amount / ONE), rel=1e-9)
    assert flip == pytest.approx(2 * delta / (amount / ONE), rel=1e-9)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.floats(-9, 9), st.floats(-1, 1)), min_size=2, max_size=5),
    st.floats(0.01, 4),
    st.floats(1.01, 50),
)
def test_the_exponential_mechanism_keeps_its_rho(
    scores: list[tuple[float, float]], epsilon: float, alpha: float
) -> None:
    """Renyi divergence at alpha of its law for scores that each move by at most 1."""
    before = np.array([score for score, _ in scores])
    after = before + [move for _, move in scores]
    log_p, log_q = (
        scaled - np.logaddexp.reduce(scaled)
        for scaled in (before * epsilon / 2, after * epsilon / 2)
    )
    divergence = np.logaddexp.reduce(alpha * log_p + (1 - alpha) * log_q) / (alpha - 1)
    assert divergence <= alpha * epsilon**2 / 8 + 1e-9


@pytest.mark.parametrize("loss", [PrivacyLoss.zcdp(0), PrivacyLoss.pure(0)])
def test_no_loss_buys_no_noise(loss: PrivacyLoss) -> None:
    with pytest.raises(ScaleTooLarge):
        count_scale(loss, 1, 1)
    with pytest.raises(ScaleTooLarge):
        selection_scale(loss, 1, 1)


def test_scales_end_at_the_largest() -> None:
    noise, scale = count_scale(PrivacyLoss.pure(ONE), 2**40, 2**80)
    assert LARGEST_SCALE <= scale < LARGEST_SCALE * (1 + 1e-12)
    assert add_noise(np.zeros(3, np.int64), noise, scale).dtype == np.int64
    with pytest.raises(ScaleTooLarge):
        count_scale(PrivacyLoss.pure(ONE), 2**41, 2**82)
    with pytest.raises(ScaleTooLarge):
        count_scale(PrivacyLoss.zcdp(ONE), 2**42, 2**84)
    with pytest.raises(ScaleTooLarge):
        selection_scale(PrivacyLoss.pure(ONE), 2**40, 1)


@pytest.mark.parametrize("scale", [0.05, 0.3, 1.0, 3.0, 7.9, 8.1, 20.0])
def test_standard_deviations_are_those_of_the_discrete_laws(scale: float) -> None:
    support = np.arange(-4000, 4001, dtype=np.float64)
    laws: list[tuple[Noise, Any]] = [
        ("gaussian", np.exp(-(support**2) / (2 * scale**2))),
        ("laplace", np.exp(-np.abs(support) / scale)),
    ]
    for noise, weights in laws:
        variance = float(support**2 @ weights / weights.sum())
        stated = standard_deviation(noise, scale)
        assert stated == pytest.approx(math.sqrt(variance), rel=1e-12)


def test_a_vanishing_scale_has_no_deviation() -> None:
    assert standard_deviation("laplace", 1e-9) == 0.0


def test_sums_saturate_at_64_bits() -> None:
    edges = np.array([2**63 - 1, -(2**63)] * 50, dtype=np.int64)
    noisy = add_noise(edges, "gaussian", 1000.0)
    assert (np.abs(noisy.astype(object) - edges.astype(object)) < 20_000).all()


def test_long_vectors_are_noised_in_every_entry() -> None:
    noisy = add_noise(np.zeros(2**16 + 100, np.int64), "laplace", 50.0)
    assert (noisy[2**16 :] != 0).mean() > 0.8


def test_winners_are_different_candidates_best_first() -> None:
    scores = [0, 5 * 10**9, 2 * 10**9, 10**9]
    assert noisy_winners(scores, "zcdp", 1.0, 4) == (1, 2, 3, 0)
    assert noisy_winners(scores, "pure", 1.0, 4) == (1, 2, 3, 0)


def test_scores_may_reach_62_bits() -> None:
    assert noisy_winners([-(2**62), 2**62, 0], "zcdp", 2.0**40, 1) == (1,)

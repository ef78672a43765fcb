"""Noisy scores: the distances of many candidates, noised jointly.

Statement. Let d be the vector of the candidates' distances (see `distances`), of which one
unit moves entry i by at most D_i. Divide the loss into parts in proportion to (w_i D_i)^2
if it is rho, to w_i D_i if it is epsilon, and give entry i the noise that its own part
pays for. The whole vector then costs at most the loss.
Proof. Adjacent datasets differ by one unit, added or removed, so their vectors differ by some
v with |v_i| <= D_i. The noise of each entry is independent of the others. Discrete Gaussians
of sigma_i cost sum v_i^2 / (2 sigma_i^2) <= sum D_i^2 / (2 sigma_i^2) <= sum rho_i <= rho
(Canonne, Kamath and Steinke 2020), discrete Laplaces of b_i cost
sum |v_i| / b_i <= sum epsilon_i <= epsilon.

This is the joint release of (w_i d_i) with noise of one scale: with S = sqrt(sum (w_i D_i)^2)
sigma_i = S / (w_i sqrt(2 rho)), and in a pure session b_i = sum(w_j D_j) / (w_i epsilon). So
m candidates of one weight, each moved by at most D, have sigma = D sqrt(m) / sqrt(2 rho), or
b = D m / epsilon. Only the noise is weighted: answers are distances in counts.

Weights are rounded to powers of 2^(1/16), by at most 2.2 %: a public rounding, so that a
question needs few different scales.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from app.engine.privacy.loss import PrivacyLoss
from app.engine.privacy.queries import Count
from app.engine.privacy.sensitivity import Sensitivity, sensitivity
from app.engine.privacy.unit_budget import UnitBudget
from app.engine.schema import PrivacyUnit

_POWERS = 16
# The error of a distance that no loss is left for: beyond any noise, but a number on the wire.
_UNMEASURED = 2.0**62


def relative_weights(weights: Sequence[float]) -> tuple[float, ...]:
    """Positive weights as they are used: powers of 2^(1/16), 1 for the heaviest."""
    heaviest = max(weights)
    places = [round(_POWERS * (math.log2(weight) - math.log2(heaviest))) for weight in weights]
    return tuple(2.0 ** (place / _POWERS) for place in places)


def split_loss(
    loss: PrivacyLoss, weights: Sequence[float], sensitivities: Sequence[float]
) -> tuple[PrivacyLoss, ...]:
    """The part of the loss for each distance; together at most the whole."""
    power = 1 if loss.kind == "pure" else 2
    return loss.split(
        [(w * moved) ** power for w, moved in zip(weights, sensitivities, strict=True)]
    )


def joint_norms(weights: Sequence[float], sensitivities: Sequence[float]) -> tuple[float, float]:
    """The L1 and the L2 norm of how far one unit moves the weighted distances."""
    moved = [w * most for w, most in zip(weights, sensitivities, strict=True)]
    return math.fsum(moved), math.sqrt(math.fsum(each**2 for each in moved))


def expected_distance_errors(
    counts: Sequence[Count], weights: Sequence[float], budget: UnitBudget
) -> tuple[float, ...]:
    """Standard errors, in counts, of the scores of such candidates measured together.

    Public facts only, for `check`. Counts name the groupings of all their columns, or a
    function. Where not one unit of loss is left for a part, a number beyond any noise.
    """
    moved = [_sensitivity(count, budget.unit).l1_counts for count in counts]
    parts = split_loss(budget.loss, relative_weights(weights), moved)
    return tuple(_error(most, part) for most, part in zip(moved, parts, strict=True))


def _error(moved: float, loss: PrivacyLoss) -> float:
    if loss.amount <= 0:
        return _UNMEASURED
    if loss.kind == "pure":  # of steps so fine that the discrete Laplace is the continuous one
        return math.sqrt(2) * moved / loss.value
    return moved / math.sqrt(2 * loss.value)


def _sensitivity(count: Count, unit: PrivacyUnit) -> Sensitivity:
    cells = math.prod(count.groupings[name].cells for name in count.columns)
    return sensitivity(count.contribution, unit.max_rows, cells)

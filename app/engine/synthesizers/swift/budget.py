"""How `swift` divides its loss, and how much noise that means, from public facts."""

from __future__ import annotations

from dataclasses import dataclass

from app.engine.privacy.loss import PrivacyLoss
from app.engine.privacy.queries import Contribution
from app.engine.privacy.sensitivity import sensitivity
from app.engine.schema import PrivacyUnit
from app.engine.synthesizers.swift.params import Shares, SwiftParams

_SCORES = 0.05
_GUARDING_SCORES = 0.1
_USUAL_ONE_WAY = 0.25
_USUAL_RHO = 0.01
_POWER = 0.25
_LEAST_ONE_WAY = 0.15
_MOST_ONE_WAY = 0.75


@dataclass(frozen=True, slots=True)
class Losses:
    """Parts of the loss; no step that is not taken is paid for."""

    one_way: PrivacyLoss
    scores: PrivacyLoss
    two_way: PrivacyLoss

    @classmethod
    def of(
        cls,
        loss: PrivacyLoss,
        params: SwiftParams,
        contribution: Contribution,
        unit: PrivacyUnit,
        columns: int,
        is_public: bool,
    ) -> Losses:
        """`is_public`: whether there are public rows, whose pairs are scored even if there are two
        columns."""
        shares = params.shares or usual_shares(loss, contribution, unit)
        is_scoring = columns > (1 if is_public else 2)
        parts = loss.split(
            (
                shares.one_way,
                shares.scores if is_scoring else 0.0,
                shares.two_way if columns > 1 else 0.0,
            )
        )
        return cls(*parts)


def usual_shares(
    loss: PrivacyLoss, contribution: Contribution, unit: PrivacyUnit, is_public: bool = False
) -> Shares:
    """More for the columns where pairs would drown in noise, less where they are nearly exact.

    A quarter at epsilon 1 on a row unit (rho 0.01), and about 0.7 at 0.1, did best on the tables
    of the bench. What counts is how much noise the loss means for the unit. Scores that also
    guard against drift of a public table get more.
    """
    moved = sensitivity(contribution, unit.max_rows, 2**62)
    if loss.kind == "pure":
        rho = loss.value**2 / (2 * moved.l1_counts**2)
    else:
        rho = loss.value / moved.l2_counts**2
    share = _USUAL_ONE_WAY * (max(rho, 1e-30) / _USUAL_RHO) ** -_POWER
    one_way = min(max(share, _LEAST_ONE_WAY), _MOST_ONE_WAY)
    scores = _GUARDING_SCORES if is_public else _SCORES
    return Shares(one_way=one_way, scores=scores, two_way=1 - scores - one_way)

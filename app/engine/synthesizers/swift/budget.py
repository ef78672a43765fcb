"""How `swift` divides its loss.

What the columns need depends on how many rows there are: noise that a million rows never feel
drowns a thousand. So a small part of the loss buys their number first, where nothing tells it
yet; all else about the division is public.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from app.engine.privacy.loss import PrivacyLoss
from app.engine.privacy.queries import Count
from app.engine.schema import PrivacyUnit
from app.engine.synthesizers.base import Session
from app.engine.synthesizers.opening import Start, opening_errors
from app.engine.synthesizers.size import SizeEstimate
from app.engine.synthesizers.swift.params import Shares, SwiftParams

_SCORES = 0.05
_GUARDING_SCORES = 0.1
_EXPECTED_ONE_WAY = 0.25
_LEAST_ONE_WAY = 0.15
_MOST_ONE_WAY = 0.75
_MORE_FOR_NOISE = 1.25

_ROWS = 0.005
_ROWS_OF_PURE = 0.02
"""Of the loss, for the number of rows: pure noise is linear in the loss."""


@dataclass(frozen=True, slots=True)
class Losses:
    """Parts of the loss; no step that is not taken is paid for."""

    one_way: PrivacyLoss
    scores: PrivacyLoss
    two_way: PrivacyLoss

    @classmethod
    def of(cls, loss: PrivacyLoss, shares: Shares, columns: int, is_public: bool) -> Losses:
        """`is_public`: whether there are public rows, whose pairs are scored even if there are two
        columns."""
        is_scoring = columns > (1 if is_public else 2)
        parts = loss.split(
            (
                shares.one_way,
                shares.scores if is_scoring else 0.0,
                shares.two_way if columns > 1 else 0.0,
            )
        )
        return cls(*parts)


def with_rows(session: Session, begun: Start, params: SwiftParams) -> Start:
    """The start, with an estimate of the rows where shares follow from it.

    Entities tell it already; where none were bought, a unit has one row.
    """
    is_needed = params.shares is None and len(begun.axes.names) > 1
    if not is_needed or begun.known is not None:
        return begun
    part = rows_loss(begun.loss)
    (counted,) = session.count((Count(()),), part)
    rows, variance = float(counted.values), counted.variance
    known = SizeEstimate(rows, variance, rows, variance)
    return replace(begun, loss=begun.loss - part, counted=known)


def rows_loss(loss: PrivacyLoss) -> PrivacyLoss:
    """What of a loss buys the number of rows."""
    share = _ROWS if loss.kind == "zcdp" else _ROWS_OF_PURE
    return loss.split((share, 1 - share))[0]


def usual_shares(begun: Start, unit: PrivacyUnit, is_public: bool = False) -> Shares:
    """More for the columns the less can be told of them with the rows that `begun` knows.

    Noise of standard deviation sigma in each of c cells makes up c sigma of the rows, but no more
    than all. The mean of that part over the columns, were a quarter of the loss for them, decides;
    with the ends it was fitted to tables of the bench. Scores that also guard against drift of a
    public table get more.
    """
    quarter, _ = begun.loss.split((_EXPECTED_ONE_WAY, 1 - _EXPECTED_ONE_WAY))
    errors = opening_errors(begun.axes, begun.contribution, unit, quarter)
    rows = 1.0 if begun.known is None else max(begun.known.rows, 1.0)
    noise = [
        min(cells * error / rows, 1.0)
        for cells, error in zip(begun.axes.shape, errors, strict=False)
    ]
    part = math.fsum(noise) / max(len(noise), 1)
    one_way = round(_LEAST_ONE_WAY + _MORE_FOR_NOISE * part, 3)
    return _shares(min(one_way, _MOST_ONE_WAY), is_public)


def possible_shares(is_public: bool) -> tuple[Shares, ...]:
    """What is expected of a table nobody knows, then the ends of what `usual_shares` gives."""
    return tuple(
        _shares(one_way, is_public)
        for one_way in (_EXPECTED_ONE_WAY, _LEAST_ONE_WAY, _MOST_ONE_WAY)
    )


def _shares(one_way: float, is_public: bool) -> Shares:
    scores = _GUARDING_SCORES if is_public else _SCORES
    return Shares(one_way=one_way, scores=scores, two_way=1 - scores - one_way)

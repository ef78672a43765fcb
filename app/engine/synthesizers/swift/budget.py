"""How `swift` divides its loss.

What the columns need depends on how many rows there are: noise that a million rows never feel
drowns a thousand. So a small part of the loss buys their number first, where nothing tells it
yet; all else about the division is public.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from app.engine.columns.table_size import SizeEstimate
from app.engine.graphical.preparation import PreparedTable, one_way_errors
from app.engine.method.base import Session
from app.engine.privacy.loss import PrivacyLoss
from app.engine.privacy.queries import Count
from app.engine.schema import PrivacyUnit
from app.engine.synthesizers.swift.params import Shares, SwiftParams

_SCORES = 0.05
_GUARDING_SCORES = 0.1
_EXPECTED_ONE_WAY = 0.25
_LEAST_ONE_WAY = 0.15
_MOST_ONE_WAY = 0.75
_EXPECTED_RHO = 0.01
_POWER = 0.25
_OF_DROWNED = 1.6

_ROWS = 0.005
_ROWS_OF_PURE = 0.02
"""Of the loss, for the number of rows: pure noise is linear in the loss."""


_MANY_COLUMNS = range(25, 101)
"""So many are chosen of twice: of fewer a second look told no more, and of more it takes long."""

_MOST_CELLS = 2_000_000
_MOST_CELLS_OF_MANY = 5_000_000
_MANY_FOR_CELLS = range(25, 51)
"""A larger tree tells more of many columns; of more than these it takes too much memory."""

_FIRST = 0.5
_SCORES_AGAIN = 0.33
"""What the first choice gets of the loss of pairs, and the second look of that of scores."""


@dataclass(frozen=True, slots=True)
class Losses:
    """Parts of the loss; no step that is not taken is paid for.

    `scores_again` and `first` are for a first choice of pairs, where there is one; `two_way` is
    for the last.
    """

    one_way: PrivacyLoss
    scores: PrivacyLoss
    two_way: PrivacyLoss
    scores_again: PrivacyLoss | None = None
    first: PrivacyLoss | None = None

    @classmethod
    def of(cls, loss: PrivacyLoss, shares: Shares, columns: int, is_public: bool) -> Losses:
        """`is_public`: whether there are public rows, whose pairs are scored even if there are two
        columns."""
        is_scoring = columns > (1 if is_public else 2)
        one_way, scores, two_way = loss.split(
            (
                shares.one_way,
                shares.scores if is_scoring else 0.0,
                shares.two_way if columns > 1 else 0.0,
            )
        )
        if not looks_twice(columns, is_public):
            return cls(one_way, scores, two_way)
        scores, again = scores.split((1 - _SCORES_AGAIN, _SCORES_AGAIN))
        first, two_way = two_way.split((_FIRST, 1 - _FIRST))
        return cls(one_way, scores, two_way, again, first)

    @property
    def scored(self) -> tuple[PrivacyLoss, ...]:
        """What each question about all pairs is paid."""
        return (self.scores,) if self.scores_again is None else (self.scores, self.scores_again)

    @property
    def counted(self) -> tuple[PrivacyLoss, ...]:
        """What the pairs of each choice are paid."""
        return (self.two_way,) if self.first is None else (self.two_way, self.first)


def looks_twice(columns: int, is_public: bool) -> bool:
    """Whether pairs are chosen twice; public rows tell what a first choice would."""
    return columns in _MANY_COLUMNS and not is_public


@dataclass(frozen=True, slots=True)
class MostCells:
    """Of the junction tree, and of all measured pairs together."""

    tree: int
    measured: int

    @classmethod
    def of(cls, params: SwiftParams, columns: int, is_public: bool) -> MostCells:
        """`is_public`: whether there are public rows."""
        is_wide = columns in _MANY_FOR_CELLS and not is_public
        tree = params.most_cells or (_MOST_CELLS_OF_MANY if is_wide else _MOST_CELLS)
        return cls(tree, min(tree, _MOST_CELLS))


def with_rows(session: Session, prepared: PreparedTable, params: SwiftParams) -> PreparedTable:
    """The start, with an estimate of the rows where shares follow from it.

    Entities tell it already; where none were bought, a unit has one row.
    """
    is_needed = params.shares is None and len(prepared.axes.names) > 1
    if not is_needed or prepared.known is not None:
        return prepared
    part = rows_loss(prepared.loss)
    (counted,) = session.count((Count(()),), part)
    rows, variance = float(counted.values), counted.variance
    known = SizeEstimate(rows, variance, rows, variance)
    return replace(prepared, loss=prepared.loss - part, counted=known)


def rows_loss(loss: PrivacyLoss) -> PrivacyLoss:
    """What of a loss buys the number of rows."""
    share = _ROWS if loss.kind == "zcdp" else _ROWS_OF_PURE
    return loss.split((share, 1 - share))[0]


def usual_shares(prepared: PreparedTable, unit: PrivacyUnit, is_public: bool = False) -> Shares:
    """What the columns get by the guarantee, and more where noise would drown them.

    By the loss it is a quarter at rho 0.01, less where there is more. Noise of standard deviation
    sigma in each of c cells makes up c sigma of all that is counted, but no more than all; 1.6
    times the mean of that part over the columns, were a quarter of the loss for them, is the least
    that they get. Both were fitted to tables of the bench. Scores that also guard against drift of
    a public table get more.
    """
    quarter, _ = prepared.loss.split((_EXPECTED_ONE_WAY, 1 - _EXPECTED_ONE_WAY))
    errors = one_way_errors(prepared.axes, prepared.contribution, unit, quarter)
    counts = max(_counts(prepared), 1.0)
    noise = [
        min(cells * error / counts, 1.0)
        for cells, error in zip(prepared.axes.shape, errors, strict=False)
    ]
    drowned = math.fsum(noise) / max(len(noise), 1)
    one_way = max(_by_guarantee(prepared.loss), _OF_DROWNED * drowned)
    return _shares(round(min(one_way, _MOST_ONE_WAY), 3), is_public)


def _counts(prepared: PreparedTable) -> float:
    """About how much a histogram counts, by what is known of rows and entities.

    Of n rows of an entity about sqrt(n) are taken to be distinct, and their norm to be n^(3/4),
    half-way between all apart and all in one cell.
    """
    known, rule = prepared.known, prepared.contribution
    if known is None:
        return 0.0
    entities = max(known.entities, 1.0)
    rows = max(known.rows / entities, 1.0)
    match rule.rule:
        case "clipped":
            assert rule.norm is not None
            return entities * rows * min(1.0, rule.norm / math.pow(rows, 0.75))
        case "distinct":
            assert rule.limit is not None
            return entities * min(math.sqrt(rows), rule.limit)
        case "one":
            return entities
    return known.rows


def _by_guarantee(loss: PrivacyLoss) -> float:
    """Whatever a unit is: how little is left of its rows is told by the noise."""
    share = _EXPECTED_ONE_WAY * math.pow(max(_rho(loss), 1e-30) / _EXPECTED_RHO, -_POWER)
    return max(share, _LEAST_ONE_WAY)


def _rho(loss: PrivacyLoss) -> float:
    return loss.value**2 / 2 if loss.kind == "pure" else loss.value


def possible_shares(is_public: bool) -> tuple[Shares, ...]:
    """What is expected of a table nobody knows, then the ends of what `usual_shares` gives."""
    return tuple(
        _shares(one_way, is_public)
        for one_way in (_EXPECTED_ONE_WAY, _LEAST_ONE_WAY, _MOST_ONE_WAY)
    )


def _shares(one_way: float, is_public: bool) -> Shares:
    scores = _GUARDING_SCORES if is_public else _SCORES
    return Shares(one_way=one_way, scores=scores, two_way=1 - scores - one_way)

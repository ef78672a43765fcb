"""How much each choice and each measurement costs, and when to spend faster."""

from __future__ import annotations

from dataclasses import dataclass

from app.engine.privacy.loss import PrivacyLoss
from app.engine.synthesizers.aim.tuning import TUNING


@dataclass(frozen=True, slots=True)
class Schedule:
    """Cost of choosing one marginal and of measuring it, in units of one kind of loss.

    Annealing halves the noise of both: in rho that costs four times as much, in epsilon twice.
    """

    select: PrivacyLoss
    measure: PrivacyLoss

    @classmethod
    def start(cls, loss: PrivacyLoss, selection_share: float, columns: int) -> Schedule:
        """As if `loss` had to do for all `expected_winners`."""
        (each, *_) = loss.split([1.0] * expected_winners(columns))
        return cls._divided(each, selection_share)

    @classmethod
    def _divided(cls, each: PrivacyLoss, selection_share: float) -> Schedule:
        select, _ = each.split((selection_share, 1 - selection_share))
        return cls(select, each - select)

    @property
    def cost(self) -> int:
        return self.select.amount + self.measure.amount

    def annealed(self) -> Schedule:
        times = 2 if self.select.kind == "pure" else 4
        return Schedule(_times(self.select, times), _times(self.measure, times))

    def round(self, left: PrivacyLoss, most_winners: int) -> tuple[Schedule, int]:
        """What each of how many winners costs in the next round, if `left` is left.

        What does not do for another round is divided among the last winners, so that the last
        round spends it all.
        """
        affordable = left.amount // self.cost if self.cost else 0
        if affordable > most_winners:
            return self, most_winners
        winners = max(affordable, 1)
        (each, *_) = left.split([1.0] * winners)
        return self._divided(each, self.select.amount / self.cost if self.cost else 0.0), winners


def expected_winners(columns: int) -> int:
    """Three for each column, but no more than 60, or one for each."""
    return min(TUNING.winners_of_column * columns, max(TUNING.enough_winners, columns))


def _times(loss: PrivacyLoss, times: int) -> PrivacyLoss:
    return PrivacyLoss(loss.kind, loss.amount * times)

"""The rounds: choose marginals where the model is furthest off, measure them, fit again."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from app.engine.columns.contribution import expected_distance, expected_error
from app.engine.columns.estimates import ColumnEstimates, in_rows
from app.engine.constraints.structural_zeros import structural_zeros
from app.engine.inference.estimation import fit
from app.engine.inference.measurements import NoisyMarginal
from app.engine.inference.model import GraphicalModel
from app.engine.inference.prior import Factor
from app.engine.method.base import Progress, Session
from app.engine.privacy.loss import PrivacyLoss
from app.engine.privacy.queries import Contribution, Count
from app.engine.synthesizers.aim.candidates import CandidatePool, Noise, Open
from app.engine.synthesizers.aim.schedule import Schedule
from app.engine.synthesizers.aim.workload import Clique

_ROUND_TOLERANCE = 0.1
_SHRINKAGE = 0.7
_SMOOTHNESS = 2.0
_LAST_TOLERANCE = 0.03
_LEAST_SHARE = 0.3
"""Of the junction tree's most cells, from the first round."""


@dataclass
class Rounds:
    """A run after its one-way histograms; `reserve` is what it leaves unspent. `base` takes
    the place of independent columns, where the model starts otherwise."""

    session: Session
    columns: ColumnEstimates
    candidates: CandidatePool
    contribution: Contribution
    rows_per_count: float
    schedule: Schedule
    most_winners: int
    reserve: PrivacyLoss
    base: Sequence[Factor] | None = None
    measured: list[NoisyMarginal] = field(default_factory=list)

    def run(self, progress: Progress) -> GraphicalModel:
        """Spends all but the reserve, and fits once more until it has converged."""
        model = self._fitted(None, _ROUND_TOLERANCE)
        while self.left.amount > 0:
            progress(0.1 + 0.75 * self._spent, "choosing marginals")
            schedule, most = self.schedule.round(self.left, self.most_winners)
            chosen = self._choose(model, schedule, most)
            if not chosen:
                self._measure_again()
                break
            self._measure([each.clique for each in chosen], schedule)
            model = self._fitted(model, _ROUND_TOLERANCE)
            if self._is_still(chosen, model):
                self.schedule = self.schedule.annealed()
        progress(0.87, "fitting the model")
        return self._fitted(model, _LAST_TOLERANCE)

    @property
    def left(self) -> PrivacyLoss:
        left = self.session.remaining - self.reserve
        return PrivacyLoss(left.kind, left.amount)

    @property
    def _spent(self) -> float:
        return 1 - self.left.amount / max(self.session.allowance.amount, 1)

    @property
    def _cliques(self) -> list[Clique]:
        return [marginal.axes for marginal in self.measured]

    def _fitted(self, start: GraphicalModel | None, tolerance: float) -> GraphicalModel:
        return fit(
            self.columns.shape,
            [*self.columns.marginals, *self.measured],
            self.columns.total,
            base=self.base,
            zeros=structural_zeros(
                self.session.schema,
                self.columns.merged.groupings,
                [*(factor.axes for factor in self.base or ()), *self._cliques],
            ),
            start=start,
            shrinkage=_SHRINKAGE,
            ordered=self.columns.ordered,
            smoothness=_SMOOTHNESS,
            tolerance=tolerance,
        )

    def _choose(self, model: GraphicalModel, schedule: Schedule, most: int) -> list[Open]:
        """Winners one after another: each is a selection of its own among those that then are
        open, so that none is paid for and then cannot be used."""
        share = max(self._spent, _LEAST_SHARE)
        cliques = self._cliques
        opened = self.candidates.opened(model, cliques, self._noise(schedule), share)
        chosen: list[Open] = []
        while opened and len(chosen) < most:
            winner = self._winner(opened, schedule.select)
            chosen.append(winner)
            cliques.append(winner.clique)
            opened = self.candidates.still_open(opened, cliques, winner, share)
        return chosen

    def _winner(self, opened: Sequence[Open], loss: PrivacyLoss) -> Open:
        if len(opened) == 1:
            return opened[0]
        return opened[self.session.select([each.candidate for each in opened], loss)[0]]

    def _measure(self, cliques: Sequence[Clique], schedule: Schedule) -> None:
        """One joint release; of all that is left in the last round, or without a choice."""
        asked = PrivacyLoss(schedule.measure.kind, schedule.measure.amount * len(cliques))
        rest = self.left - asked
        is_last = rest.amount < self.schedule.cost or len(self.candidates.cliques) == 1
        self._count(cliques, self.left if is_last else asked)

    def _measure_again(self) -> None:
        """What nothing else can be bought with goes to the columns, in their merged cells."""
        self._count([(name,) for name in self.columns.merged.names], self.left)

    def _count(self, cliques: Sequence[Clique], loss: PrivacyLoss) -> None:
        groupings = self.columns.merged.groupings
        queries = [
            Count(clique, {name: groupings[name] for name in clique}, self.contribution)
            for clique in cliques
        ]
        answers = self.session.count(queries, loss)
        self.measured += [in_rows(answer, self.columns.size) for answer in answers]

    def _noise(self, schedule: Schedule) -> Noise:
        error = expected_error(
            self.contribution, self.session.unit, self.candidates.most_cells, schedule.measure
        )
        return Noise(error * self.rows_per_count, expected_distance(1.0, schedule.measure))

    def _is_still(self, before: Sequence[Open], model: GraphicalModel) -> bool:
        """Whether the measurements moved the model by no more than their noise would."""
        tables = model.each_marginal([each.clique for each in before])
        moved = [
            float(np.abs(table * self.columns.total - each.expected).sum()) / max(each.noise, 1.0)
            for each, table in zip(before, tables, strict=True)
        ]
        return math.fsum(moved) <= len(moved)

"""The rounds: choose marginals where the model is furthest off, measure them, fit again."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from app.engine.columns.contribution import expected_distance, expected_error
from app.engine.graphical.run import FitSettings, MeasuredMarginals, TableRun
from app.engine.inference.measurements import NoisyMarginal
from app.engine.inference.model import GraphicalModel
from app.engine.privacy.loss import PrivacyLoss
from app.engine.privacy.unit_budget import UnitBudget
from app.engine.synthesizers.aim.budget import Schedule
from app.engine.synthesizers.aim.candidates import CandidatePool, Noise, OpenCandidate
from app.engine.synthesizers.aim.tuning import TUNING
from app.engine.synthesizers.aim.workload import Clique

ROUND_FIT = FitSettings(TUNING.shrinkage, TUNING.smoothness, TUNING.round_tolerance)
LAST_FIT = FitSettings(TUNING.shrinkage, TUNING.smoothness, TUNING.tolerance)


@dataclass
class Rounds:
    """A run after its columns are measured. `rows_per_count`: what a count of a marginal stands
    for."""

    run: TableRun
    candidates: CandidatePool
    rows_per_count: float
    schedule: Schedule
    most_winners: int
    measured: list[NoisyMarginal] = field(default_factory=list)

    def measure(self) -> MeasuredMarginals:
        """Spends all that is left for marginals; the last fit starts from the last round's."""
        model = self._fitted(None)
        while self.run.left.amount > 0:
            self.run.progress(0.1 + 0.75 * self._spent, "choosing marginals")
            schedule, most = self.schedule.next_round(self.run.left, self.most_winners)
            chosen = self._choose(model, schedule, most)
            if not chosen:
                self.measured += self.run.measure_columns_again()
                break
            self._measure([each.clique for each in chosen], schedule)
            model = self._fitted(model)
            if self._is_still(chosen, model):
                self.schedule = self.schedule.annealed()
        return MeasuredMarginals(self.measured, LAST_FIT, start=model)

    @property
    def _spent(self) -> float:
        return 1 - self.run.left.amount / max(self.run.session.allowance.amount, 1)

    @property
    def _cliques(self) -> list[Clique]:
        return [marginal.axes for marginal in self.measured]

    def _fitted(self, start: GraphicalModel | None) -> GraphicalModel:
        return self.run.fit(self.measured, ROUND_FIT, start)

    def _choose(self, model: GraphicalModel, schedule: Schedule, most: int) -> list[OpenCandidate]:
        """Winners one after another: each is a selection of its own among those that then are
        open, so that none is paid for and then cannot be used."""
        share = max(self._spent, TUNING.least_tree)
        cliques = self._cliques
        opened = self.candidates.open_candidates(model, cliques, self._noise(schedule), share)
        chosen: list[OpenCandidate] = []
        while opened and len(chosen) < most:
            winner = self._winner(opened, schedule.select)
            chosen.append(winner)
            cliques.append(winner.clique)
            opened = self.candidates.still_open(opened, cliques, winner, share)
        return chosen

    def _winner(self, opened: Sequence[OpenCandidate], loss: PrivacyLoss) -> OpenCandidate:
        if len(opened) == 1:
            return opened[0]
        return opened[self.run.session.select([each.candidate for each in opened], loss)[0]]

    def _measure(self, cliques: Sequence[Clique], schedule: Schedule) -> None:
        """One joint release; of all that is left in the last round, or without a choice."""
        asked = PrivacyLoss(schedule.measure.kind, schedule.measure.amount * len(cliques))
        rest = self.run.left - asked
        is_last = rest.amount < self.schedule.cost or len(self.candidates.cliques) == 1
        self.measured += self.run.measure(cliques, self.run.left if is_last else asked)

    def _noise(self, schedule: Schedule) -> Noise:
        budget = UnitBudget(self.run.session.unit, schedule.measure)
        error = expected_error(self.run.table.contribution, self.candidates.most_cells, budget)
        return Noise(error * self.rows_per_count, expected_distance(1.0, schedule.measure))

    def _is_still(self, before: Sequence[OpenCandidate], model: GraphicalModel) -> bool:
        """Whether the measurements moved the model by no more than their noise would."""
        tables = model.each_marginal([each.clique for each in before])
        moved = [
            float(np.abs(table * self.run.columns.total - each.expected).sum())
            / max(each.noise, 1.0)
            for each, table in zip(before, tables, strict=True)
        ]
        return math.fsum(moved) <= len(moved)

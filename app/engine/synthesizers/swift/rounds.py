"""Pairs chosen, measured and fitted to, once or twice.

*Twice.* Where columns are many, most pairs depend on each other through others, and no tree holds
all that are far from independence. So part of the loss goes to a first choice in a smaller tree,
and the other pairs are scored once more, against the model fitted to that: what it says already is
not measured again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from app.engine.columns.contribution import expected_error
from app.engine.columns.estimates import rows_per_count
from app.engine.graphical.run import FitSettings, TableRun
from app.engine.inference.measurements import NoisyMarginal
from app.engine.prior.public_model import most_pair_cells
from app.engine.privacy.loss import PrivacyLoss
from app.engine.privacy.queries import Candidate, Count
from app.engine.privacy.references import on_grid
from app.engine.privacy.unit_budget import UnitBudget
from app.engine.synthesizers.swift.budget import MostCells, PairBudget
from app.engine.synthesizers.swift.portfolio import Noise, Option, Pair, choose, shared
from app.engine.synthesizers.swift.tuning import TUNING

# Of a cell's noise, in rows: exact counts must not divide by 0.
_LEAST_DEVIATION = 1e-3


@dataclass
class PairRounds:
    """What was chosen of `options` and measured. `most_pair`: the most cells of a pair."""

    run: TableRun
    options: Sequence[Option]
    most_pair: int
    measured: list[NoisyMarginal] = field(default_factory=list)

    def measure(self, most: MostCells, budget: PairBudget) -> None:
        """One choice for all that is left; or one for `first`, what is left scored again, and
        another one."""
        options = self.options
        if budget.first is not None and budget.second_scores is not None:
            pairs = self._chosen(options, budget.first, most, most.tree // TUNING.first_tree)
            if pairs:
                self.measured += self.run.measure(list(pairs), budget.first, list(pairs.values()))
                left = [option for option in options if option.pair not in pairs]
                options = self._scored_again(left, budget.second_scores)
        pairs = self._chosen(options, self.run.left, most, most.tree)
        if pairs:
            self.measured += self.run.measure(list(pairs), self.run.left, list(pairs.values()))
        else:
            self.measured += self.run.measure_columns_again()

    def settings(self, tolerance: float) -> FitSettings:
        return FitSettings(self._shrinkage(), TUNING.smoothness, tolerance)

    @property
    def _gains(self) -> list[float]:
        """Of the pairs that were measured, as they were first scored."""
        gains = {option.pair: option.gain for option in self.options}
        return [gains[each.axes] for each in self.measured if each.axes in gains]

    def _shrinkage(self) -> float:
        """What the fit is pulled by, in the terms of `estimation.fit`.

        If the logarithm of a cell's count over its expectation mu varied by tau^2 from cell to
        cell, the best pull on the cell would be c mu = 1 / tau^2. The mean mu is total / cells in
        rows, the L1 distance of a pair from what is expected about tau times the total: so c is,
        up to a factor near 1, cells / distance^2, the distance as a share of the total. The
        factors were fitted (`tuning`).
        """
        if not self._gains:
            return TUNING.least_shrinkage
        total = self.run.columns.total
        shares = np.clip(np.array(self._gains) / total, TUNING.least_dependence, 1.0)
        cells = sum(each.values.size for each in self.measured) / len(self.measured)
        has_model = self.run.prior is not None and self.run.prior.model is not None
        factor = TUNING.pull_to_public if has_model else TUNING.pull
        pull = factor * cells / float(np.mean(shares**2))
        variances = [
            np.broadcast_to(each.variance, each.values.shape).ravel()
            for each in (*self.run.columns.marginals, *self.measured)
        ]
        deviation = float(np.sqrt(np.concatenate(variances).mean()))
        return max(pull * deviation / total, TUNING.least_shrinkage)

    def _chosen(
        self, options: Sequence[Option], loss: PrivacyLoss, most: MostCells, tree: int
    ) -> dict[Pair, float]:
        """Pairs and their shares of the loss."""
        noise = cell_noise(self.run, self.most_pair, loss)
        if len(self.run.columns.merged.names) > 2:
            chosen = choose(
                options,
                self.run.columns.shape,
                noise,
                tree,
                most_measured=most.measured - sum(each.values.size for each in self.measured),
                cliques=[*self.run.prior_cliques, *(each.axes for each in self.measured)],
            )
        else:
            chosen = shared(options, noise)
        return {each.pair: each.share for each in chosen}

    def _scored_again(self, options: Sequence[Option], loss: PrivacyLoss) -> tuple[Option, ...]:
        """Gains are distances from the model where these can be measured: references are sent cell
        by cell. Other pairs keep theirs, from independence."""
        columns = self.run.columns
        most = most_pair_cells(columns.axes)
        asked = [option for option in options if option.cells <= most]
        if not asked:
            return tuple(options)
        groupings = columns.merged.groupings
        model = self.run.fit(self.measured, self.settings(TUNING.first_tolerance))
        candidates = [
            Candidate(
                Count(option.pair, {name: groupings[name] for name in option.pair}),
                on_grid(shares * columns.total),
            )
            for option, shares in zip(
                asked, model.each_marginal([each.pair for each in asked]), strict=True
            )
        ]
        scored = self.run.session.scores(candidates, loss)
        rest = tuple(option for option in options if option.cells > most)
        return rest + tuple(
            replace(option, gain=float(gain))
            for option, gain in zip(asked, scored.values, strict=True)
        )


def cell_noise(run: TableRun, most_pair: int, loss: PrivacyLoss) -> Noise:
    """The noise of a cell of a pair of at most `most_pair` cells for all of a loss, in rows."""
    one_ways = run.columns.measured
    deviation = expected_error(
        run.table.contribution, most_pair, UnitBudget(run.session.unit, loss)
    )
    rows = np.mean([rows_per_count(answer, one_ways.size) for answer in one_ways.answers])
    law: Literal["laplace", "gaussian"] = "laplace" if loss.kind == "pure" else "gaussian"
    return Noise(law, max(deviation * float(rows), _LEAST_DEVIATION))

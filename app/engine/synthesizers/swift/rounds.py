"""Pairs chosen, counted and fitted to, once or twice.

*Twice.* Where columns are many, most pairs depend on each other through others, and no tree holds
all that are far from independence. So part of the loss buys a first choice in a smaller tree, and
the pairs left are scored once more, against the model fitted to that: what it tells already is
not paid for again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from app.engine.columns.contribution import expected_error
from app.engine.columns.estimates import ColumnEstimates, in_rows, rows_per_count
from app.engine.constraints.structural_zeros import structural_zeros
from app.engine.graphical.preparation import MeasuredTable
from app.engine.inference.estimation import fit
from app.engine.inference.measurements import AxisNames, NoisyMarginal
from app.engine.inference.model import GraphicalModel
from app.engine.method.base import Session
from app.engine.prior.public_model import PublicModel, most_pair_cells
from app.engine.privacy.loss import PrivacyLoss
from app.engine.privacy.queries import Candidate, Contribution, Count, Measurement
from app.engine.privacy.references import on_grid
from app.engine.synthesizers.swift.budget import MostCells
from app.engine.synthesizers.swift.portfolio import Noise, Option, Pair, choose, shared

_PULL = 0.35
_PULL_TO_START = 0.1
_SMOOTHNESS = 1.5
_LEAST_SHRINKAGE = 0.3
"""Weaker pulls leave the estimate as it is, and take several times as long."""

_TOLERANCE = 0.2
"""Tighter fits were no nearer to the truth."""
_FIRST_TOLERANCE = 1.0

_FIRST_PART = 2
"""The tree of a first choice has at most one part in so many of the most cells."""

_LEAST_DEPENDENCE = 0.05
_LEAST_DEVIATION = 1e-3


@dataclass
class Rounds:
    """What was chosen of `options` and counted, from nothing or from a public start.

    `most_pair` is the most cells of a pair.
    """

    session: Session
    opened: MeasuredTable
    contribution: Contribution
    options: Sequence[Option]
    most_pair: int
    prior: PublicModel | None = None
    answers: list[Measurement] = field(default_factory=list)

    @property
    def columns(self) -> ColumnEstimates:
        return self.opened.columns

    @property
    def left(self) -> PrivacyLoss:
        left = self.session.remaining
        return PrivacyLoss(left.kind, left.amount)

    def count_all(
        self, most: MostCells, first: PrivacyLoss | None, scores: PrivacyLoss | None
    ) -> None:
        """One choice for all that is left; or one for `first`, what is left scored for `scores`,
        and another one."""
        options = self.options
        if first is not None and scores is not None:
            pairs = self._chosen(options, first, most, most.tree // _FIRST_PART)
            if pairs:
                self._ask(list(pairs), first, list(pairs.values()))
                left = [option for option in options if option.pair not in pairs]
                options = self._scored_again(left, scores)
        pairs = self._chosen(options, self.left, most, most.tree)
        if pairs:
            self._ask(list(pairs), self.left, list(pairs.values()))
        else:
            self._ask([(name,) for name in self.columns.merged.names], self.left)

    def fitted(self, tolerance: float = _TOLERANCE) -> GraphicalModel:
        columns = self.columns
        marginals = [
            *columns.marginals,
            *(in_rows(answer, columns.size) for answer in self.answers),
        ]
        return fit(
            columns.shape,
            marginals,
            columns.total,
            shrinkage=self._shrinkage(marginals),
            ordered=columns.ordered,
            smoothness=_SMOOTHNESS,
            tolerance=tolerance,
            base=None if self.prior is None else self.prior.factors,
            zeros=structural_zeros(
                self.session.schema,
                columns.merged.groupings,
                [*self._start, *(each.axes for each in marginals)],
            ),
        )

    @property
    def _start(self) -> tuple[AxisNames, ...]:
        return () if self.prior is None else tuple(self.prior.cliques)

    @property
    def _gains(self) -> list[float]:
        """Of the pairs that were counted, as they were first told."""
        told = {option.pair: option.gain for option in self.options}
        return [told[answer.columns] for answer in self.answers if answer.columns in told]

    def _shrinkage(self, marginals: Sequence[NoisyMarginal]) -> float:
        """What the fit is pulled by, in the terms of `estimation.fit`.

        If the logarithm of a cell's count over its expectation mu varied by tau^2 from cell to
        cell, the best pull on the cell would be c mu = 1 / tau^2. The mean mu is total / cells in
        rows, the L1 distance of a pair from what is expected about tau times the total: so c is,
        up to a factor near 1, cells / distance^2, the distance as a share of the total. The
        factors were found on the bench's tables; that of a public start is less, since gains from
        there are lessened by their errors.
        """
        if not self._gains:
            return _LEAST_SHRINKAGE
        total = self.columns.total
        shares = np.clip(np.array(self._gains) / total, _LEAST_DEPENDENCE, 1.0)
        cells = sum(answer.values.size for answer in self.answers) / len(self.answers)
        factor = _PULL if self.prior is None else _PULL_TO_START
        pull = factor * cells / float(np.mean(shares**2))
        variances = [
            np.broadcast_to(each.variance, each.values.shape).ravel() for each in marginals
        ]
        deviation = float(np.sqrt(np.concatenate(variances).mean()))
        return max(pull * deviation / total, _LEAST_SHRINKAGE)

    def _chosen(
        self, options: Sequence[Option], loss: PrivacyLoss, most: MostCells, tree: int
    ) -> dict[Pair, float]:
        """Pairs and their shares of the loss."""
        noise = cell_noise(self.session, self.opened, self.contribution, self.most_pair, loss)
        if len(self.columns.merged.names) > 2:
            chosen = choose(
                options,
                self.columns.shape,
                noise,
                tree,
                most_measured=most.measured - sum(each.values.size for each in self.answers),
                cliques=[*self._start, *(each.columns for each in self.answers)],
            )
        else:
            chosen = shared(options, noise)
        return {each.pair: each.share for each in chosen}

    def _ask(
        self,
        asked: Sequence[AxisNames],
        loss: PrivacyLoss,
        shares: Sequence[float] | None = None,
    ) -> None:
        groupings = self.columns.merged.groupings
        questions = [
            Count(names, {name: groupings[name] for name in names}, self.contribution)
            for names in asked
        ]
        self.answers += self.session.count(questions, loss, shares)

    def _scored_again(self, options: Sequence[Option], loss: PrivacyLoss) -> tuple[Option, ...]:
        """Gains are distances from the model where these can be asked: references are sent cell
        by cell. Other pairs keep theirs, from independence."""
        most = most_pair_cells(self.columns.axes)
        asked = [option for option in options if option.cells <= most]
        if not asked:
            return tuple(options)
        groupings = self.columns.merged.groupings
        model = self.fitted(_FIRST_TOLERANCE)
        candidates = [
            Candidate(
                Count(option.pair, {name: groupings[name] for name in option.pair}),
                on_grid(shares * self.columns.total),
            )
            for option, shares in zip(
                asked, model.each_marginal([each.pair for each in asked]), strict=True
            )
        ]
        scored = self.session.scores(candidates, loss)
        rest = tuple(option for option in options if option.cells > most)
        return rest + tuple(
            replace(option, gain=float(gain))
            for option, gain in zip(asked, scored.values, strict=True)
        )


def cell_noise(
    session: Session,
    opened: MeasuredTable,
    contribution: Contribution,
    most_pair: int,
    loss: PrivacyLoss,
) -> Noise:
    """The noise of a cell of a pair of at most `most_pair` cells for all of a loss, in rows."""
    measured = opened.measured
    deviation = expected_error(contribution, session.unit, most_pair, loss)
    rows = np.mean([rows_per_count(answer, measured.size) for answer in measured.answers])
    law: Literal["laplace", "gaussian"] = "laplace" if loss.kind == "pure" else "gaussian"
    return Noise(law, max(deviation * float(rows), _LEAST_DEVIATION))

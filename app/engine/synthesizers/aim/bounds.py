"""How far the model is from the exact marginals at most, by one last question.

Statement. Let n be the exact histogram of a marginal, N its sum, p the model's shares of the
same cells, M the model's number of rows, and d the noisy distance that `session.scores` gives of
n from the public reference r, M p rounded to a grid. Let z be such that the noise of d is below
-z with a chance of at most 4 %, and w such that |N - M| > w with a chance of at most 1 %. With
95 % confidence the total variation distance between n / N and p is at most

    (d + z + |r - M p| + w) / (2 (M - w)).

Proof. But for 5 % of cases |n - r| <= d + z and |N - M| <= w. Then, in L1 norms,
|n - N p| <= |n - r| + |r - M p| + |M p - N p| <= d + z + |r - M p| + w, and the total variation
distance is |n - N p| / (2 N) with N >= M - w. The model was fitted before the question was
asked, and the noise of d is independent of it, so it does not matter how the model was chosen.

Every bound holds by itself with that confidence; all at once they need not.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from statistics import NormalDist
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from app.engine.columns import one_way
from app.engine.columns.axes import Axes
from app.engine.columns.contribution import expected_errors
from app.engine.columns.table_size import MOST_PULL, SMALLEST_VARIANCE, Size
from app.engine.graphical.table_model import TableModel
from app.engine.inference.model import GraphicalModel
from app.engine.method import ExpectedError, Model, Session
from app.engine.prior.entities.model import PublicReweightedModel
from app.engine.privacy.loss import PrivacyLoss
from app.engine.privacy.queries import SCORE_STEP, Candidate, Contribution, Count, Noise, Scored
from app.engine.privacy.references import on_grid, rounding_of
from app.engine.privacy.unit_budget import UnitBudget
from app.engine.synthesizers.aim.workload import Clique, smallest
from app.engine.table import Table, generator

Floats = NDArray[np.float64]

CONFIDENCE = 0.95
_MISSED_DISTANCE = 0.04
_MISSED_ROWS = 0.01

# Cells of all bounded marginals; the largest are left out.
MOST_BOUNDED_CELLS = 2**25

_CELLS_AT_ONCE = 2**21
_LEAST = math.sqrt(SMALLEST_VARIANCE)


class MarginalSource(Protocol):
    """A model that gives marginals: their shares, in the cells of `axes`."""

    @property
    def axes(self) -> Axes: ...

    @property
    def size(self) -> Size:
        """What is known of the private table's."""
        ...

    def each_marginal(self, asked: Sequence[Clique]) -> Iterator[Floats]: ...


def bounded(axes: Axes, closure: Sequence[Clique]) -> tuple[Clique, ...]:
    """The marginals that are bounded, in the cells of the dictionary or of `bins`; public."""
    shape = dict(zip(axes.names, axes.shape, strict=True))
    return smallest(closure, shape, each=_CELLS_AT_ONCE, in_all=MOST_BOUNDED_CELLS)


def rows_error(axes: Axes, contribution: Contribution, budget: UnitBudget) -> float:
    """w: how far the model's number of rows is from the exact one but for 1 % of cases.

    The noisy rows are a mean of noisy sums weighted by precision. Gaussian noise has tails below
    2 exp(-w^2 / 2 sigma^2); of Laplace noise the fourth moment is at most 6 sigma^4 + sigma^2,
    also of such a mean. Rounding adds a row. On an entity unit the rows are at most max_rows for
    each noisy entity: that can only be too few if the noisy entities are. What is measured of
    entities moves either number by no more than some standard errors.
    """
    unit = budget.unit
    errors = expected_errors(
        one_way.questions(axes, contribution, unit),
        one_way.weights(axes, contribution, budget),
        budget,
    )
    columns, rows = errors[: len(axes.names)], errors[len(axes.names)]
    precision = 1 / max(rows, _LEAST) ** 2
    if contribution.rule == "rows":
        precision += math.fsum(
            1 / (max(error, _LEAST) ** 2 * cells)
            for error, cells in zip(columns, axes.shape, strict=True)
        )
    deviations = [1 / math.sqrt(precision)]
    if unit.kind == "entity":
        deviations.append(unit.max_rows * errors[len(axes.names) + 1])
    missed = _MISSED_ROWS / len(deviations)
    pull = MOST_PULL if unit.repeats else 0.0
    widest = max(_two_sided(each, missed, budget.loss.kind) + pull * each for each in deviations)
    return widest + unit.max_rows


def _two_sided(deviation: float, missed: float, kind: str) -> float:
    if kind == "zcdp":
        return deviation * math.sqrt(2 * math.log(2 / missed))
    return float(((6 * deviation**4 + deviation**2) / missed) ** 0.25)


def score_error(noise: Noise, scale: float) -> float:
    """z: noise of this scale, in counts, is below -z in at most 4 % of cases.

    A discrete Gaussian's tail from k + 1 steps is at most the normal tail from k (its weights are
    below the integral, its norming constant above); the discrete Laplace's from k steps is
    q^k / (1 + q) with q = exp(-1 / b).
    """
    steps = scale / SCORE_STEP
    if noise == "gaussian":
        return (NormalDist().inv_cdf(1 - _MISSED_DISTANCE) * steps + 2) * SCORE_STEP
    q = math.exp(-1 / steps)
    return (steps * math.log(1 / (_MISSED_DISTANCE * (1 + q))) + 1) * SCORE_STEP


@dataclass(frozen=True, slots=True)
class _Asked:
    """A marginal of the model in own cells: its reference, and what rounding it changed."""

    clique: Clique
    candidate: Candidate
    rounding: float


def measured_bounds(
    session: Session, model: MarginalSource, cliques: Sequence[Clique], rows_error: float
) -> tuple[ExpectedError, ...]:
    """Bounds of the model's errors on the cliques, for all that is left of the allowance.

    Large references are sent in several questions, whose losses are in proportion to the number
    of marginals, so that all have the noise of one question.
    """
    parts = _parts(model.axes, cliques)
    found: list[ExpectedError] = []
    for number, part in enumerate(parts):
        left = PrivacyLoss(session.remaining.kind, session.remaining.amount)
        loss, *_ = left.split([float(len(each)) for each in parts[number:]])
        asked = _asked(model, part)
        scored = session.scores([each.candidate for each in asked], loss)
        found += _errors(asked, scored, float(max(model.size.rows, 1)), rows_error)
    return tuple(found)


def _parts(axes: Axes, cliques: Sequence[Clique]) -> list[list[Clique]]:
    shape = dict(zip(axes.names, axes.shape, strict=True))
    parts: list[list[Clique]] = [[]]
    cells = 0
    for clique in cliques:
        size = prod(shape[name] for name in clique)
        if parts[-1] and cells + size > _CELLS_AT_ONCE:
            parts.append([])
            cells = 0
        parts[-1].append(clique)
        cells += size
    return parts


def _asked(model: MarginalSource, cliques: Sequence[Clique]) -> list[_Asked]:
    rows = float(max(model.size.rows, 1))
    groupings = model.axes.groupings
    asked = []
    for clique, expected in zip(cliques, model.each_marginal(cliques), strict=True):
        expected *= rows
        reference = on_grid(expected)
        count = Count(clique, {name: groupings[name] for name in clique})
        rounding = rounding_of(reference, expected)
        asked.append(_Asked(clique, Candidate(count, reference), rounding))
    return asked


def _errors(
    asked: Sequence[_Asked], scored: Scored, rows: float, rows_error: float
) -> list[ExpectedError]:
    fewest = rows - rows_error
    return [
        ExpectedError(
            each.clique,
            min(
                (max(value, 0.0) + score_error(scored.noise, scale) + each.rounding + rows_error)
                / (2 * fewest),
                1.0,
            )
            if fewest > 0
            else 1.0,
            CONFIDENCE,
        )
        for each, value, scale in zip(
            asked, scored.values.tolist(), scored.scale.tolist(), strict=True
        )
    ]


# A sample of more rows would hold each cell in memory for no truer bound.
_MOST_DRAWN = 100_000


@dataclass(frozen=True)
class BoundedModel(Model):
    """The bounds are stated once, with the release; a stored model is the table model alone."""

    table: TableModel | PublicReweightedModel
    errors: tuple[ExpectedError, ...]

    @property
    def graph(self) -> GraphicalModel:
        """Of a model of rows."""
        assert isinstance(self.table, TableModel)
        return self.table.graph

    @property
    def noisy_rows(self) -> int:
        return self.table.noisy_rows

    def sample(self, rows: int | None, rng: np.random.Generator) -> Table:
        return self.table.sample(rows, rng)

    def dump(self) -> bytes:
        return self.table.dump()

    def expected_errors(self) -> tuple[ExpectedError, ...]:
        return self.errors


@dataclass(frozen=True)
class EntityMarginals:
    """The model's marginals are those of one sample of as many rows as it makes unasked, 100,000
    at most: with redrawn contents they have no simple form. `size` is the private table's."""

    model: PublicReweightedModel
    axes: Axes
    size: Size

    @cached_property
    def _cells(self) -> dict[str, NDArray[np.int64]]:
        rows = max(1, min(self.model.noisy_rows, _MOST_DRAWN))
        drawn = self.model.sample(rows, generator(0))
        return {
            name: grouping.cell_of(drawn.codes[name])
            for name, grouping in self.axes.groupings.items()
        }

    def each_marginal(self, asked: Sequence[Clique]) -> Iterator[NDArray[np.float64]]:
        """Shares of the cells of `axes`, one by one; each is the caller's own."""
        for names in asked:
            shape = tuple(self.axes.groupings[name].cells for name in names)
            flat = np.ravel_multi_index([self._cells[name] for name in names], shape)
            counts = np.bincount(flat, minlength=int(np.prod(shape)))
            yield counts.reshape(shape) / len(flat)

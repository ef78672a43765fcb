"""The first step of `independent`, `mst`, `swift` and `aim`: a noisy histogram of each column.

Columns whose cells are cut into sub-bins are counted in these as well. Counts in cells and in
sub-bins have noise of their own: a cell that was the sum of its sub-bins would have that of all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from app.engine.columns.axes import Axes
from app.engine.columns.table_size import (
    Size,
    SizeEstimate,
    pooled,
    pooled_variance,
    pulled,
    size_questions,
    size_weights,
)
from app.engine.columns.tuning import TUNING
from app.engine.inference.projection import onto_simplex
from app.engine.method import Session
from app.engine.privacy.loss import PrivacyLoss
from app.engine.privacy.queries import Contribution, Count, Measurement
from app.engine.privacy.unit_budget import UnitBudget
from app.engine.schema import PrivacyUnit


@dataclass(frozen=True, slots=True)
class OneWayHistograms:
    """One-way measurements in the order of the axes, the size of the table, and the measurements
    of sub-bins in their order."""

    answers: tuple[Measurement, ...]
    size: Size
    sub_bins: tuple[Measurement, ...] = ()

    def shares(self) -> tuple[NDArray[np.float64], ...]:
        """Each column's shares: the measured counts projected onto what could be real."""
        return tuple(projected_shares(answer) for answer in self.answers)


def questions(axes: Axes, contribution: Contribution, unit: PrivacyUnit) -> tuple[Count, ...]:
    columns, sub_bins = (
        tuple(Count((name,), {name: grouping}, contribution) for name, grouping in each.items())
        for each in (axes.groupings, axes.sub_bins)
    )
    return columns + size_questions(unit) + sub_bins


def weights(axes: Axes, contribution: Contribution, budget: UnitBudget) -> tuple[float, ...]:
    """How a loss is divided over `questions`."""
    sizes = size_weights(contribution, budget)
    each = (1 - sum(sizes)) / (len(axes.names) + TUNING.sub_bins_weight * len(axes.sub_bins))
    return (each,) * len(axes.names) + sizes + (TUNING.sub_bins_weight * each,) * len(axes.sub_bins)


def measure_one_ways(
    session: Session,
    axes: Axes,
    contribution: Contribution,
    loss: PrivacyLoss,
    known: SizeEstimate | None = None,
) -> OneWayHistograms:
    """`known` is what else is known of the size."""
    answers = session.count(
        questions(axes, contribution, session.unit),
        loss,
        weights(axes, contribution, UnitBudget(session.unit, loss)),
    )
    counted = len(answers) - len(axes.sub_bins)
    columns, sizes = answers[: len(axes.names)], answers[len(axes.names) : counted]
    rows = _rows(columns, sizes[0], known)
    size = Size.from_answers(session.unit, rows, sizes, known)
    return OneWayHistograms(columns, size, answers[counted:])


def _rows(columns: Sequence[Measurement], rows: Measurement, known: SizeEstimate | None) -> float:
    """The noisy rows; where cells count rows, pooled with each column's sum."""
    estimates = [(float(rows.values), rows.variance)]
    if columns[0].count.contribution.rule == "rows":
        estimates += [
            (float(column.values.sum()), column.variance * column.values.size) for column in columns
        ]
    value, variance = pooled(estimates), pooled_variance([each for _, each in estimates])
    if known is None:
        return value
    return pulled(value, variance, known.rows, known.rows_variance)


def projected_shares(answer: Measurement) -> NDArray[np.float64]:
    """Shares that add up to 1, shape of the measurement; even ones if nothing is left."""
    total = float(answer.values.sum())
    if total <= 0:
        return np.full(answer.shape, 1 / answer.values.size)
    return onto_simplex(answer.values.astype(np.float64), total) / total

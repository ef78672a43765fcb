"""The first step of `independent` and `mst`: a noisy histogram of each column alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from app.engine.inference.projection import onto_simplex
from app.engine.privacy.loss import PrivacyLoss
from app.engine.privacy.queries import Contribution, Count, Measurement
from app.engine.schema import PrivacyUnit
from app.engine.synthesizers.axes import Axes
from app.engine.synthesizers.base import Session
from app.engine.synthesizers.size import Size, pooled, size_questions, size_shares


@dataclass(frozen=True, slots=True)
class OneWays:
    """One-way measurements in the order of the axes, and the size of the table."""

    answers: tuple[Measurement, ...]
    size: Size

    def shares(self) -> tuple[NDArray[np.float64], ...]:
        """Each column's shares: the measured counts projected onto what could be real."""
        return tuple(projected_shares(answer) for answer in self.answers)


def questions(axes: Axes, contribution: Contribution, unit: PrivacyUnit) -> tuple[Count, ...]:
    columns = tuple(
        Count((name,), {name: grouping}, contribution) for name, grouping in axes.groupings.items()
    )
    return columns + size_questions(unit)


def shares(
    axes: Axes, contribution: Contribution, unit: PrivacyUnit, loss: PrivacyLoss
) -> tuple[float, ...]:
    """How a loss is divided over `questions`."""
    sizes = size_shares(unit, contribution, loss)
    each = (1 - sum(sizes)) / len(axes.names)
    return (each,) * len(axes.names) + sizes


def measure_one_ways(
    session: Session, axes: Axes, contribution: Contribution, loss: PrivacyLoss
) -> OneWays:
    answers = session.count(
        questions(axes, contribution, session.unit),
        loss,
        shares(axes, contribution, session.unit, loss),
    )
    columns, sizes = answers[: len(axes.names)], answers[len(axes.names) :]
    return OneWays(columns, Size.from_answers(session.unit, _rows(columns, sizes[0]), sizes))


def _rows(columns: Sequence[Measurement], rows: Measurement) -> float:
    """The noisy rows; where cells count rows, pooled with each column's sum."""
    estimates = [(float(rows.values), rows.variance)]
    if columns[0].count.contribution.rule == "rows":
        estimates += [
            (float(column.values.sum()), column.variance * column.values.size) for column in columns
        ]
    return pooled(estimates)


def projected_shares(answer: Measurement) -> NDArray[np.float64]:
    """Shares that add up to 1, shape of the measurement; even ones if nothing is left."""
    total = float(answer.values.sum())
    if total <= 0:
        return np.full(answer.shape, 1 / answer.values.size)
    return onto_simplex(answer.values.astype(np.float64), total) / total

"""What is known of a distribution before it is fitted: noisy counts and impossible cells."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
AxisNames = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NoisyMarginal:
    """Noisy counts over some axes, one dimension each; `variance` broadcasts over `values`."""

    axes: AxisNames
    values: Floats
    variance: Floats

    def __post_init__(self) -> None:
        if len(set(self.axes)) != len(self.axes) or self.values.ndim != len(self.axes):
            raise ValueError("a marginal has one dimension for each of its distinct axes")
        if not np.isfinite(self.values).all():
            raise ValueError("noisy counts are finite")
        if not (np.isfinite(self.variance).all() and np.greater(self.variance, 0).all()):
            raise ValueError("variances are finite and positive")


@dataclass(frozen=True, slots=True)
class StructuralZeros:
    """Cells over some axes that can hold rows (`allowed`, true) and cells that never do."""

    axes: AxisNames
    allowed: NDArray[np.bool_]

    def __post_init__(self) -> None:
        if len(set(self.axes)) != len(self.axes) or self.allowed.ndim != len(self.axes):
            raise ValueError("a mask has one dimension for each of its distinct axes")
        if self.allowed.dtype != np.bool_ or not self.allowed.any():
            raise ValueError("a mask is boolean and allows a cell")


@dataclass(frozen=True, slots=True)
class Pooled:
    """All that was measured over one set of axes: means weighted by precision, and variances."""

    axes: AxisNames
    values: Floats
    variance: Floats


def table_order(shape: Mapping[str, int]) -> tuple[str, ...]:
    """The axes by growing number of cells, ties in the shape's order.

    All tables of the engine list their axes so: the last axis, which the loops run along, is
    then the longest.
    """
    return tuple(sorted(shape, key=lambda axis: shape[axis]))


def check_axes(shape: Mapping[str, int], axes: AxisNames, cells: tuple[int, ...] | None) -> None:
    """Raises `ValueError` for an axis that is unknown or has another number of cells."""
    unknown = [axis for axis in axes if axis not in shape]
    if unknown:
        raise ValueError(f"no axis of the shape is named {unknown[0]!r}")
    expected = tuple(shape[axis] for axis in axes)
    if cells is not None and cells != expected:
        raise ValueError(f"a table over {axes} has {expected} cells, not {cells}")


Entry = TypeVar("Entry", bound=np.generic)


def into_table_order(
    order: Mapping[str, int], axes: AxisNames, table: NDArray[Entry]
) -> tuple[AxisNames, NDArray[Entry]]:
    """The axes by their rank in `order`, and the table transposed to match (a view)."""
    ranks = sorted(range(len(axes)), key=lambda i: order[axes[i]])
    return tuple(axes[i] for i in ranks), table.transpose(ranks)


def pooled(shape: Mapping[str, int], measured: Sequence[NoisyMarginal]) -> tuple[Pooled, ...]:
    """One entry for each set of axes, in the order first met; flat values in table order."""
    rank = {axis: i for i, axis in enumerate(table_order(shape))}
    precision: dict[AxisNames, Floats] = {}
    weighted: dict[AxisNames, Floats] = {}
    for marginal in measured:
        check_axes(shape, marginal.axes, marginal.values.shape)
        variance = np.broadcast_to(marginal.variance, marginal.values.shape)
        axes, weight = into_table_order(rank, marginal.axes, 1 / variance)
        _, values = into_table_order(rank, marginal.axes, marginal.values)
        size = math.prod(weight.shape)
        precision.setdefault(axes, np.zeros(size))
        weighted.setdefault(axes, np.zeros(size))
        precision[axes] += weight.ravel()
        weighted[axes] += (values * weight).ravel()
    return tuple(
        Pooled(axes, weighted[axes] / weight, 1 / weight) for axes, weight in precision.items()
    )

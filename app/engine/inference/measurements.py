"""The input of a fit: noisy marginals and structural zeros."""

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
            raise ValueError("a marginal needs distinct axes and one dimension for each")
        if not np.isfinite(self.values).all():
            raise ValueError("noisy counts must be finite")
        if not (np.isfinite(self.variance).all() and np.greater(self.variance, 0).all()):
            raise ValueError("variances must be finite and positive")


@dataclass(frozen=True, slots=True)
class StructuralZeros:
    """Cells over some axes that can hold rows (`allowed`, true) and cells that never do."""

    axes: AxisNames
    allowed: NDArray[np.bool_]

    def __post_init__(self) -> None:
        if len(set(self.axes)) != len(self.axes) or self.allowed.ndim != len(self.axes):
            raise ValueError("a mask needs distinct axes and one dimension for each")
        if self.allowed.dtype != np.bool_ or not self.allowed.any():
            raise ValueError("a mask must be boolean and allow at least one cell")


@dataclass(frozen=True, slots=True)
class PooledMarginal:
    """All measurements over one set of axes: precision-weighted means and their variances, flat."""

    axes: AxisNames
    values: Floats
    variance: Floats


def table_order(shape: Mapping[str, int]) -> tuple[str, ...]:
    """The axes by increasing number of cells, ties in the shape's order.

    All tables of inference have their axes in this order. The inner loops run along the last
    axis, which is then the longest.
    """
    return tuple(sorted(shape, key=lambda axis: shape[axis]))


def check_axes(shape: Mapping[str, int], axes: AxisNames, cells: tuple[int, ...] | None) -> None:
    """Raises `ValueError` if an axis is unknown or, with `cells`, has another number of cells."""
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


def pool(shape: Mapping[str, int], measured: Sequence[NoisyMarginal]) -> tuple[PooledMarginal, ...]:
    """The pooled marginal of each set of axes, in the order of first occurrence.

    Values are flat and in table order. Weighting by precision, the inverse of the variance, gives
    the linear unbiased estimate of least variance.
    """
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
        PooledMarginal(axes, weighted[axes] / weight, 1 / weight)
        for axes, weight in precision.items()
    )

"""The prior towards which an estimate shrinks: independent axes, or a base measure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from app.engine.inference.measurements import (
    AxisNames,
    PooledMarginal,
    check_axes,
    into_table_order,
    table_order,
)

Floats = NDArray[np.float64]

# Noisy counts at or below 0 have no logarithm. Half a standard error is a count that they could
# well have, so no cell of an axis gets less.
_LEAST = 0.5


@dataclass(frozen=True, slots=True)
class Factor:
    """A factor of a base measure: logarithms over some axes, one dimension for each.

    A cell that can hold no row has -inf. The base measure is the exponential of the sum of its
    factors, without a normalising constant.
    """

    axes: AxisNames
    logs: Floats

    def __post_init__(self) -> None:
        if len(set(self.axes)) != len(self.axes) or self.logs.ndim != len(self.axes):
            raise ValueError("a factor needs distinct axes and one dimension for each")
        if np.isnan(self.logs).any() or not (self.logs < np.inf).all():
            raise ValueError("logarithms of a factor must be finite or -inf")


def in_table_order(
    shape: Mapping[str, int], factors: Sequence[Factor]
) -> list[tuple[AxisNames, Floats]]:
    """The axes and logarithms of each factor, in table order.

    Raises `ValueError` for axes that the shape lacks, or that have another number of cells there.
    """
    rank = {axis: i for i, axis in enumerate(table_order(shape))}
    ordered = []
    for factor in factors:
        check_axes(shape, factor.axes, factor.logs.shape)
        ordered.append(into_table_order(rank, factor.axes, factor.logs))
    return ordered


def independent_axes(
    shape: Mapping[str, int], targets: Sequence[PooledMarginal]
) -> list[tuple[AxisNames, Floats]]:
    """The log probabilities of each axis; axes in no marginal are uniform and left out.

    The counts of an axis are the precision-weighted means of all marginals that hold it, each
    summed over its other axes.
    """
    known = [_counts(axis, shape, targets) for axis in shape]
    return [
        ((axis,), np.log(counts / counts.sum()))
        for axis, counts in zip(shape, known, strict=True)
        if counts is not None
    ]


def _counts(
    axis: str, shape: Mapping[str, int], targets: Sequence[PooledMarginal]
) -> Floats | None:
    precision, weighted = np.zeros(shape[axis]), np.zeros(shape[axis])
    for target in targets:
        if axis in target.axes:
            sizes = [shape[name] for name in target.axes]
            others = tuple(i for i, name in enumerate(target.axes) if name != axis)
            weight = 1 / target.variance.reshape(sizes).sum(axis=others)
            precision += weight
            weighted += weight * target.values.reshape(sizes).sum(axis=others)
    if not precision.any():
        return None
    counts: Floats = np.maximum(weighted / precision, _LEAST / np.sqrt(precision))
    return counts

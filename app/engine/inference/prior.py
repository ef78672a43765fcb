"""The distribution that an estimate is pulled towards: independent axes, or a base measure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from app.engine.inference.measurements import (
    AxisNames,
    Pooled,
    check_axes,
    into_table_order,
    table_order,
)

Floats = NDArray[np.float64]

# No cell of an axis starts with less than this many standard errors of its count.
_LEAST = 0.5


@dataclass(frozen=True, slots=True)
class Factor:
    """Logarithms over some axes, one dimension each, -inf where no row can be.

    A base measure is the exponential of a sum of factors, norm left out.
    """

    axes: AxisNames
    logs: Floats

    def __post_init__(self) -> None:
        if len(set(self.axes)) != len(self.axes) or self.logs.ndim != len(self.axes):
            raise ValueError("a factor has one dimension for each of its distinct axes")
        if np.isnan(self.logs).any() or not (self.logs < np.inf).all():
            raise ValueError("logarithms of a factor are finite, or -inf")


def in_table_order(
    shape: Mapping[str, int], factors: Sequence[Factor]
) -> list[tuple[AxisNames, Floats]]:
    """Raises `ValueError` for axes that the shape lacks, or has with other cells."""
    rank = {axis: i for i, axis in enumerate(table_order(shape))}
    ordered = []
    for factor in factors:
        check_axes(shape, factor.axes, factor.logs.shape)
        ordered.append(into_table_order(rank, factor.axes, factor.logs))
    return ordered


def independent_axes(
    shape: Mapping[str, int], targets: Sequence[Pooled]
) -> list[tuple[AxisNames, Floats]]:
    """Logarithms of each axis's shares; an axis that no marginal holds is uniform, and left out.

    An axis's counts are taken from every marginal that holds it, summed over the other axes
    and weighted by precision.
    """
    known = [_counts(axis, shape, targets) for axis in shape]
    return [
        ((axis,), np.log(counts / counts.sum()))
        for axis, counts in zip(shape, known, strict=True)
        if counts is not None
    ]


def _counts(axis: str, shape: Mapping[str, int], targets: Sequence[Pooled]) -> Floats | None:
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

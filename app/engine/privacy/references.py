"""Public references of candidates: arrays of counts, brought to a grid of 1/1024 of a count.

What a reference is rounded to is a constant of the question, so nothing here bears on
privacy: a distance from any fixed array of integers moves as `distances` says.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.engine.privacy.queries import GridReference, QuestionRefused
from app.engine.privacy.sensitivity import GRID

LARGEST_REFERENCE = 2.0**40
"""The most counts that a reference may sum to, signs left out."""
_CELLS_AT_ONCE = 2**16
_BYTES_APART = 8
_KINDS = (np.int8, np.int16, np.int32)

Reference = tuple[NDArray[np.float64], ...] | GridReference
Block = tuple[slice, NDArray[np.int64]]


@dataclass(frozen=True, eq=False)
class GridCells:
    """A reference cell by cell."""

    reference: GridReference

    @property
    def total(self) -> float:
        """The counts that it sums to."""
        return math.fsum(float(steps.sum()) for _, steps in self.blocks()) / GRID

    def blocks(self) -> Iterator[Block]:
        """Stretches of cells with their steps."""
        flat = self.reference.steps.reshape(-1)
        places, apart = self.reference.apart.astype(np.int64)
        for first in range(0, len(flat), _CELLS_AT_ONCE):
            part = slice(first, first + _CELLS_AT_ONCE)
            steps = flat[part].astype(np.int64)
            here = slice(*np.searchsorted(places, (part.start, part.stop)))
            steps[places[here] - first] = apart[here]
            yield part, steps


@dataclass(frozen=True, eq=False)
class ProductCells:
    """A reference as an outer product of one vector for each column, in counts."""

    factors: tuple[NDArray[np.float64], ...]

    @property
    def total(self) -> float:
        """The counts that it sums to, before rounding."""
        return math.prod(float(factor.sum()) for factor in self.factors)

    def blocks(self) -> Iterator[Block]:
        """Stretches of cells with their steps; the whole product is never held."""
        last = self.factors[-1]
        head = reduce(np.multiply.outer, self.factors[:-1], np.ones(())).reshape(-1)
        rows = max(_CELLS_AT_ONCE // len(last), 1)
        for first in range(0, len(head), rows):
            steps = np.multiply.outer(head[first : first + rows], last).reshape(-1)
            steps *= GRID
            begin = first * len(last)
            yield slice(begin, begin + len(steps)), np.rint(steps, out=steps).astype(np.int64)


CheckedReference = GridCells | ProductCells


def on_grid(array: Any) -> GridReference:
    """An array of counts rounded to the grid. Raises `QuestionRefused` for what is no such."""
    values = _numbers(array)
    with np.errstate(over="ignore"):
        _check_size(float(np.abs(values).sum()))
    return _narrow(np.rint(values * GRID).astype(np.int64))


def _narrow(steps: NDArray[np.int64]) -> GridReference:
    """The steps in the type that takes the fewest bytes with those apart that do not fit it."""
    sizes = np.abs(steps)
    kinds = (np.int8, np.int16, np.int32)
    beyond = [int(np.count_nonzero(sizes > np.iinfo(kind).max)) for kind in kinds]
    costs = [
        steps.size * np.dtype(kind).itemsize + _BYTES_APART * many
        for kind, many in zip(kinds, beyond, strict=True)
    ]
    kind = kinds[costs.index(min(costs))]
    apart = sizes > np.iinfo(kind).max
    flat = np.flatnonzero(apart)
    narrow: NDArray[np.signedinteger[Any]] = np.where(apart, 0, steps).astype(kind)
    return GridReference(narrow, np.stack([flat, steps.reshape(-1)[flat]]))


def checked_reference(reference: Reference, shape: tuple[int, ...]) -> CheckedReference:
    """The reference of a count of this shape.

    Raises `QuestionRefused` unless it is one array of that shape or one vector for each
    column, finite, and of a total size that integers hold.
    """
    if isinstance(reference, GridReference):
        return _checked_cells(reference, shape)
    factors = tuple(_numbers(factor) for factor in reference)
    shapes = tuple(factor.shape for factor in factors)
    if shapes == (shape,):
        return _checked_cells(on_grid(factors[0]), shape)
    if not shape or shapes != tuple((cells,) for cells in shape):
        raise _misfit()
    total = 1.0
    with np.errstate(over="ignore", invalid="ignore"):
        for factor in factors:
            total *= float(np.abs(factor).sum())
    if not all(np.isfinite(factor).all() for factor in factors):
        total = np.inf
    _check_size(total)
    return ProductCells(factors)


def _checked_cells(reference: GridReference, shape: tuple[int, ...]) -> GridCells:
    if reference.steps.shape != shape:
        raise _misfit()
    checked = GridCells(reference)
    sizes = (float(np.abs(steps, dtype=np.float64).sum()) for _, steps in checked.blocks())
    _check_size(math.fsum(sizes) / GRID)
    return checked


def _numbers(array: Any) -> NDArray[np.float64]:
    values = np.asarray(array)
    if values.dtype.kind not in "fiu":
        raise QuestionRefused("a reference holds numbers")
    return values.astype(np.float64, copy=False)


def _check_size(counts: float) -> None:
    if not counts <= LARGEST_REFERENCE:
        raise QuestionRefused("a reference is finite and sums to at most 2^40 counts")


def _misfit() -> QuestionRefused:
    return QuestionRefused(
        "a reference is one array of the count's shape, or one vector for each column"
    )

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

from app.engine.privacy.queries import GridReference, QuestionRefused, Reference
from app.engine.privacy.sensitivity import GRID

# The most counts that a reference may sum to, signs left out: 2^50 steps, so that the distance
# from a histogram fits 64 bits.
LARGEST_REFERENCE = 2.0**40
_CELLS_AT_ONCE = 2**16
# A cell that stands apart takes about this many bytes, for its place and its steps.
_BYTES_APART = 8
_KINDS = (np.int8, np.int16, np.int32)

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
    values = numbers(array)
    flat = values.reshape(-1)
    with np.errstate(over="ignore"):
        _check_size(math.fsum(float(np.abs(flat[part]).sum()) for part in _parts(flat.size)))

    def steps(part: slice) -> NDArray[np.int64]:
        return np.rint(flat[part] * GRID).astype(np.int64)

    return _narrow(steps, values.shape)


def narrowed_reference(reference: GridReference) -> GridReference:
    """The same reference in few bytes, where its steps are 64-bit integers with none apart."""
    if reference.steps.dtype != np.int64 or reference.apart.size:
        return reference
    flat = reference.steps.reshape(-1)
    return _narrow(lambda part: flat[part], reference.steps.shape)


def counts_of(reference: GridReference) -> NDArray[np.float64]:
    """The counts that it stands for, exactly, in the shape of its steps."""
    counts = np.empty(reference.steps.size)
    for part, steps in GridCells(reference).blocks():
        np.divide(steps, GRID, out=counts[part])
    return counts.reshape(reference.steps.shape)


def rounding_of(reference: GridReference, counts: NDArray[np.float64]) -> float:
    """The distance (L1) between the reference and the counts that it was made of."""
    flat = counts.reshape(-1)
    return math.fsum(
        float(np.abs(flat[part] - steps / GRID).sum())
        for part, steps in GridCells(reference).blocks()
    )


def _narrow(
    steps_of: Callable[[slice], NDArray[np.int64]], shape: tuple[int, ...]
) -> GridReference:
    """The steps in the type that takes the fewest bytes with those apart that do not fit it.

    `steps_of` gives a stretch of the flat steps; it is called twice for each, so that not all
    of them are held in 64 bits.
    """
    cells = math.prod(shape)
    beyond = np.zeros(len(_KINDS), dtype=np.int64)
    for part in _parts(cells):
        sizes = np.abs(steps_of(part))
        beyond += [np.count_nonzero(sizes > np.iinfo(kind).max) for kind in _KINDS]
    costs = [
        cells * np.dtype(kind).itemsize + _BYTES_APART * int(many)
        for kind, many in zip(_KINDS, beyond, strict=True)
    ]
    kind = _KINDS[costs.index(min(costs))]
    narrow: NDArray[np.signedinteger[Any]] = np.empty(cells, dtype=kind)
    apart = [np.zeros((2, 0), dtype=np.int64)]
    for part in _parts(cells):
        steps = steps_of(part)
        is_apart = np.abs(steps) > np.iinfo(kind).max
        narrow[part] = np.where(is_apart, 0, steps)
        apart.append(np.stack([np.flatnonzero(is_apart) + part.start, steps[is_apart]]))
    return GridReference(narrow.reshape(shape), np.concatenate(apart, axis=1))


def _parts(cells: int) -> Iterator[slice]:
    return (
        slice(first, min(first + _CELLS_AT_ONCE, cells))
        for first in range(0, cells, _CELLS_AT_ONCE)
    )


def checked_reference(reference: Reference, shape: tuple[int, ...]) -> CheckedReference:
    """The reference of a count of this shape.

    Raises `QuestionRefused` unless it is one array of that shape or one vector for each
    column, finite, and of a total size that integers hold.
    """
    if isinstance(reference, GridReference):
        return _checked_cells(reference, shape)
    factors = tuple(numbers(factor) for factor in reference)
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


def numbers(array: Any) -> NDArray[np.float64]:
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

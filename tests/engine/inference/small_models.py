"""Small random distributions, noisy marginals of them, and what brute force says of both."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

import numpy as np

from app.engine.inference.measurements import NoisyMarginal

Shape = dict[str, int]


def random_shape(rng: np.random.Generator, *, most_cells: int = 400) -> Shape:
    """Two to six axes of one to five cells, in an order that has nothing to do with size."""
    while True:
        shape = {name: int(rng.integers(1, 6)) for name in "uvwxyz"[: rng.integers(2, 7)]}
        if math.prod(shape.values()) <= most_cells:
            return shape


def random_axes(rng: np.random.Generator, shape: Shape, sets: int) -> list[tuple[str, ...]]:
    """Sets of one to three axes, each set in random order; some may be the same."""
    names = list(shape)
    return [
        tuple(rng.permutation(names)[: rng.integers(1, min(3, len(names)) + 1)].tolist())
        for _ in range(sets)
    ]


def random_joint(rng: np.random.Generator, shape: Shape) -> np.ndarray:
    cells = math.prod(shape.values())
    return rng.dirichlet(np.full(cells, 0.5)).reshape(tuple(shape.values()))


def summed(whole: np.ndarray, shape: Mapping[str, int], axes: Sequence[str]) -> np.ndarray:
    """The marginal of a table over all axes, in the order asked."""
    names = list(shape)
    others = tuple(i for i, name in enumerate(names) if name not in axes)
    kept = [name for name in names if name in axes]
    return whole.sum(axis=others).transpose([kept.index(axis) for axis in axes])


def spread(table: np.ndarray, shape: Mapping[str, int], axes: Sequence[str]) -> np.ndarray:
    """A table over some axes, shaped so that it broadcasts over all of them."""
    names = list(shape)
    ranks = sorted(range(len(axes)), key=lambda i: names.index(axes[i]))
    sizes = [shape[name] if name in axes else 1 for name in names]
    return table.transpose(ranks).reshape(sizes)


def noisy(
    rng: np.random.Generator,
    shape: Shape,
    whole: np.ndarray,
    axes: tuple[str, ...],
    total: float,
    error: float,
) -> NoisyMarginal:
    exact = total * summed(whole, shape, axes)
    return NoisyMarginal(axes, exact + rng.normal(0, error, exact.shape), np.array(error**2))


def every_set(shape: Shape, most: int) -> list[tuple[str, ...]]:
    """All sets of up to `most` axes, in every order."""
    return [axes for size in range(1, most + 1) for axes in itertools.permutations(shape, size)]


def sampled_counts(
    cells: Mapping[str, np.ndarray], shape: Mapping[str, int], axes: Sequence[str]
) -> np.ndarray:
    counts = np.zeros([shape[axis] for axis in axes])
    np.add.at(counts, tuple(cells[axis] for axis in axes), 1)
    return counts

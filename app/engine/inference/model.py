"""Fitted graphical models: a junction tree and each clique's share of each cell."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cache

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from app.engine.inference.answering import Answering
from app.engine.inference.junction_tree import JunctionTree
from app.engine.inference.measurements import AxisNames
from app.engine.inference.prior import Factor
from app.engine.inference.sampling import sample

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class GraphicalModel:
    """A distribution over the axes of a tree, given by consistent shares of its cliques.

    `shares[i]` has one dimension for each axis of `tree.cliques[i]` and adds up to 1. The
    `potentials` by which it was fitted are there for a warm start, flat and in table order.
    `residual` says how well the fit converged (see `estimation.fit`), `evaluations` what it took.
    """

    tree: JunctionTree
    shares: tuple[Floats, ...]
    potentials: Mapping[AxisNames, Floats] = field(default_factory=dict)
    residual: float = 0.0
    evaluations: int = 0

    @property
    def shape(self) -> Mapping[str, int]:
        return self.tree.shape

    def marginal(self, axes: AxisNames) -> Floats:
        """Shares over the axes, in the order asked, within a clique or across cliques."""
        return self.marginals([axes])[0]

    def marginals(self, asked: Sequence[AxisNames]) -> list[Floats]:
        """`marginal` of each; what they share on the way between cliques is computed once."""
        return list(self.each_marginal(asked))

    def each_marginal(self, asked: Iterable[AxisNames]) -> Iterator[Floats]:
        """`marginals` one by one, so that not all are held at once."""
        answering = Answering(self.tree, self.shares)
        for axes in asked:
            with one_thread():
                marginal = answering.marginal(axes)
            yield marginal

    def factors(self) -> tuple[Factor, ...]:
        """The model as a base measure: of each clique the logarithms of its shares given its
        separator, -inf where it has none."""
        return tuple(
            Factor(clique, _conditional(table, clique, separator))
            for table, clique, separator in zip(
                self.shares, self.tree.cliques, self.tree.separators, strict=True
            )
        )

    def sample(
        self, rows: int, rng: np.random.Generator, *, exact: bool = False
    ) -> dict[str, NDArray[np.int64]]:
        """Cells of `rows` rows, int64 for each axis, in random order.

        Counts of cliques follow the shares as closely as whole rows can, and those of other
        pairs of axes far closer than independent rows would. With `exact`, rows are drawn
        independently of each other.
        """
        return sample(self.tree, self.shares, rows, rng, exact=exact)

    def arrays(self) -> dict[str, NDArray[np.int64] | Floats]:
        """What `from_arrays` needs beside the shape: numbers of axes, parents, and shares."""
        order = {axis: i for i, axis in enumerate(self.shape)}
        return {
            "clique_axes": np.array(
                [order[axis] for clique in self.tree.cliques for axis in clique], dtype=np.int64
            ),
            "clique_lengths": np.array([len(c) for c in self.tree.cliques], dtype=np.int64),
            "parents": np.array(self.tree.parents, dtype=np.int64),
            "shares": np.concatenate([table.ravel() for table in self.shares]),
        }

    @classmethod
    def from_arrays(
        cls, shape: Mapping[str, int], arrays: Mapping[str, NDArray[np.generic]]
    ) -> GraphicalModel:
        """Raises `ValueError` for arrays that are no model over this shape. Trusts nothing."""
        tree = _stored_tree(shape, arrays)
        flat = _vector(arrays, "shares", np.float64).astype(np.float64)
        if flat.size != tree.cells or not np.isfinite(flat).all() or (flat < 0).any():
            raise ValueError("the stored shares do not fit their cliques")
        ends = np.cumsum(tree.sizes)[:-1]
        shares = tuple(
            part.reshape([tree.shape[axis] for axis in clique])
            for part, clique in zip(np.split(flat, ends), tree.cliques, strict=True)
        )
        model = cls(tree, shares)
        model._check_consistency()
        return model

    def _check_consistency(self) -> None:
        for number, (table, parent) in enumerate(zip(self.shares, self.tree.parents, strict=True)):
            own = _summed(table, self.tree.cliques[number], self.tree.separators[number])
            expected = np.ones(())
            if number:
                expected = _summed(
                    self.shares[parent], self.tree.cliques[parent], self.tree.separators[number]
                )
            if not np.allclose(own, expected, rtol=1e-6, atol=1e-9):
                raise ValueError("the stored shares of two cliques disagree")


def one_thread() -> AbstractContextManager[object]:
    """Products of tables within are made by one thread: several would change the last bits."""
    limited: AbstractContextManager[object] = _libraries().limit(limits=1, user_api="blas")
    return limited


@cache
def _libraries() -> ThreadpoolController:
    return ThreadpoolController()


def _summed(table: Floats, axes: AxisNames, kept: AxisNames) -> Floats:
    summed: Floats = table.sum(axis=tuple(i for i, axis in enumerate(axes) if axis not in kept))
    return summed


def _conditional(table: Floats, axes: AxisNames, separator: AxisNames) -> Floats:
    others = tuple(i for i, axis in enumerate(axes) if axis not in separator)
    whole = np.broadcast_to(table.sum(axis=others, keepdims=True), table.shape)
    logs = np.full(table.shape, -np.inf)
    np.log(
        np.divide(table, whole, where=whole > 0, out=np.zeros(table.shape)),
        where=table > 0,
        out=logs,
    )
    return logs


def _vector(
    arrays: Mapping[str, NDArray[np.generic]], name: str, dtype: type[np.generic]
) -> NDArray[np.generic]:
    array = arrays.get(name)
    if array is None or array.ndim != 1 or array.dtype != dtype:
        raise ValueError(f"the stored model has no valid `{name}`")
    return array


def _stored_tree(
    shape: Mapping[str, int], arrays: Mapping[str, NDArray[np.generic]]
) -> JunctionTree:
    numbers = _vector(arrays, "clique_axes", np.int64).tolist()
    lengths = _vector(arrays, "clique_lengths", np.int64).tolist()
    parents = _vector(arrays, "parents", np.int64).tolist()
    names = list(shape)
    if any(length < 1 for length in lengths) or sum(lengths) != len(numbers):
        raise ValueError("the stored cliques have impossible lengths")
    if any(not 0 <= number < len(names) for number in numbers):
        raise ValueError("the stored cliques have unknown axes")
    cliques, start = [], 0
    for length in lengths:
        cliques.append(tuple(names[number] for number in numbers[start : start + length]))
        start += length
    return JunctionTree.stored(shape, tuple(cliques), tuple(parents))

"""Fitted graphical models: a junction tree with the marginal probabilities of each clique."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cache

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from app.engine.inference.answering import MarginalQueries
from app.engine.inference.junction_tree import JunctionTree
from app.engine.inference.measurements import AxisNames
from app.engine.inference.prior import Factor
from app.engine.inference.sampling import sample

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class GraphicalModel:
    """A distribution over the axes of a tree, given by consistent marginals of its cliques.

    `probabilities[i]` has one dimension for each axis of `tree.cliques[i]` and adds up to 1.
    `potentials` are those of the fit, flat and in table order; a warm start reuses them.
    `residual` says how well the fit converged (see `estimation.fit`). `evaluations` is the
    number of evaluations of the dual.
    """

    tree: JunctionTree
    probabilities: tuple[Floats, ...]
    potentials: Mapping[AxisNames, Floats] = field(default_factory=dict)
    residual: float = 0.0
    evaluations: int = 0

    @property
    def shape(self) -> Mapping[str, int]:
        return self.tree.shape

    def marginal(self, axes: AxisNames) -> Floats:
        """The probabilities over any axes, one dimension for each, in the given order."""
        return self.marginals([axes])[0]

    def marginals(self, requested: Sequence[AxisNames]) -> list[Floats]:
        """`marginal` of each set of axes; messages that several need are computed once."""
        return list(self.each_marginal(requested))

    def each_marginal(self, requested: Iterable[AxisNames]) -> Iterator[Floats]:
        """`marginals` one by one, so that not all are held at once."""
        queries = MarginalQueries(self.tree, self.probabilities)
        for axes in requested:
            with one_thread():
                marginal = queries.marginal(axes)
            yield marginal

    def factors(self) -> tuple[Factor, ...]:
        """The model as a base measure: for each clique the log probabilities given its separator.

        Cells without probability have -inf.
        """
        return tuple(
            Factor(clique, _conditional(table, clique, separator))
            for table, clique, separator in zip(
                self.probabilities, self.tree.cliques, self.tree.separators, strict=True
            )
        )

    def sample(
        self, rows: int, rng: np.random.Generator, *, exact: bool = False
    ) -> dict[str, NDArray[np.int64]]:
        """Rows drawn from the model: for each axis the cell numbers, int64, shape (rows,).

        Rows are in random order. The counts of a clique follow its probabilities as closely as
        whole rows can, and those of other pairs of axes far closer than independent rows would.
        With `exact`, rows are drawn independently of each other.
        """
        return sample(self.tree, self.probabilities, rows, rng, exact=exact)

    def arrays(self) -> dict[str, NDArray[np.int64] | Floats]:
        """What `from_arrays` needs besides the shape. The names are part of stored models."""
        order = {axis: i for i, axis in enumerate(self.shape)}
        return {
            "clique_axes": np.array(
                [order[axis] for clique in self.tree.cliques for axis in clique], dtype=np.int64
            ),
            "clique_lengths": np.array([len(c) for c in self.tree.cliques], dtype=np.int64),
            "parents": np.array(self.tree.parents, dtype=np.int64),
            "shares": np.concatenate([table.ravel() for table in self.probabilities]),
        }

    @classmethod
    def from_arrays(
        cls, shape: Mapping[str, int], arrays: Mapping[str, NDArray[np.generic]]
    ) -> GraphicalModel:
        """A model from stored arrays, all of which are checked.

        Raises `ValueError` for arrays that are not a model over this shape.
        """
        tree = _stored_tree(shape, arrays)
        flat = _vector(arrays, "shares", np.float64).astype(np.float64)
        if flat.size != tree.cells or not np.isfinite(flat).all() or (flat < 0).any():
            raise ValueError("the stored probabilities do not fit their cliques")
        ends = np.cumsum(tree.sizes)[:-1]
        probabilities = tuple(
            part.reshape([tree.shape[axis] for axis in clique])
            for part, clique in zip(np.split(flat, ends), tree.cliques, strict=True)
        )
        model = cls(tree, probabilities)
        model._check_consistency()
        return model

    def _check_consistency(self) -> None:
        for number, (table, parent) in enumerate(
            zip(self.probabilities, self.tree.parents, strict=True)
        ):
            own = _summed(table, self.tree.cliques[number], self.tree.separators[number])
            expected = np.ones(())
            if number:
                expected = _summed(
                    self.probabilities[parent],
                    self.tree.cliques[parent],
                    self.tree.separators[number],
                )
            # Rounding of a fit is far below these tolerances; a changed file is not.
            if not np.allclose(own, expected, rtol=1e-6, atol=1e-9):
                raise ValueError("the stored probabilities of two cliques disagree")


def one_thread() -> AbstractContextManager[object]:
    """Limits matrix products within to one thread: several threads would change the last bits."""
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

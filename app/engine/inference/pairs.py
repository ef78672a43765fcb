"""Marginals of many pairs of axes of a calibrated junction tree, computed together.

`answering` passes messages for the axes of one marginal. Here one message passes over each edge
in each direction. It holds the probabilities of (axis, separator) for every axis beyond the edge,
stacked along one dimension. So the work grows with the edges of the tree, not with the pairs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from app.engine.inference.answering import given, product
from app.engine.inference.junction_tree import JunctionTree
from app.engine.inference.measurements import AxisNames, table_order
from app.engine.inference.model import GraphicalModel, one_thread

Floats = NDArray[np.float64]
Pair = tuple[str, str]

# Cells of all messages that are in memory at once: 64 MB.
_MOST_IN_MESSAGES = 2**23

# Up to this many cells, 8 MB, the marginals of an axis with all axes of a message are one product.
_MOST_JOINED = 2**20

# The dimension of a message along which many axes are stacked; no column has an empty name.
_STACKED = ""


def pair_marginals(model: GraphicalModel, pairs: Sequence[Pair]) -> list[Floats]:
    """`model.marginals(pairs)`, up to the last bits, for many pairs of different axes."""
    sources: dict[str, list[str]] = {}
    for source, other in pairs:
        sources.setdefault(source, []).append(other)
    found: dict[Pair, Floats] = {}
    with one_thread():
        for batch in _batches(model.tree, list(sources)):
            gathered = _Gathered(model.tree, model.probabilities, batch)
            asked: dict[str, list[str]] = {}
            for source in batch:
                for other in sources[source]:
                    asked.setdefault(other, []).append(source)
            for other, some in asked.items():
                tables = gathered.marginals(some, other)
                found.update(zip(((source, other) for source in some), tables, strict=True))
    return [found[pair] for pair in pairs]


def _batches(tree: JunctionTree, axes: Sequence[str]) -> Iterator[list[str]]:
    """Batches of axes whose messages fit in memory together."""
    separators = sum(math.prod(tree.shape[axis] for axis in each) for each in tree.separators)
    batch: list[str] = []
    cells = 0
    for axis in axes:
        cells += tree.shape[axis]
        if batch and cells * separators > _MOST_IN_MESSAGES:
            yield batch
            batch, cells = [], tree.shape[axis]
        batch.append(axis)
    yield batch


@dataclass(frozen=True)
class _Message:
    """Probabilities of (source, separator); the cells of all sources are stacked along dimension 0.

    `places` gives the slice of each source.
    """

    table: Floats
    separator: AxisNames
    places: Mapping[str, slice]

    @property
    def axes(self) -> AxisNames:
        return (_STACKED, *self.separator)

    def of(self, source: str) -> _Message:
        """The part for one source."""
        place = self.places[source]
        alone = {source: slice(0, place.stop - place.start)}
        return _Message(self.table[place], self.separator, alone)


class _Gathered:
    """All messages for some axes, the sources: one over each edge in each direction."""

    def __init__(
        self, tree: JunctionTree, probabilities: Sequence[Floats], sources: Sequence[str]
    ) -> None:
        self._tree = tree
        self._probabilities = probabilities
        self._sources = sources
        self._rank = {axis: i for i, axis in enumerate(table_order(tree.shape))}
        self._projected: dict[tuple[int, AxisNames], Floats] = {}
        self._messages: dict[tuple[int, int], _Message] = {}
        # Upward first: a downward message needs the messages of all other neighbours.
        for parent, child in reversed(tree.edges):
            self._send(child, parent)
        for parent, child in tree.edges:
            self._send(parent, child)

    def marginals(self, sources: Sequence[str], other: str) -> Iterator[Floats]:
        """The marginal over (source, other) of each source."""
        home = self._tree.home((other,))
        assert home is not None
        arrived = [self._messages[neighbour, home] for neighbour in self._tree.neighbours[home]]
        joined: dict[int, Floats] = {}
        for source in sources:
            if source in self._tree.cliques[home]:
                yield self._local(home, source, (other,)).copy()
                continue
            i = next(i for i, message in enumerate(arrived) if source in message.places)
            place = arrived[i].places[source]
            if len(arrived[i].table) * self._tree.shape[other] > _MOST_JOINED:
                yield self._on(arrived[i].of(source), home, (other,)).copy()
                continue
            if i not in joined:
                joined[i] = self._on(arrived[i], home, (other,))
            yield joined[i][place].copy()

    def _ordered(self, axes: Sequence[str]) -> AxisNames:
        return tuple(sorted(set(axes), key=self._rank.__getitem__))

    def _project(self, clique: int, axes: AxisNames) -> Floats:
        known = self._projected.get((clique, axes))
        if known is None:
            own = self._tree.cliques[clique]
            left_out = tuple(i for i, axis in enumerate(own) if axis not in axes)
            known = np.asarray(self._probabilities[clique].sum(axis=left_out))
            self._projected[clique, axes] = known
        return known

    def _send(self, origin: int, target: int) -> None:
        """Computes the message of all sources on the origin's side that the target lacks."""
        own, theirs = self._tree.cliques[origin], self._tree.cliques[target]
        separator = tuple(axis for axis in own if axis in theirs)
        tables, places, rows = [], {}, 0
        for source in self._sources:
            if source in own and source not in separator:
                tables.append(self._local(origin, source, separator))
                places[source] = slice(rows, rows + len(tables[-1]))
                rows += len(tables[-1])
        for neighbour in self._tree.neighbours[origin]:
            message = None if neighbour == target else self._messages[neighbour, origin]
            if message is not None and message.places:
                tables.append(self._on(message, origin, separator))
                for source, place in message.places.items():
                    places[source] = slice(rows + place.start, rows + place.stop)
                rows += len(tables[-1])
        nothing = np.zeros((0, *(self._tree.shape[axis] for axis in separator)))
        table = np.concatenate([nothing, *tables])
        self._messages[origin, target] = _Message(table, separator, places)

    def _local(self, clique: int, source: str, separator: AxisNames) -> Floats:
        axes = self._ordered((source, *separator))
        return np.moveaxis(self._project(clique, axes), axes.index(source), 0)

    def _on(self, message: _Message, clique: int, wanted: AxisNames) -> Floats:
        """A message multiplied into a clique: probabilities of (its sources, wanted axes there)."""
        between = message.separator
        axes = self._ordered((*between, *wanted))
        conditional = given(message.table, message.axes, self._project(clique, between), between)
        return product(
            conditional, message.axes, self._project(clique, axes), axes, (_STACKED, *wanted)
        )

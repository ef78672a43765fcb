"""Exact marginals of a log-linear model, by one pass up and one down a junction tree.

A clique's table of log potentials is the sum of its factors and of the messages from its
children. Its message to the parent is the log-sum-exp over the axes that the parent lacks
(Shafer and Shenoy 1990). The pass down is the derivative of the log partition in each of these
sums (Darwiche 2003), so a clique's table is exponentiated once, and no number leaves the range
of a float: what is kept of a clique is its distribution given the separator.

The structure is laid out as arrays once; compiled loops walk over it, whatever the structure.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from app.engine.compiled import compiled
from app.engine.inference.junction import JunctionTree, cells_of
from app.engine.inference.measurements import AxisNames, table_order
from app.engine.inference.sums import Addition, additions, row_starts

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


class InfeasibleZerosError(ValueError):
    """Structural zeros that leave no cell of the whole table."""


class Propagation:
    """Reusable buffers for one structure: a tree, the axes of its factors, and fixed logs.

    Not safe for two threads at once. `length` counts the cells of all factors; potentials and
    marginals are flat vectors of that length, factor after factor, each in table order.
    """

    def __init__(
        self,
        tree: JunctionTree,
        factors: Sequence[AxisNames],
        fixed: Sequence[tuple[AxisNames, Floats]] = (),
    ) -> None:
        self.tree = tree
        layout = _Layout(tree, factors, [axes for axes, _ in fixed])
        self.length = layout.starts[len(factors)]
        self.places = {
            axes: slice(layout.starts[i], layout.starts[i + 1]) for i, axes in enumerate(factors)
        }
        self._program = layout.program()
        self._logs = np.zeros(layout.starts[-1])
        self._masses = np.zeros(layout.starts[-1])
        for number, (_, logs) in enumerate(fixed, start=len(factors)):
            self._logs[layout.starts[number] : layout.starts[number + 1]] = logs.ravel()
        self._cliques = [
            slice(layout.starts[number], layout.starts[number + 1]) for number in layout.tables
        ]

    def run(self, potentials: Floats) -> tuple[float, Floats]:
        """The log partition, and the marginals on each factor; a view that the next run fills."""
        self._logs[: self.length] = potentials
        log_partition = float(_propagate(self._logs, self._masses, *self._program))
        if log_partition == -np.inf:
            raise InfeasibleZerosError("the structural zeros leave no cell of the table")
        return log_partition, self._masses[: self.length]

    def shares(self) -> tuple[Floats, ...]:
        """Each clique's share of each cell at the last run, as arrays of their own."""
        return tuple(
            self._masses[place].reshape([self.tree.shape[axis] for axis in clique]).copy()
            for place, clique in zip(self._cliques, self.tree.cliques, strict=True)
        )


class _Layout:
    """Numbers the tables: factors, fixed ones, one empty factor, messages, then sums."""

    def __init__(
        self, tree: JunctionTree, factors: Sequence[AxisNames], fixed: Sequence[AxisNames]
    ) -> None:
        self.tree = tree
        self.order = table_order(tree.shape)
        self.axes: list[AxisNames] = [*factors, *fixed, ()]
        empty = len(self.axes) - 1
        self.messages = len(self.axes)
        self.axes += tree.separators
        self.steps: list[list[Addition]] = []
        self.tables: list[int] = []
        members: list[list[int]] = [[] for _ in tree.cliques]
        for number, axes in enumerate(self.axes[:empty]):
            home = tree.home(axes)
            if home is None:
                raise ValueError(f"no clique holds the axes {axes}")
            members[home].append(number)
        for child, parent in enumerate(tree.parents):
            if child:
                members[parent].append(self.messages + child)
        for clique, numbers in zip(tree.cliques, members, strict=True):
            padded = [*numbers, *[empty] * (len(numbers) < 2)]
            self._add_up(clique, padded if len(padded) > 1 else [empty, empty])
        sizes = [cells_of(tree.shape, axes) for axes in self.axes]
        self.starts = list(accumulate(sizes, initial=0))

    def _add_up(self, clique: AxisNames, numbers: list[int]) -> None:
        if len(set(numbers)) < 2:
            number = len(self.axes)
            steps, made = [Addition(number, numbers[0], numbers[0])], [clique]
        else:
            factors = [(number, self.axes[number]) for number in numbers]
            steps, made = additions(self.tree.shape, self.order, factors, clique, len(self.axes))
        self.axes += made
        self.steps.append(steps)
        self.tables.append(steps[-1].out)

    def program(self) -> tuple[Integers, Integers, Integers, Integers]:
        """What `_propagate` walks over: clique table, step table, row starts, table starts."""
        rows: list[Integers] = []
        filled = 0

        def rows_of(whole: AxisNames, part: AxisNames) -> tuple[int, int]:
            nonlocal filled
            starts, along = row_starts(self.tree.shape, whole, part)
            rows.append(starts)
            filled += starts.size
            return filled - starts.size, int(along)

        steps: list[tuple[int, ...]] = []
        cliques: list[tuple[int, ...]] = []
        for number, (own, table) in enumerate(zip(self.steps, self.tables, strict=True)):
            first_step = len(steps)
            for step in own:
                out = self.axes[step.out]
                at_first, along_first = rows_of(out, self.axes[step.first])
                at_second, along_second = rows_of(out, self.axes[step.second])
                steps.append(
                    (
                        *(self.starts[step.out], self._width(out), self._rows(out)),
                        *(self.starts[step.first], at_first, along_first),
                        *(self.starts[step.second], at_second, along_second),
                        *(self._size(step.first), self._size(step.second)),
                    )
                )
            clique = self.axes[table]
            at, along = rows_of(clique, self.axes[self.messages + number])
            cliques.append(
                (
                    *(first_step, len(steps), self.starts[table], self._width(clique)),
                    *(self._rows(clique), self.starts[self.messages + number]),
                    *(self._size(self.messages + number), at, along),
                )
            )
        return (
            np.array(cliques, dtype=np.int64),
            np.array(steps, dtype=np.int64),
            np.concatenate(rows),
            np.array(self.starts[self.messages], dtype=np.int64).reshape(1),
        )

    def _size(self, number: int) -> int:
        return self.starts[number + 1] - self.starts[number]

    def _width(self, axes: AxisNames) -> int:
        return self.tree.shape[axes[-1]]

    def _rows(self, axes: AxisNames) -> int:
        return cells_of(self.tree.shape, axes[:-1])


@compiled
def _add(
    out: int,
    width: int,
    rows: int,
    a: int,
    at_a: int,
    along_a: int,
    b: int,
    at_b: int,
    along_b: int,
    logs: Floats,
    starts: Integers,
) -> None:
    for row in range(rows):
        o = out + row * width
        i, j = a + starts[at_a + row], b + starts[at_b + row]
        if along_a and along_b:
            for k in range(width):
                logs[o + k] = logs[i + k] + logs[j + k]
        elif along_a:
            shift = logs[j]
            for k in range(width):
                logs[o + k] = logs[i + k] + shift
        elif along_b:
            shift = logs[i]
            for k in range(width):
                logs[o + k] = shift + logs[j + k]
        else:
            shift = logs[i] + logs[j]
            for k in range(width):
                logs[o + k] = shift


@compiled
def _sum_out(
    whole: int,
    width: int,
    rows: int,
    part: int,
    at: int,
    along: int,
    size: int,
    masses: Floats,
    starts: Integers,
) -> None:
    for k in range(size):
        masses[part + k] = 0.0
    for row in range(rows):
        o, i = whole + row * width, part + starts[at + row]
        if along:
            for k in range(width):
                masses[i + k] += masses[o + k]
        else:
            mass = 0.0
            for k in range(width):
                mass += masses[o + k]
            masses[i] += mass


@compiled
def _send(
    table: int,
    width: int,
    rows: int,
    message: int,
    size: int,
    at: int,
    along: int,
    logs: Floats,
    masses: Floats,
    starts: Integers,
) -> None:
    """A clique's table becomes exp(table - top), and its message the log of the sums.

    The sums are kept in the message's place among the masses; there the pass down finds them.
    """
    for k in range(size):
        logs[message + k] = -np.inf
        masses[message + k] = 0.0
    for row in range(rows):
        o, i = table + row * width, message + starts[at + row]
        if along:
            for k in range(width):
                logs[i + k] = max(logs[i + k], logs[o + k])
        else:
            top = logs[i]
            for k in range(width):
                top = max(top, logs[o + k])
            logs[i] = top
    for row in range(rows):
        o, i = table + row * width, message + starts[at + row]
        if along:
            for k in range(width):
                top = logs[i + k]
                weight = np.exp(logs[o + k] - top) if top > -np.inf else 0.0
                logs[o + k] = weight
                masses[i + k] += weight
        else:
            top = logs[i]
            mass = 0.0
            for k in range(width):
                weight = np.exp(logs[o + k] - top) if top > -np.inf else 0.0
                logs[o + k] = weight
                mass += weight
            masses[i] += mass
    for k in range(size):
        logs[message + k] += np.log(masses[message + k]) if masses[message + k] > 0 else -np.inf


@compiled
def _receive(
    table: int,
    width: int,
    rows: int,
    message: int,
    at: int,
    along: int,
    sums: Floats,
    logs: Floats,
    masses: Floats,
    starts: Integers,
) -> None:
    """The clique's shares: its distribution given the separator, times the separator's shares."""
    for row in range(rows):
        o, i = table + row * width, starts[at + row]
        if along:
            for k in range(width):
                mass = sums[i + k]
                factor = masses[message + i + k] / mass if mass > 0 else 0.0
                masses[o + k] = logs[o + k] * factor
        else:
            factor = masses[message + i] / sums[i] if sums[i] > 0 else 0.0
            for k in range(width):
                masses[o + k] = logs[o + k] * factor


@compiled
def _propagate(
    logs: Floats,
    masses: Floats,
    cliques: Integers,
    steps: Integers,
    starts: Integers,
    messages: Integers,
) -> float:
    """Fills `masses` with the shares of every table; the columns of the programs as laid out."""
    first_message = messages[0]
    last = cliques.shape[0] - 1
    end = cliques[last, 5] + cliques[last, 6]
    for number in range(last, -1, -1):
        first_step, end_step, table, width, rows, message, size, at, along = cliques[number]
        for s in range(first_step, end_step):
            out, w, r, a, at_a, along_a, b, at_b, along_b, _, _ = steps[s]
            _add(out, w, r, a, at_a, along_a, b, at_b, along_b, logs, starts)
        _send(table, width, rows, message, size, at, along, logs, masses, starts)
    sums = masses[first_message:end].copy()
    masses[first_message] = 1.0
    for number in range(last + 1):
        first_step, end_step, table, width, rows, message, _, at, along = cliques[number]
        own = sums[message - first_message :]
        _receive(table, width, rows, message, at, along, own, logs, masses, starts)
        for s in range(end_step - 1, first_step - 1, -1):
            out, w, r, a, at_a, along_a, b, at_b, along_b, size_a, size_b = steps[s]
            _sum_out(out, w, r, a, at_a, along_a, size_a, masses, starts)
            _sum_out(out, w, r, b, at_b, along_b, size_b, masses, starts)
    log_partition: float = logs[first_message]
    return log_partition

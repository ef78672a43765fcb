"""Belief propagation: exact marginals of a log-linear model, by two passes over a junction tree.

In the upward pass, a clique's table of log potentials is the sum of its factors and of the
messages from its children. Its message to the parent is the log-sum-exp over the axes that the
parent lacks (Shafer and Shenoy 1990). The downward pass computes the derivative of the log
partition function with respect to each of these sums (Darwiche 2003). So each table is
exponentiated once. Each clique stores its distribution conditional on its separator, so no number
overflows.

The structure is laid out once, as arrays that compiled loops walk over. Two threads work on
separate branches of the tree (`two_threads`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from app.engine.compiled import compiled
from app.engine.inference.exponential import exponentiate
from app.engine.inference.factor_products import Addition, additions, row_starts
from app.engine.inference.junction_tree import JunctionTree, cells_of
from app.engine.inference.measurements import AxisNames, table_order
from app.engine.inference.two_threads import DividedTree, run_both

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


class InfeasibleZerosError(ValueError):
    """Structural zeros that leave no possible cell in the whole table."""


class Propagation:
    """Reusable buffers for one structure: a tree, the axes of its factors, and fixed factors.

    Not safe for two threads at once. `length` is the number of cells of all factors. Potentials
    and marginals are flat vectors, shape (length,): factor after factor, each in table order.
    """

    def __init__(
        self,
        tree: JunctionTree,
        factors: Sequence[AxisNames],
        fixed: Sequence[tuple[AxisNames, Floats]] = (),
    ) -> None:
        self.tree = tree
        self._divided = DividedTree.of(tree)
        layout = _Layout(self._divided.tree, factors, [axes for axes, _ in fixed])
        self.length = layout.starts[len(factors)]
        self.places = {
            axes: slice(layout.starts[i], layout.starts[i + 1]) for i, axes in enumerate(factors)
        }
        self._logs = np.zeros(layout.starts[-1])
        self._masses = np.zeros(layout.starts[-1])
        for number, (_, logs) in enumerate(fixed, start=len(factors)):
            self._logs[layout.starts[number] : layout.starts[number + 1]] = logs.ravel()
        self._tables = [
            slice(layout.starts[number], layout.starts[number + 1])
            for number in (layout.tables[place] for place in self._divided.places)
        ]
        self._root = layout.starts[layout.messages]
        sums = np.empty(layout.starts[layout.messages + len(tree.cliques)] - self._root)
        self._state = (self._logs, self._masses, sums, *layout.program(), self._root)

    def run(self, potentials: Floats) -> tuple[float, Floats]:
        """The log partition function and the marginals of all factors, shape (length,).

        The marginals are a view; the next run overwrites it. Raises `InfeasibleZerosError`.
        """
        self._logs[: self.length] = potentials
        # The trunk needs the messages of all branches: it is last on the way up, first down.
        self._branches(_ascend)
        _ascend(*self._state, self._divided.trunk)
        log_partition = float(self._logs[self._root])
        if log_partition == -np.inf:
            raise InfeasibleZerosError("the structural zeros leave no cell of the table")
        self._masses[self._root] = 1.0
        _descend(*self._state, self._divided.trunk)
        self._branches(_descend)
        return log_partition, self._masses[: self.length]

    def _branches(self, passed: Callable[..., None]) -> None:
        own = partial(passed, *self._state, self._divided.own)
        if self._divided.other.size:
            run_both(own, partial(passed, *self._state, self._divided.other))
        else:
            own()

    def probabilities(self) -> tuple[Floats, ...]:
        """The marginal of each clique at the last run, as new arrays."""
        return tuple(
            self._masses[place].reshape([self.tree.shape[axis] for axis in clique]).copy()
            for place, clique in zip(self._tables, self.tree.cliques, strict=True)
        )


class _Layout:
    """Gives each table a number, in this order: factors, fixed factors, an empty one per clique,
    messages, then sums."""

    def __init__(
        self, tree: JunctionTree, factors: Sequence[AxisNames], fixed: Sequence[AxisNames]
    ) -> None:
        self.tree = tree
        self.order = table_order(tree.shape)
        self.axes: list[AxisNames] = [*factors, *fixed]
        empty = len(self.axes)
        self.axes += [()] * len(tree.cliques)
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
            # Clique 0 is the root: its separator is empty, and its message the log partition.
            if child:
                members[parent].append(self.messages + child)
        # Each addition of the program takes two tables; a clique with fewer is padded with its
        # empty table, of zeros.
        for number, (clique, own) in enumerate(zip(tree.cliques, members, strict=True), empty):
            padded = [*own, *[number] * (len(own) < 2)]
            self._add_up(clique, padded if len(padded) > 1 else [number, number])
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

    def program(self) -> tuple[Integers, Integers, Integers]:
        """The arrays for the passes: an entry per clique, an entry per sum, and row starts."""
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
                        *(self.starts[step.first], at_first, along_first, self._size(step.first)),
                        *(self.starts[step.second], at_second, along_second),
                        self._size(step.second),
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
        )

    def _size(self, number: int) -> int:
        return self.starts[number + 1] - self.starts[number]

    def _width(self, axes: AxisNames) -> int:
        return self.tree.shape[axes[-1]] if axes else 1

    def _rows(self, axes: AxisNames) -> int:
        return cells_of(self.tree.shape, axes[:-1])


@compiled
def _add(
    out: Floats,
    width: int,
    first: Floats,
    first_rows: Integers,
    first_along: int,
    second: Floats,
    second_rows: Integers,
    second_along: int,
) -> None:
    """Fills `out` with the sum of two tables, row by row."""
    for row in range(first_rows.size):
        sums = out[row * width : (row + 1) * width]
        i, j = first_rows[row], second_rows[row]
        if first_along and second_along:
            a, b = first[i : i + width], second[j : j + width]
            for k in range(width):
                sums[k] = a[k] + b[k]
        elif first_along:
            a = first[i : i + width]
            for k in range(width):
                sums[k] = a[k] + second[j]
        elif second_along:
            b = second[j : j + width]
            for k in range(width):
                sums[k] = first[i] + b[k]
        else:
            sums[:] = first[i] + second[j]


@compiled
def _sum_out(whole: Floats, width: int, part: Floats, rows: Integers, along: int) -> None:
    """Fills `part` with the sums of the table over the axes that it lacks."""
    part[:] = 0.0
    for row in range(rows.size):
        masses = whole[row * width : (row + 1) * width]
        if along:
            own = part[rows[row] : rows[row] + width]
            for k in range(width):
                own[k] += masses[k]
        else:
            part[rows[row]] += _total(masses)


@compiled
def _total(values: Floats) -> float:
    """The sum, by four running sums: a processor need not wait for one to continue another."""
    a, b, c, d = 0.0, 0.0, 0.0, 0.0
    whole = values.size - values.size % 4
    for i in range(0, whole, 4):
        a += values[i]
        b += values[i + 1]
        c += values[i + 2]
        d += values[i + 3]
    for i in range(whole, values.size):
        a += values[i]
    return (a + b) + (c + d)


@compiled
def _subtract_tops(table: Floats, width: int, tops: Floats, rows: Integers, along: int) -> None:
    """Fills `tops` with the maxima over the axes that it lacks, and subtracts them."""
    tops[:] = -np.inf
    for row in range(rows.size):
        logs, i = table[row * width : (row + 1) * width], rows[row]
        if along:
            own = tops[i : i + width]
            for k in range(width):
                own[k] = max(own[k], logs[k])
        else:
            top = tops[i]
            for k in range(width):
                top = max(top, logs[k])
            tops[i] = top
    for row in range(rows.size):
        logs, i = table[row * width : (row + 1) * width], rows[row]
        if along:
            own = tops[i : i + width]
            for k in range(width):
                # -inf less -inf would be nan; such cells stay impossible.
                logs[k] = logs[k] - own[k] if own[k] > -np.inf else -np.inf
        elif tops[i] > -np.inf:
            top = tops[i]
            for k in range(width):
                logs[k] -= top


@compiled
def _scale(
    weights: Floats, width: int, probabilities: Floats, factors: Floats, rows: Integers, along: int
) -> None:
    """Fills `probabilities` with the weights times the factor of their separator cell."""
    for row in range(rows.size):
        own = probabilities[row * width : (row + 1) * width]
        given, i = weights[row * width : (row + 1) * width], rows[row]
        if along:
            factor = factors[i : i + width]
            for k in range(width):
                own[k] = given[k] * factor[k]
        else:
            for k in range(width):
                own[k] = given[k] * factors[i]


@compiled
def _ascend(
    logs: Floats,
    # Not used here: the same arguments as `_descend`, so that a thread may run either.
    masses: Floats,  # noqa: ARG001
    sums: Floats,
    cliques: Integers,
    steps: Integers,
    starts: Integers,
    first_message: int,
    numbers: Integers,
) -> None:
    """The upward pass: computes the messages of some cliques, children before parents.

    A message is in logarithms. `sums` keeps exp(message - maximum), for the
    downward pass.
    """
    for number in numbers[::-1]:
        first_step, end_step, table, width, height, message, size, at, along = cliques[number]
        for s in range(first_step, end_step):
            out, w, h, a, at_a, along_a, size_a, b, at_b, along_b, size_b = steps[s]
            _add(
                logs[out : out + w * h],
                w,
                logs[a : a + size_a],
                starts[at_a : at_a + h],
                along_a,
                logs[b : b + size_b],
                starts[at_b : at_b + h],
                along_b,
            )
        own, rows = logs[table : table + width * height], starts[at : at + height]
        up = logs[message : message + size]
        mass = sums[message - first_message : message - first_message + size]
        _subtract_tops(own, width, up, rows, along)
        exponentiate(own)
        _sum_out(own, width, mass, rows, along)
        for k in range(size):
            up[k] = up[k] + np.log(mass[k]) if mass[k] > 0 else -np.inf


@compiled
def _descend(
    logs: Floats,
    masses: Floats,
    sums: Floats,
    cliques: Integers,
    steps: Integers,
    starts: Integers,
    first_message: int,
    numbers: Integers,
) -> None:
    """The downward pass: fills `masses` with the marginals of some cliques, parents first."""
    for number in numbers:
        first_step, end_step, table, width, height, message, size, at, along = cliques[number]
        mass = sums[message - first_message : message - first_message + size]
        down = masses[message : message + size]
        for k in range(size):
            mass[k] = down[k] / mass[k] if mass[k] > 0 else 0.0
        probabilities, rows = masses[table : table + width * height], starts[at : at + height]
        _scale(logs[table : table + width * height], width, probabilities, mass, rows, along)
        for s in range(end_step - 1, first_step - 1, -1):
            out, w, h, a, at_a, along_a, size_a, b, at_b, along_b, size_b = steps[s]
            whole = masses[out : out + w * h]
            _sum_out(whole, w, masses[a : a + size_a], starts[at_a : at_a + h], along_a)
            _sum_out(whole, w, masses[b : b + size_b], starts[at_b : at_b + h], along_b)

"""Impossible cells: what the rules of a dictionary say to a model before it is fitted.

A cell over some columns is impossible if every combination of stored codes in it breaks the
rule. A cell in which only some combinations break it stays possible: its rows are repaired
after sampling.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.engine.grouping import Grouping
from app.engine.inference.elimination import predicted_cells
from app.engine.inference.junction_tree import cells_of
from app.engine.inference.measurements import AxisNames, StructuralZeros
from app.engine.schema import Column, Schema
from app.engine.schema.constraints import (
    AtLeast,
    Condition,
    Constraint,
    Forbidden,
    Implied,
    Lookup,
    Order,
    Sum,
)

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]
Groupings = Mapping[str, Grouping]
# Axes, and the function that finds which of their cells are possible.
_Zeros = tuple[AxisNames, Callable[[Groupings], Mask]]

# Rules over larger tables are left to repair, which costs a fit no time.
MOST_CELLS = 2**14
MOST_AXES = 3
# Cells by which all zeros together may enlarge a model: 40 MiB of memory.
MOST_MODEL_CELLS = 2**18
# A dozen vectors of doubles, and the temporaries of a fit.
_BYTES_PER_CELL = 160
# The ends of a cell that holds no number; sums of it stay finite.
_FAR = 1e300


def structural_zeros(
    schema: Schema, groupings: Groupings, cliques: Iterable[AxisNames] = ()
) -> tuple[StructuralZeros, ...]:
    """Impossible cells of `groupings` (merged as they are), a table for each rule that has some.

    A rule has no table if it is over more than three axes or more than `MOST_CELLS` cells, or
    would enlarge a model with these `cliques` too much; its rows are repaired after sampling.
    Public: it depends on the dictionary, the cells and the cliques alone.
    """
    shape = {name: grouping.cells for name, grouping in groupings.items()}
    joined = [tuple(clique) for clique in cliques]
    most = predicted_cells(shape, joined) + MOST_MODEL_CELLS
    found = []
    for axes, possible in _small_tables(schema, shape):
        allowed = possible(groupings)
        if allowed.all() or not allowed.any():
            continue
        if predicted_cells(shape, [*joined, axes]) <= most:
            joined.append(axes)
            found.append(StructuralZeros(axes, allowed))
    return tuple(found)


def zeros_bytes(schema: Schema) -> int:
    """The most memory that zeros add to a fit: a dozen vectors over the cells they bring."""
    return MOST_MODEL_CELLS * _BYTES_PER_CELL if schema.constraints else 0


def _small_tables(schema: Schema, shape: Mapping[str, int]) -> Iterator[_Zeros]:
    for rule in schema.constraints:
        for axes, possible in _tables(rule):
            known = set(axes) <= set(shape) and len(axes) <= MOST_AXES
            if known and cells_of(shape, axes) <= MOST_CELLS:
                yield axes, possible


def _tables(rule: Constraint) -> list[_Zeros]:
    """The axes of each table that a rule makes, and what makes it."""
    match rule:
        case Forbidden() if len(set(rule.columns)) < len(rule.columns):
            return []
        case Forbidden():
            return [(rule.columns, lambda cells: ~_all_meet(rule.when, cells))]
        case Implied():
            when = [condition.column.name for condition in rule.when]
            then = [each for each in rule.then if each.column.name not in when]
            return [_implied(rule, each) for each in then] if len(set(when)) == len(when) else []
        case Lookup():
            return [(rule.columns, lambda cells: _listed(rule, cells))]
        case Sum():
            return [(rule.columns, lambda cells: _sums(rule, cells))]
        case AtLeast():
            return [(rule.columns, lambda cells: _at_least(rule, cells))]
        case Order():
            pairs = zip(rule.ordered, rule.ordered[1:], strict=False)
            return [((a.name, b.name), _ordering(rule, a, b)) for a, b in pairs]
    return []


def _all_meet(conditions: tuple[Condition, ...], cells: Groupings) -> Mask:
    """Where every code meets its condition, one dimension for each."""
    tables = []
    for condition in conditions:
        grouping = cells[condition.column.name]
        tables.append(_held(condition, grouping) == grouping.widths())
    return _outer(tables, np.logical_and)


def _implied(rule: Implied, then: Condition) -> _Zeros:
    """Impossible where all of `when` is met, and `then` by no code of its cell.

    A rule with several conditions in `then` is the same as one rule for each of them, and each
    of those is over fewer axes.
    """

    def possible(cells: Groupings) -> Mask:
        grouping = cells[then.column.name]
        meeting = _held(then, grouping)
        if then.column.null_code is not None and None not in then.listed:
            meeting[_cell(grouping, then.column.null_code)] += 1  # null breaks nothing
        return ~_outer([_all_meet(rule.when, cells), meeting == 0], np.logical_and)

    names = tuple(condition.column.name for condition in rule.when)
    return (*names, then.column.name), possible


def cell_kinds(schema: Schema, groupings: Groupings) -> dict[str, NDArray[np.int64]]:
    """The kind of each cell, int64, for each column that a condition of a rule names.

    A condition holds in all cells of a kind or in none. If cells of two kinds were merged, no
    structural zero could express the rule, and repair would have to change many rows. Public, as
    `structural_zeros` is.
    """
    met: dict[str, list[Mask]] = {}
    for rule in schema.constraints:
        if isinstance(rule, Forbidden | Implied):
            then = rule.then if isinstance(rule, Implied) else ()
            for condition in (*rule.when, *then):
                if (grouping := groupings.get(condition.column.name)) is not None:
                    held = _held(condition, grouping) == grouping.widths()
                    met.setdefault(condition.column.name, []).append(held)
    return {
        name: np.unique(np.array(held), axis=1, return_inverse=True)[1].reshape(-1)
        for name, held in met.items()
    }


def _listed(rule: Lookup, cells: Groupings) -> Mask:
    own = [cells[name] for name in rule.columns]
    allowed = np.zeros(tuple(grouping.cells for grouping in own), bool)
    places = [grouping.cell_of(codes) for grouping, codes in zip(own, rule.listed, strict=True)]
    allowed[tuple(places)] = True
    for axis, column in enumerate(rule.looked_up):
        if column in rule.excused:
            assert column.null_code is not None
            anywhere: list[slice | int] = [slice(None)] * len(own)
            anywhere[axis] = _cell(own[axis], column.null_code)
            allowed[tuple(anywhere)] = True
    return allowed


def _sums(rule: Sum, cells: Groupings) -> Mask:
    low, high, null = _spans((rule.total, *rule.parts), cells)
    least, most = _outer(low[1:], np.add), _outer(high[1:], np.add)
    least, most = least - _slack(least, rule.allowed), most + _slack(most, rule.allowed)
    reached = np.less_equal.outer(low[0], most) & np.greater_equal.outer(high[0], least)
    return np.asarray(reached | _outer(null, np.logical_or))


def _at_least(rule: AtLeast, cells: Groupings) -> Mask:
    _, high, null = _spans((rule.column,), cells)
    low, _, nulls = _spans(rule.sum_of, cells)
    least = _outer(low, np.add) + rule.least
    reached = np.greater_equal.outer(high[0], least - _slack(least, 0.0))
    return np.asarray(reached | _outer([*null, *nulls], np.logical_or))


def _slack(places: Floats, allowed: float) -> Floats:
    """What a rule allows, and the rounding of sums of doubles."""
    return np.asarray(allowed + 1e-9 * np.maximum(1.0, np.abs(places)))


def _ordering(rule: Order, left: Column, right: Column) -> Callable[[Groupings], Mask]:
    def possible(cells: Groupings) -> Mask:
        low, high, null = _spans((left, right), cells)
        earliest, latest = np.stack(rule.span(left, low[0])), np.stack(rule.span(right, high[1]))
        falls = rule.falls(earliest[:, :, None], latest[:, None, :])
        return np.asarray(~falls | _outer(null, np.logical_or))

    return possible


def _outer(tables: Sequence[NDArray[Any]], join: np.ufunc) -> NDArray[Any]:
    joined = tables[0]
    for table in tables[1:]:
        joined = join.outer(joined, table)
    return joined


def _cell(grouping: Grouping, code: int) -> int:
    return int(grouping.cell_of(np.array([code]))[0])


def _spans(
    columns: tuple[Column, ...], cells: Groupings
) -> tuple[list[Floats], list[Floats], list[Mask]]:
    """For each column, the lowest and highest place in each cell, and which cells hold null."""
    low, high, null = [], [], []
    for column in columns:
        grouping = cells[column.name]
        codes, own = _corners(grouping)
        places, missing = column.places(codes)
        lowest, highest = np.full(grouping.cells, _FAR), np.full(grouping.cells, -_FAR)
        holds = np.zeros(grouping.cells, bool)
        np.minimum.at(lowest, own[~missing], places[~missing])
        np.maximum.at(highest, own[~missing], places[~missing])
        holds[own[missing]] = True
        low.append(lowest)
        high.append(highest)
        null.append(holds)
    return low, high, null


def _corners(grouping: Grouping) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """First and last code of each base cell, tail codes too, and the cells they lie in.

    Between them the places of a range rise; categories, whose places do not, are all listed.
    """
    edges = np.asarray(grouping.edges, np.int64)
    tail = grouping.regular + np.arange(grouping.tail)
    codes = np.unique(np.concatenate([edges[:-1], edges[1:] - 1, tail]))
    return codes, grouping.cell_of(codes)


def _held(condition: Condition, grouping: Grouping) -> NDArray[np.int64]:
    """How many codes of each cell meet the condition."""
    column = condition.column
    if condition.listed:
        codes = [column.code(value) for value in condition.listed]
        own = np.unique(np.array([code for code in codes if code is not None], np.int64))
        return np.bincount(grouping.cell_of(own), minlength=grouping.cells).astype(np.int64)
    if not column.ranged:
        codes_held = np.flatnonzero(condition.holds({column.name: np.arange(column.codes)}))
        return np.bincount(grouping.cell_of(codes_held), minlength=grouping.cells).astype(np.int64)
    first, end = _reach(condition, column)
    edges = np.asarray(grouping.edges, np.int64)
    regular = np.maximum(np.minimum(edges[1:], end) - np.maximum(edges[:-1], first), 0)
    tail = grouping.regular + np.arange(grouping.tail)
    held = np.concatenate([regular, condition.holds({column.name: tail}).astype(np.int64)])
    if grouping.merge is None:
        return held
    merged = np.zeros(grouping.cells, np.int64)
    np.add.at(merged, np.asarray(grouping.merge), held)
    return merged


def _reach(condition: Condition, column: Column) -> tuple[int, int]:
    """The regular codes `first..end-1` meet a condition of bounds on a range."""

    def first_at(bound: float, past: bool) -> int:
        low, high = 0, column.regular
        while low < high:
            middle = (low + high) // 2
            place = column.places(np.array([middle]))[0][0]
            if place > bound or (place == bound and not past):
                high = middle
            else:
                low = middle + 1
        return low

    first, end = 0, column.regular
    if condition.minimum is not None:
        first = first_at(column.place_of(condition.minimum), False)
    if condition.maximum is not None:
        end = first_at(column.place_of(condition.maximum), True)
    return first, max(first, end)

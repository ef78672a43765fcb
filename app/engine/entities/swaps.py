"""The compiled loop of `grouping`: swaps of rows between entities that do not raise the misfit."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from app.engine.compiled import compiled

Ints = NDArray[np.int64]
Small = NDArray[np.int32]
State = NDArray[np.uint64]

# Swaps tried for each column of an entity that is off its targets, in one sweep.
MOST_SWEEPS = 200
TRIES = 16
# What a swap costs beside comparing cells, in comparisons: it looks up far places.
WORK_OF_TRY = 2000
# The search ends when a sweep lowers the misfit by less than this part of it.
LEAST_GAIN = 0.001


@compiled
def swap_rows(
    held: Small,
    slots: Small,
    cells: Small,
    owner: Small,
    starts: Ints,
    excess: Ints,
    weights: Ints,
    orders: Small,
    places: Small,
    fewest: int,
    most_work: int,
    state: State,
) -> None:
    """Changes `held`, the row in each slot, in place.

    Slots `starts[i]..starts[i + 1]` are those of entity i, and `owner` names it by slot.
    `slots` are the slots of the rows, and `cells`, shape (columns, slots), the cells of the rows
    held. `excess`, shape (entities, columns, 2), says how many distinct cells too many an entity
    has, and how much too large a sum over them of squared rows; it is kept up to date. `weights`,
    shape (columns, 2), say how much a difference of 1 counts.
    `orders`, shape (columns, rows), has rows sorted by a column, and `places` where each row
    stands there. `most_looks` ends the search after so many comparisons of cells. `state`,
    shape (1,), is not 0.
    """
    entities, columns = excess.shape[0], excess.shape[1]
    moved = np.zeros((2, columns, 2), dtype=np.int64)
    total = _misfit(excess, weights)
    work = 0
    for _ in range(MOST_SWEEPS):
        before = total
        for entity in range(entities):
            first, size = starts[entity], starts[entity + 1] - starts[entity]
            for column in range(columns):
                for _ in range(TRIES):
                    scattered = _is_scattered(excess[entity, column], weights[column])
                    if scattered == 0 or work > most_work:
                        break
                    one = first + _below(state, size)
                    like, along = one, fewest
                    if scattered > 0:
                        like, along = first + _below(state, size), column
                    other = _near(held[like], orders[along], places[along], slots, state)
                    second = owner[other]
                    if second == entity:
                        continue
                    work += WORK_OF_TRY + columns * (size + starts[second + 1] - starts[second])
                    gain = _gain(cells, starts, excess, weights, entity, second, one, other, moved)
                    if gain < 0:
                        continue
                    total -= gain
                    excess[entity] += moved[0]
                    excess[second] += moved[1]
                    for each in range(columns):
                        cell = cells[each, one]
                        cells[each, one] = cells[each, other]
                        cells[each, other] = cell
                    row = held[one]
                    held[one] = held[other]
                    held[other] = row
                    slots[held[one]] = one
                    slots[held[other]] = other
        if work > most_work or total == 0 or before - total < LEAST_GAIN * before:
            break


@compiled
def _is_scattered(excess: Ints, weights: Ints) -> int:
    """1 if the rows should gather on fewer cells, -1 if on more, 0 if all is as wanted."""
    if excess[0] != 0:
        return 1 if excess[0] > 0 else -1
    if excess[1] == 0 or weights[1] == 0:
        return 0
    return 1 if excess[1] < 0 else -1


@compiled
def _gain(
    cells: Small,
    starts: Ints,
    excess: Ints,
    weights: Ints,
    first: int,
    second: int,
    one: int,
    other: int,
    moved: Ints,
) -> int:
    """By how much swapping the rows of two slots lowers the misfit; fills `moved`."""
    gain = 0
    for column in range(len(cells)):
        mine, theirs = cells[column, one], cells[column, other]
        if mine == theirs:
            moved[:, column] = 0
            continue
        row = cells[column]
        _move(row[starts[first] : starts[first + 1]], mine, theirs, moved[0, column])
        _move(row[starts[second] : starts[second + 1]], theirs, mine, moved[1, column])
        for kind in range(2):
            gain += weights[column, kind] * (
                abs(excess[first, column, kind])
                - abs(excess[first, column, kind] + moved[0, column, kind])
                + abs(excess[second, column, kind])
                - abs(excess[second, column, kind] + moved[1, column, kind])
            )
    return gain


@compiled
def _move(held: Small, old: int, new: int, moved: Ints) -> None:
    """What an entity's distinct cells and squares change by with one row of `new` for `old`.

    `held` are the cells of its rows: compared in a plain loop, eight at a time.
    """
    of_old, of_new = 0, 0
    for cell in held:
        of_old += cell == old
        of_new += cell == new
    moved[0] = (of_new == 0) - (of_old == 1)
    moved[1] = 2 * (of_new - of_old) + 2


@compiled
def _misfit(excess: Ints, weights: Ints) -> int:
    total = 0
    for entity in range(len(excess)):
        for column in range(len(weights)):
            for kind in range(2):
                total += weights[column, kind] * abs(excess[entity, column, kind])
    return total


@compiled
def _near(row: int, order: Small, places: Small, slots: Small, state: State) -> int:
    """The slot of a row near `row` in an order: half as likely at twice the distance."""
    rows = len(order)
    bits = 1
    while (1 << bits) < rows:
        bits += 1
    distance = 1 + _below(state, 1 << (1 + _below(state, bits)))
    place = places[row] + distance if _below(state, 2) else places[row] - distance
    return int(slots[order[place % rows]])


@compiled
def _below(state: State, end: int) -> int:
    """A whole number from 0, below `end` (Marsaglia's xorshift of 64 bits, 2003)."""
    word = state[0]
    word ^= word << np.uint64(13)
    word ^= word >> np.uint64(7)
    word ^= word << np.uint64(17)
    state[0] = word
    return int(np.int64(word >> np.uint64(11)) % end)

"""Records made item by item from noisy combinations, as compiled loops.

The structure answers one question: which items may follow this record, and with which
counts? For every kept combination t shorter than R, `followers` lists each item c such that
t and c together are kept too, with the place of that combination. A record's *parts* are all
combinations of its items that are shorter than R, the empty one included. Item c may follow
if it follows every part; the combinations found on the way are those that c would add to the
record, so their counts are its weights, and once c is added they are the record's new parts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.engine.compiled import compiled
from app.engine.synthesizers.aggregate_seeded.aggregates import Aggregates

NO_ITEM = -1


@dataclass(frozen=True)
class Followers:
    """All combinations numbered through, the empty one first, then by length.

    starts: shape (combinations shorter than R, + 1); `items` and `combined` hold, for each,
    the items that may follow and the number of the combination then. `counts` has shape
    (combinations + 1,); `short` is how many numbers belong to combinations shorter than R.
    """

    starts: NDArray[np.int64]
    items: NDArray[np.int64]
    combined: NDArray[np.int64]
    counts: NDArray[np.int64]
    short: int

    @classmethod
    def of(cls, aggregates: Aggregates) -> Followers:
        sizes = [1, *(len(level) for level in aggregates.levels)]
        begins = np.concatenate([[0], np.cumsum(sizes)])
        before, items, combined = [], [], []
        for length, level in enumerate(aggregates.levels, start=1):
            numbers = begins[length] + np.arange(len(level))
            for position in range(length):
                before.append(begins[length - 1] + _parts(aggregates, length, position))
                items.append(level.items[:, position].astype(np.int64))
                combined.append(numbers)
        short = int(begins[-2])
        all_before, all_items = np.concatenate(before), np.concatenate(items)
        order = np.lexsort((all_items, all_before))
        starts = np.searchsorted(all_before[order], np.arange(short + 1))
        counts = np.concatenate([[0], *(level.counts for level in aggregates.levels)])
        return cls(
            starts.astype(np.int64),
            all_items[order],
            np.concatenate(combined)[order].astype(np.int64),
            counts.astype(np.int64),
            short,
        )


def _parts(aggregates: Aggregates, length: int, left_out: int) -> NDArray[np.int64]:
    items = aggregates.levels[length - 1].items
    if length == 1:
        return np.zeros(len(items), dtype=np.int64)
    return aggregates.trees[length - 2].places(np.delete(items, left_out, axis=1))


@dataclass(frozen=True, slots=True)
class Rules:
    """How the next item is drawn: see the form's fields of the same names."""

    use_synthetic_counts: bool
    weight_selection_percentile: float


def synthesised(
    aggregates: Aggregates,
    axis: NDArray[np.int64],
    available: NDArray[np.int64],
    rows: int,
    rules: Rules,
    seed: int,
    scale: float = 1.0,
) -> NDArray[np.int32]:
    """`rows` records, int32 of shape (rows, axes): the item on each axis, or -1.

    `available`, shape (items,), is how often each item may still be used; it is lowered.
    Counts are multiplied by `scale` before synthesised ones are subtracted.
    Every combination of at most R items in a record is one of the aggregates.
    """
    followers = Followers.of(aggregates)
    records = np.full((rows, int(axis.max(initial=-1)) + 1), NO_ITEM, dtype=np.int32)
    _synthesise(
        records,
        followers.starts,
        followers.items,
        followers.combined,
        np.maximum(np.rint(followers.counts * scale), 1).astype(np.int64),
        followers.short,
        aggregates.length,
        axis,
        available,
        rules.use_synthetic_counts,
        rules.weight_selection_percentile,
        np.uint64(seed),
    )
    return records


@compiled
def draw(state: Any) -> Any:
    """The next number of SplitMix64 (Steele, Lea and Flood 2014) in [0, 1); moves `state`."""
    state[0] += np.uint64(0x9E3779B97F4A7C15)
    mixed = state[0]
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    return np.float64(mixed >> np.uint64(11)) * 2.0**-53


@compiled
def drawn(weights: Any, number: Any, state: Any) -> Any:
    """An index below `number` in proportion to its weight, -1 if all are 0."""
    total = 0.0
    for index in range(number):
        total += weights[index]
    if total <= 0:
        return -1
    left = draw(state) * total
    last = -1
    for index in range(number):
        if weights[index] > 0:
            last = index
            left -= weights[index]
            if left < 0:
                break
    return last


@compiled
def _selected(values: Any, number: Any, place: Any) -> Any:
    """The value at `place` in order among the first `number` (Hoare's selection, in place)."""
    low, high = 0, number - 1
    while low < high:
        pivot = values[(low + high) // 2]
        left, right = low, high
        while left <= right:
            while values[left] < pivot:
                left += 1
            while values[right] > pivot:
                right -= 1
            if left <= right:
                values[left], values[right] = values[right], values[left]
                left += 1
                right -= 1
        if place <= right:
            high = right
        elif place >= left:
            low = left
        else:
            break
    return values[place]


@compiled
def _weight(
    combined: Any,
    parts: Any,
    size: Any,
    length: Any,
    counts: Any,
    made: Any,
    net: Any,
    percentile: Any,
    values: Any,
) -> Any:
    """The count of the record with the item; beyond `length` items, the percentile of the
    counts of all combinations that the item would add."""
    if size < length:
        whole = combined[parts - 1]
        return counts[whole] - made[whole] if net else counts[whole]
    for part in range(parts):
        number = combined[part]
        values[part] = counts[number] - made[number] if net else counts[number]
    place = np.int64(np.ceil(percentile / 100 * parts)) - 1
    return _selected(values, parts, max(place, 0))


@compiled
def _synthesise(
    records: Any,
    starts: Any,
    items: Any,
    combined: Any,
    counts: Any,
    short: Any,
    length: Any,
    axis: Any,
    available: Any,
    net: Any,
    percentile: Any,
    seed: Any,
) -> None:
    axes = records.shape[1]
    most_items = len(axis)
    most_parts = 1
    term = 1
    for size in range(1, length):
        term = term * (axes - size + 1) // size
        most_parts += max(term, 0)
    state = np.array([seed], dtype=np.uint64)
    made = np.zeros(len(counts), dtype=np.int64)
    hits = np.zeros(most_items, dtype=np.int64)
    found = np.empty((most_items, most_parts), dtype=np.int64)
    parts = np.empty(most_parts, dtype=np.int64)
    alive = np.empty(most_items, dtype=np.int64)
    weights = np.empty(most_items, dtype=np.float64)
    values = np.empty(most_parts, dtype=np.int64)
    for row in range(len(records)):
        number_alive = 0
        for follower in range(starts[0], starts[1]):
            item = items[follower]
            if available[item] > 0:
                hits[item] = 1
                found[item, 0] = combined[follower]
                alive[number_alive] = item
                number_alive += 1
        parts[0] = 0
        number_parts = 1
        size = 0
        while number_alive > 0:
            for index in range(number_alive):
                item = alive[index]
                weights[index] = max(
                    0,
                    _weight(
                        found[item],
                        number_parts,
                        size,
                        length,
                        counts,
                        made,
                        net,
                        percentile,
                        values,
                    ),
                )
            index = drawn(weights, number_alive, state)
            if index < 0:
                break
            chosen = alive[index]
            records[row, axis[chosen]] = chosen
            available[chosen] -= 1
            size += 1
            done = number_parts
            for part in range(done):
                number = found[chosen, part]
                made[number] += 1
                if number >= short:
                    continue
                parts[number_parts] = number
                for follower in range(starts[number], starts[number + 1]):
                    item = items[follower]
                    if hits[item] == number_parts:
                        found[item, number_parts] = combined[follower]
                        hits[item] += 1
                number_parts += 1
            left = 0
            for index in range(number_alive):
                item = alive[index]
                if hits[item] == number_parts and records[row, axis[item]] < 0:
                    alive[left] = item
                    left += 1
                else:
                    hits[item] = 0
            number_alive = left
        for index in range(number_alive):
            hits[alive[index]] = 0

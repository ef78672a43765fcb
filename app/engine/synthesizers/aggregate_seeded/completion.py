"""Values for the required columns that the synthesis left open.

The synthesis stops where every further item would make a combination that was not kept. A
column that may be empty is then left empty, as published; a required one needs a value. It is
drawn from the items that its counts have left, in proportion to how well each fits the record:
the product over the record's items of observed over expected counts of the pair. For a pair that
was not kept only an upper bound is known, the count at which it would have been kept. It lowers
the product where even that bound is below the expected count.

With `counted`, rows with an open place are dropped instead, and others are tried.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.engine.compiled import compiled
from app.engine.synthesizers.aggregate_seeded.aggregates import Aggregates
from app.engine.synthesizers.aggregate_seeded.synthesis import NO_ITEM, draw
from app.engine.synthesizers.aggregate_seeded.tuning import TUNING

# Makes a number of records from the items available, and lowers their numbers.
Make = Callable[[NDArray[np.int64], int], NDArray[np.int32]]


def affinities(
    aggregates: Aggregates, axis: NDArray[np.int64], rows: float, unseen: float
) -> NDArray[np.float32]:
    """Logarithms of observed over expected counts of pairs, shape (items, items), 0 on an axis.

    `unseen` is the count that stands for a pair that was not kept.
    """
    counts = np.zeros(aggregates.most_items)
    counts[aggregates.levels[0].items[:, 0]] = aggregates.levels[0].counts
    expected = np.outer(counts, counts) / max(rows, 1.0)
    with np.errstate(divide="ignore"):
        table = np.minimum(np.log(max(unseen, 0.5)) - np.log(expected), 0.0)
        if aggregates.length > 1:
            pairs = aggregates.levels[1]
            one, other = pairs.items.T
            seen = np.log(pairs.counts) - np.log(expected[one, other])
            table[one, other] = table[other, one] = seen
    table[axis[:, None] == axis[None, :]] = 0.0
    finite: NDArray[np.float64] = np.nan_to_num(table, posinf=0.0)
    return np.maximum(finite, TUNING.least_log).astype(np.float32)


def complete(
    records: NDArray[np.int32],
    columns: NDArray[np.int64],
    axis: NDArray[np.int64],
    available: NDArray[np.int64],
    fallback: NDArray[np.int64],
    affinity: NDArray[np.float32],
    seed: int,
) -> None:
    """Fills the open places of `columns` in `records`, in place.

    Numbers in `available` are lowered. Where a column has none left, `fallback` gives the
    weights; a place stays open if those are all 0 too.
    """
    order = np.argsort(axis, kind="stable")
    starts = np.searchsorted(axis[order], np.arange(records.shape[1] + 1))
    _complete(records, columns, order, starts, available, fallback, affinity, np.uint64(seed))


def whole_records(
    make: Make, columns: NDArray[np.int64], available: NDArray[np.int64], rows: int
) -> NDArray[np.int32]:
    """At most `rows` records with an item in each of `columns`, none of them filled in.

    The items of a record that is dropped are available again.
    """
    plenty = np.where(available > 0, rows, 0)
    kept = [make(available, 0)]
    missing, left = rows, TUNING.tries * rows
    while missing and left:
        stock = available if left > (TUNING.tries - TUNING.frugal_tries) * rows else plenty.copy()
        records = make(stock, min(left, max(missing, rows // TUNING.turns_per_try)))
        left -= len(records)
        places = np.flatnonzero((records[:, columns] >= 0).all(axis=1))[:missing]
        returned = np.delete(records, places, axis=0)
        np.add.at(stock, returned[returned >= 0], 1)
        kept.append(records[places])
        missing -= len(places)
    return np.concatenate(kept)


@compiled
def _complete(
    records: Any,
    columns: Any,
    order: Any,
    starts: Any,
    available: Any,
    fallback: Any,
    affinity: Any,
    seed: Any,
) -> None:
    state = np.array([seed], dtype=np.uint64)
    scores = np.zeros(len(available), dtype=np.float64)
    axes = records.shape[1]
    left = np.zeros(axes, dtype=np.int64)
    for index in range(axes):
        for place in range(starts[index], starts[index + 1]):
            left[index] += available[order[place]]
    for row in range(len(records)):
        for index in columns:
            if records[row, index] != NO_ITEM:
                continue
            stock = available if left[index] > 0 else fallback
            begin, end = starts[index], starts[index + 1]
            best = -1e300
            for place in range(begin, end):
                item = order[place]
                score = -1e300
                if stock[item] > 0:
                    score = np.log(stock[item])
                    for other in records[row]:
                        if other >= 0:
                            score += affinity[other, item]
                scores[place] = score
                best = max(best, score)
            total = 0.0
            if best < -1e299:
                continue
            for place in range(begin, end):
                scores[place] = np.exp(scores[place] - best) if scores[place] > -1e299 else 0.0
                total += scores[place]
            wanted = draw(state) * total
            chosen = -1
            for place in range(begin, end):
                if scores[place] > 0:
                    chosen = order[place]
                    wanted -= scores[place]
                    if wanted < 0:
                        break
            records[row, index] = chosen
            if left[index] > 0:
                available[chosen] -= 1
                left[index] -= 1

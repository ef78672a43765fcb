"""How classes made of cut features read: `rows_per(day) in (5, 11], std_per(day) <= 3`."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np


def class_labels(
    features: Sequence[str], cuts: Sequence[Sequence[float]], classes: Sequence[int]
) -> tuple[str, ...]:
    """A label for each class, of features cut into intervals that are closed on the left.

    A class that is no product of intervals, one set of them for each feature, reads as
    `class` and its number.
    """
    shape = tuple(len(each) + 1 for each in cuts)
    table = np.asarray(classes).reshape(shape)
    order = np.argsort(table, axis=None, kind="stable")
    begins = np.searchsorted(table.reshape(-1)[order], np.arange(table.max() + 2))
    places = np.stack(np.unravel_index(order, shape), axis=1)
    labels = []
    for number in range(len(begins) - 1):
        cells = places[begins[number] : begins[number + 1]]
        intervals = [sorted(set(axis.tolist())) for axis in cells.T]
        is_product = math.prod(map(len, intervals)) == len(cells)
        labels.append(_label(features, cuts, intervals) if is_product else f"class {number}")
    return tuple(labels)


def _label(
    features: Sequence[str], cuts: Sequence[Sequence[float]], intervals: Sequence[list[int]]
) -> str:
    parts = [
        f"{feature} {_union(each, taken)}"
        for feature, each, taken in zip(features, cuts, intervals, strict=True)
        if len(taken) <= len(each)
    ]
    return ", ".join(parts) or "all"


def _union(cuts: Sequence[float], taken: list[int]) -> str:
    """Intervals that touch read as one."""
    known = set(taken)
    starts = [number for number in taken if number - 1 not in known]
    ends = [number for number in taken if number + 1 not in known]
    return " or ".join(_interval(cuts, start, end) for start, end in zip(starts, ends, strict=True))


def _interval(cuts: Sequence[float], start: int, end: int) -> str:
    """From the first point of interval `start` to the last of interval `end`."""
    below = None if start == 0 else _cut(cuts[start - 1])
    above = None if end == len(cuts) else _cut(cuts[end])
    if below is None:
        assert above is not None
        return f"{'<=' if above[1] else '<'} {above[0]}"
    if above is None:
        return f"{'>' if below[1] else '>='} {below[0]}"
    return f"in {'(' if below[1] else '['}{below[0]}, {above[0]}{']' if above[1] else ')'}"


def _cut(cut: float) -> tuple[str, bool]:
    """A cut as it is written, and whether it is the first number above that one: a cut that
    is closed on the right is stored as the next float, which takes more digits."""
    before = math.nextafter(cut, -math.inf)
    is_next = len(repr(before)) < len(repr(cut))
    return f"{before if is_next else cut:g}", is_next

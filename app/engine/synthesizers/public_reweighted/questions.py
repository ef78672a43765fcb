"""The questions that `public_reweighted` may put to the kernel, from public facts alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

from app.engine.columns.axes import Axes
from app.engine.prior.entities.params import USUAL_NORM, PublicReweightedParams
from app.engine.privacy.declared import Feature, FeatureClasses
from app.engine.privacy.queries import Contribution, Count
from app.engine.schema import PrivacyUnit


def size_questions(unit: PrivacyUnit) -> tuple[Count, ...]:
    """How many rows; on an entity unit how many entities, and how many by their rows."""
    if unit.kind == "row":
        return (Count(()),)
    cuts = tuple(map(float, row_cuts(unit)))
    classes = FeatureClasses((Feature("rows"),), (cuts,), tuple(range(len(cuts) + 1)))
    return Count((), contribution=Contribution("one")), Count.of_units(classes)


def row_cuts(unit: PrivacyUnit) -> list[int]:
    """Cuts of the numbers of rows into 1, 2, 3 to 4, 5 to 8, ..., up to `max_rows`."""
    cuts = [2]
    while 2 * cuts[-1] - 1 <= unit.max_rows:
        cuts.append(2 * cuts[-1] - 1)
    return [cut for cut in cuts if cut <= unit.max_rows]


def candidates(axes: Axes, params: PublicReweightedParams, rule: Contribution) -> tuple[Count, ...]:
    """The histograms that the params name; else all of one or two columns, to choose from."""
    if params.measure is not None:
        names = [each for each in params.measure if set(each) <= set(axes.names)]
        return tuple(_count(axes, each, rule) for each in names)
    names = [*((name,) for name in axes.names), *combinations(axes.names, 2)]
    counts = (_count(axes, each, rule) for each in names)
    return tuple(count for count in counts if cells_of(count) <= params.most_cells)


def watched(axes: Axes, params: PublicReweightedParams, rule: Contribution) -> tuple[Count, ...]:
    """The columns whose values are looked for, each in its dictionary's cells."""
    names = axes.names if params.watch is None else params.watch
    counts = (_count(axes, (name,), rule) for name in names if name in axes.names)
    return tuple(count for count in counts if cells_of(count) <= params.most_cells)


def in_cells(axes: Axes, counts: Sequence[Count]) -> tuple[Count, ...]:
    """The same histograms in the measured cells of `axes`."""
    return tuple(
        replace(count, groupings={name: axes.groupings[name] for name in count.columns})
        for count in counts
    )


def scored_rule(unit: PrivacyUnit) -> Contribution:
    """The contribution rule of distances: their sensitivity is its L1 norm, which is least here."""
    return Contribution() if unit.kind == "row" else Contribution("distinct", limit=USUAL_NORM)


def shape_of(count: Count) -> tuple[int, ...]:
    return tuple(count.groupings[name].cells for name in count.columns)


def cells_of(count: Count) -> int:
    return math.prod(shape_of(count))


def _count(axes: Axes, names: tuple[str, ...], rule: Contribution) -> Count:
    return Count(names, {name: axes.groupings[name] for name in names}, rule)

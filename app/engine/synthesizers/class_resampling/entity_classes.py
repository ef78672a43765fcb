"""Classes of entities, declared as splits: from the form to what the kernel evaluates.

Splits are made in order. Each divides entities by a feature of their rows, all of them or only
those in some branches of the first split. So the classes are the leaves of a tree, and every entity
is in exactly one, whatever its rows. The parent of a leaf is its path without the last branch.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from typing import Annotated, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from app.engine.grouping import Grouping
from app.engine.method import Params, Problem
from app.engine.privacy.declared import Feature, FeatureClasses, FeatureKind
from app.engine.schema import Column, PrivacyUnit, Schema
from app.engine.schema.values import from_wire

# Combinations of intervals of all features: each has an entry in the table sent to the kernel.
MOST_INTERVALS = 20_000

Cut = Annotated[float, Field(allow_inf_nan=False)]
Path = tuple[int, ...]


class Split(Params):
    """Entities are divided by a number computed from their rows."""

    feature: FeatureKind = Field(
        description="`rows`: how many rows; `rows_per`: rows divided by the number of different "
        "cells of `column` (of days: rows per day); `std_per`: standard deviation of the rows in "
        "each of these cells; `distinct`: how many such cells; `top_share`: share of the rows in "
        "the `rank`-th most frequent cell; `share_count`: how many cells hold a share above "
        "`above`; `mean`: mean of the numbers in `column`."
    )
    column: str | None = Field(None, description="The column; none for `rows`.")
    rank: int = Field(1, ge=1, description="For `top_share`: 1 is the most frequent cell.")
    above: float = Field(0.0, ge=0, le=1, description="For `share_count`: the share to pass.")
    cuts: tuple[Cut, ...] = Field(
        min_length=1, max_length=1000, description="Where the number is cut, rising."
    )
    closed: Literal["left", "right"] = Field(
        "left", description="Whether a number equal to a cut is above it (`left`) or below."
    )
    branches: tuple[Annotated[int, Field(ge=0)], ...] | None = Field(
        None, description="The branch of each interval, from 0; each its own if omitted."
    )
    within: tuple[Annotated[int, Field(ge=0)], ...] | None = Field(
        None, description="Branches of the first split that are split here; all if omitted."
    )

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if any(after <= before for before, after in pairwise(self.cuts)):
            raise ValueError("cuts must be strictly increasing")
        if self.branches is not None:
            if len(self.branches) != len(self.cuts) + 1:
                raise ValueError("expected one branch for each interval, one more than cuts")
            if set(self.branches) != set(range(max(self.branches) + 1)):
                raise ValueError("branches are numbered from 0 without gaps")
        self.declared({})
        return self

    def declared(self, groupings: Mapping[str, Grouping]) -> Feature:
        grouping = None
        if self.column is not None and self.feature != "mean":
            grouping = groupings.get(self.column)
        return Feature(self.feature, self.column, self.rank, self.above, grouping)

    @property
    def cuts_closed_left(self) -> tuple[float, ...]:
        """The same cuts, if each belongs to the interval above it: a number that is larger than a
        cut is the next float or larger."""
        if self.closed == "left":
            return self.cuts
        return tuple(math.nextafter(cut, math.inf) for cut in self.cuts)

    def branch(self, interval: int) -> int:
        return interval if self.branches is None else self.branches[interval]


Scalar = bool | int | float | str

# Values of a column that are one cell; a value that no group names keeps its own.
Groups = Annotated[list[list[Scalar]], Field(min_length=1, max_length=100_000)]


def default_splits(unit: PrivacyUnit) -> tuple[Split, ...]:
    """Classes by number of rows alone: 1, 2-3, 4-7, and so on below `max_rows`."""
    steps = max(1, (unit.max_rows).bit_length() - 1)
    return (Split(feature="rows", cuts=tuple(float(2**step) for step in range(1, steps + 1))),)


@dataclass(frozen=True, slots=True)
class EntityClasses:
    """The classes of `splits`: class c is the leaf at `paths[c]`, the branches taken to it.

    `function` is the same as data for the kernel.
    """

    function: FeatureClasses
    paths: tuple[Path, ...]

    @classmethod
    def of(cls, splits: Sequence[Split], groupings: Mapping[str, Grouping]) -> EntityClasses:
        """Raises `ValueError` for splits with more than `MOST_INTERVALS` combinations."""
        features = tuple(dict.fromkeys(split.declared(groupings) for split in splits))
        cuts = tuple(
            tuple(sorted(set(_cuts_of(feature, splits, groupings)))) for feature in features
        )
        if math.prod(len(each) + 1 for each in cuts) > MOST_INTERVALS:
            raise ValueError(f"there are over {MOST_INTERVALS} combinations of intervals")
        steps = [
            _Step.of(split, features.index(split.declared(groupings)), cuts) for split in splits
        ]
        numbers: dict[Path, int] = {}
        classes = [
            numbers.setdefault(_path(steps, intervals), len(numbers))
            for intervals in product(*(range(len(each) + 1) for each in cuts))
        ]
        return cls(FeatureClasses(features, cuts, tuple(classes)), tuple(numbers))


@dataclass(frozen=True, slots=True)
class _Step:
    """A split on the common intervals of its feature: `branch_of[i]` is that of interval i."""

    feature: int
    branch_of: tuple[int, ...]
    within: frozenset[int] | None

    @classmethod
    def of(cls, split: Split, feature: int, cuts: Sequence[tuple[float, ...]]) -> _Step:
        lowest = np.array([-math.inf, *cuts[feature]])
        own = np.searchsorted(np.array(split.cuts_closed_left), lowest, side="right")
        within = None if split.within is None else frozenset(split.within)
        return cls(feature, tuple(split.branch(int(interval)) for interval in own), within)


def _path(steps: Sequence[_Step], intervals: Sequence[int]) -> Path:
    first = steps[0].branch_of[intervals[steps[0].feature]]
    return tuple(
        step.branch_of[intervals[step.feature]]
        for step in steps
        if step.within is None or first in step.within
    )


def _cuts_of(
    feature: Feature, splits: Sequence[Split], groupings: Mapping[str, Grouping]
) -> Iterator[float]:
    for split in splits:
        if split.declared(groupings) == feature:
            yield from split.cuts_closed_left


def split_problems(splits: Sequence[Split], schema: Schema) -> tuple[Problem, ...]:
    """Splits of columns that do not exist or hold no numbers, or within branches that do not."""
    known = {column.name: column for column in schema.columns}
    problems = []
    if splits[0].within is not None:
        problems.append(
            _split_problem(0, "within", "the first split has none before it", "leave it out")
        )
    branches = {splits[0].branch(interval) for interval in range(len(splits[0].cuts) + 1)}
    for position, split in enumerate(splits):
        if split.column is not None and split.column not in known:
            problems.append(
                _split_problem(
                    position,
                    "column",
                    f"there is no column `{split.column}`",
                    "name a column of the data dictionary, without the entity column",
                )
            )
        elif split.feature == "mean" and not known[str(split.column)].has_numbers:
            problems.append(
                _split_problem(
                    position, "column", f"`{split.column}` holds no numbers", "choose one that does"
                )
            )
        if not set(split.within or ()) <= branches:
            problems.append(
                _split_problem(
                    position,
                    "within",
                    "the first split has no such branch",
                    f"give numbers from 0 to {max(branches)}",
                )
            )
    return tuple(problems)


def _split_problem(position: int, field: str, message: str, remedy: str) -> Problem:
    return Problem(f"/params/classes/{position}/{field}", message, remedy)


def grouped(column: Column, own: Grouping, groups: Groups) -> Grouping:
    """`own` with each group of values joined. Raises `ValueError` for a value that is not
    declared, and for one that is in a cell of two groups."""
    joined: dict[int, int] = {}
    for number, values in enumerate(groups):
        for value in values:
            cell = _cell(column, own, value)
            if joined.setdefault(cell, number) != number:
                raise ValueError(f"`{value}` shares its cell with another group")
    names = [joined.get(cell, len(groups) + cell) for cell in range(own.cells)]
    order = {name: number for number, name in enumerate(dict.fromkeys(names))}
    return own.merged([order[name] for name in names])


def _cell(column: Column, own: Grouping, value: Scalar) -> int:
    """A value of a column of text may be written as a number: the dictionary made from a file says
    text where the challenge's own says integer."""
    raw = str(value) if column.type == "string" and not isinstance(value, bool) else value
    code = column.code(from_wire(column.type, raw, column.text_format.formats))
    if code is None:
        raise ValueError(f"`{value}` is not declared for `{column.name}`")
    return int(own.cell_of(np.array([code]))[0])

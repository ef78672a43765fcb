"""Which columns a synthesizer works on, and into which cells each is cut."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import Field

from app.engine.grouping import Grouping
from app.engine.json_pointer import escaped
from app.engine.method import Problem
from app.engine.method.model_file import ModelFormatError
from app.engine.schema import Column, QuantileBins, Schema

# A number of bins, or their edges as values of the column's type.
Bins = Annotated[int, Field(ge=1)] | Annotated[list[int | float | str], Field(max_length=100_000)]

# Two fields that most forms have.
ChosenColumns = Annotated[
    tuple[str, ...] | None,
    Field(description="Columns of the synthetic table; all columns if omitted."),
]
OwnBins = Annotated[
    dict[str, Bins], Field(description="Bins of a column, in place of its dictionary's.")
]


@dataclass(frozen=True, slots=True)
class Axes:
    """Columns in order, each with its grouping; cells are numbered in C order.

    `sub_bins` are finer groupings of some of the columns, in which these are counted besides, each
    by itself (see `within_bins`).
    """

    groupings: Mapping[str, Grouping]
    sub_bins: Mapping[str, Grouping] = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.groupings)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(grouping.cells for grouping in self.groupings.values())

    @property
    def cells(self) -> int:
        return math.prod(self.shape)

    @property
    def header_cells(self) -> int:
        """Cells whose edges a message about these columns describes."""
        return sum(self.shape) + sum(grouping.cells for grouping in self.sub_bins.values())

    def to_json(self) -> list[list[Any]]:
        return [[name, grouping.to_json()] for name, grouping in self.groupings.items()]

    @classmethod
    def from_json(cls, wire: Any, schema: Schema) -> Axes:
        """Axes of a stored model; raises `ModelFormatError` if they do not fit the schema."""
        known = {column.name: column.grouping for column in schema.columns}
        try:
            groupings = {name: _stored_grouping(known[name], stored) for name, stored in wire}
        except (LookupError, ValueError, TypeError) as error:
            raise ModelFormatError("the stored model does not fit the dictionary") from error
        return cls(groupings)


def _stored_grouping(own: Grouping, stored: Mapping[str, Any]) -> Grouping:
    regular = stored["regular"] if "regular" in stored else stored["edges"][-1]
    if regular != own.regular or stored["tail"] != own.tail:
        raise ModelFormatError("the stored model does not fit the dictionary")
    return Grouping.from_json(stored)


def choose_axes(
    schema: Schema,
    columns: Sequence[str] | None,
    bins: Mapping[str, Bins],
    *,
    measures_bins: bool = False,
) -> tuple[Axes, tuple[Problem, ...]]:
    """Axes of `columns` (all if None) under `bins`, and what is wrong with the choice.

    Bins and values that a dictionary leaves to be measured are a problem, unless the caller
    measures them (see `private_bins.plan_axes`): then equal bins stand in their place, or `other`
    alone.
    """
    known: Mapping[str, Column] = {column.name: column for column in schema.columns}
    chosen = tuple(known) if columns is None else tuple(columns)
    problems = [*_column_problems(chosen, known), *_bin_problems(chosen, bins)]
    if not measures_bins:
        problems += _private_cell_problems(chosen, bins, known)
    groupings = {}
    for name in chosen:
        if name not in known:
            continue
        try:
            groupings[name] = (
                known[name].group(bins[name]) if name in bins else known[name].grouping
            )
        except ValueError as error:
            problems.append(
                Problem(
                    f"/params/bins/{escaped(name)}",
                    str(error),
                    "give a number of bins, or rising edges within the range",
                )
            )
    return Axes(groupings), tuple(problems)


def _column_problems(chosen: Sequence[str], known: Mapping[str, Column]) -> list[Problem]:
    problems = [
        Problem(
            f"/params/columns/{position}",
            f"there is no column `{name}`",
            "name columns of the data dictionary, without the entity column",
        )
        for position, name in enumerate(chosen)
        if name not in known
    ]
    if len(set(chosen)) != len(chosen):
        problems.append(
            Problem("/params/columns", "a column is named twice", "name each column once")
        )
    if not chosen:
        problems.append(
            Problem("/params/columns", "no column is named", "name at least one column")
        )
    return problems


def _bin_problems(chosen: Sequence[str], bins: Mapping[str, Bins]) -> list[Problem]:
    return [
        Problem(
            f"/params/bins/{escaped(name)}",
            f"`{name}` is not among the chosen columns",
            "give bins for chosen columns only",
        )
        for name in bins
        if name not in chosen
    ]


def _private_cell_problems(
    chosen: Sequence[str], bins: Mapping[str, Bins], known: Mapping[str, Column]
) -> list[Problem]:
    columns = [known[name] for name in dict.fromkeys(chosen) if name in known]
    return [
        quantile_bins_problem(column.name)
        for column in columns
        if column.name not in bins and isinstance(column.bins, QuantileBins)
    ] + [found_values_problem(column.name) for column in columns if column.discovers is not None]


def not_chosen_problems(named: Iterable[tuple[str, str]], axes: Axes) -> tuple[Problem, ...]:
    """Of names of columns in a form, each with its pointer, those that `axes` lack."""
    return tuple(
        Problem(pointer, f"`{name}` is not among the chosen columns", "name a chosen column")
        for pointer, name in named
        if name not in axes.groupings
    )


def quantile_bins_problem(name: str) -> Problem:
    """A column whose bins are private, in a synthesizer that measures none."""
    return Problem(
        f"/params/bins/{escaped(name)}",
        f"the dictionary has the bins of `{name}` measured, which this synthesizer does not do",
        "give its number of bins or their public edges here",
    )


def found_values_problem(name: str) -> Problem:
    """A column whose values are to be found, in a synthesizer that does not find any."""
    return Problem(
        "/params/columns",
        f"the dictionary has the values of `{name}` found, which this synthesizer does not do",
        "name the columns that are wanted, without it",
    )

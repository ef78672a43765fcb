"""The form of entities, and which columns are looked at if it names none."""

from __future__ import annotations

from pydantic import Field

from app.engine.columns.axes import Axes, not_chosen_problems
from app.engine.entities.tuning import TUNING
from app.engine.method import Params, Problem

MOST_COLUMNS = 12


class EntityForm(Params):
    """How entities are made of rows. Nothing is spent on it where each unit has one row."""

    share: float = Field(
        0.1,
        gt=0,
        lt=1,
        description="Part of the budget that measures how many rows and distinct values "
        "entities have, and how many entities and rows there are.",
    )
    distinct: tuple[str, ...] | None = Field(
        None,
        max_length=MOST_COLUMNS,
        description="Columns whose number of distinct values per entity is measured, with how "
        "evenly its rows are spread over them. If omitted: of the columns without bins the four "
        "with the most cells, then of the others.",
    )


def chosen_columns(form: EntityForm, axes: Axes) -> tuple[str, ...]:
    """The columns looked at: those named, or the usual ones.

    Random rows have the more distinct values, and are so the further off, the more cells a
    column has; and bins hold numbers, which distinguish entities less than names and places do.
    """
    if form.distinct is not None:
        return tuple(name for name in dict.fromkeys(form.distinct) if name in axes.groupings)
    wide = [name for name in axes.names if axes.groupings[name].cells >= TUNING.fewest_cells]
    first = sorted(wide, key=lambda name: (_has_bins(axes, name), -axes.groupings[name].cells))
    return tuple(sorted(first[: TUNING.usual_columns], key=axes.names.index))


def _has_bins(axes: Axes, name: str) -> bool:
    grouping = axes.groupings[name]
    return len(grouping.edges) - 1 < grouping.regular


def column_problems(form: EntityForm, axes: Axes) -> tuple[Problem, ...]:
    pointer = "/params/entities/distinct"
    named = ((f"{pointer}/{place}", name) for place, name in enumerate(form.distinct or ()))
    return not_chosen_problems(named, axes)

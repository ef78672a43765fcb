"""What a custodian may choose in an evaluation, checked against public facts."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Literal

from pydantic import ConfigDict, Field, JsonValue

from app.engine.json_pointer import pointer
from app.engine.schema import Column, Schema
from app.engine.schema.scale import Categories
from app.problems import FieldError, Invalid
from app.releases.schemas import Form

# Trees are grown for each class, and a design matrix is held for each coefficient.
MOST_CLASSES = 64
MOST_COEFFICIENTS = 100
MOST_PREDICTORS = 30
MOST_SUBGROUP_COLUMNS = 10
# Cells of one column that are subgroups.
MOST_SUBGROUPS = 200
_MOST_NAMED = 20
EXAMPLE: dict[str, JsonValue] = {
    "target": "payment_type",
    "regression": {"outcome": "fare", "predictors": ["distance"]},
    "subgroups": ["region"],
}
_NUMERIC = ("integer", "number", "year")

Family = Literal["linear", "logistic"]


class RegressionIn(Form):
    """A regression that is fitted to the real and to the synthetic rows."""

    outcome: str = Field(
        max_length=200,
        description="A column of numbers (least squares) or of two values (logistic regression of"
        " the second one).",
        examples=["fare"],
    )
    predictors: list[str] = Field(
        min_length=1,
        max_length=MOST_PREDICTORS,
        description="Columns that explain it. Text and columns with listed values get a coefficient"
        " for each value but the first.",
        examples=[["distance", "payment_type"]],
    )


class ReportIn(Form):
    """What to evaluate in addition to what needs no choice; everything may be left out."""

    model_config = ConfigDict(json_schema_extra={"examples": [EXAMPLE]})

    target: str | None = Field(
        None,
        max_length=200,
        description="The column that models learn to predict from all others, once from synthetic"
        " and once from real rows.",
    )
    regression: RegressionIn | None = Field(
        None, description="A regression whose coefficients are compared."
    )
    subgroups: list[str] | None = Field(
        None,
        max_length=MOST_SUBGROUP_COLUMNS,
        description="Columns whose values are subgroups, in each of which every other column is"
        " compared.",
    )


def check(form: ReportIn, schema: Schema, modelled: Collection[str] | None) -> None:
    """Raises `Invalid` with every fault of the form.

    modelled: the columns of the release's sample, None where that is not known before it is made.
    """
    faults = list(_Checks(schema, modelled).faults(form))
    if faults:
        raise Invalid("The evaluation cannot be made as requested.", errors=faults)


def is_numeric(column: Column) -> bool:
    """Whether its values are numbers on a scale, and not a list of codes."""
    return column.type in _NUMERIC and not isinstance(column.scale, Categories)


def classes_of(column: Column) -> int:
    """How many values it has, without null."""
    return column.codes - column.nullable


def family_of(outcome: Column) -> Family | None:
    """The regression of this outcome; None for a column that cannot be one."""
    if classes_of(outcome) == 2:
        return "logistic"
    return "linear" if outcome.type in _NUMERIC else None


def coefficients_of(predictor: Column) -> int:
    return 1 if _is_continuous(predictor) else classes_of(predictor) - 1


def _is_continuous(column: Column) -> bool:
    return column.has_numbers and not isinstance(column.scale, Categories)


class _Checks:
    def __init__(self, schema: Schema, modelled: Collection[str] | None) -> None:
        self._columns = {column.name: column for column in schema.columns}
        self._usable = [name for name in self._columns if modelled is None or name in modelled]

    def faults(self, form: ReportIn) -> Iterator[FieldError]:
        if form.target is not None:
            yield from self._target(form.target)
        if form.regression is not None:
            yield from self._regression(form.regression)
        yield from self._distinct(form.subgroups or [], "/subgroups")
        for place, name in enumerate(form.subgroups or []):
            yield from self._subgroup(name, pointer("subgroups", place))

    def _known(self, name: str, at: str) -> Iterator[FieldError]:
        if name not in self._columns:
            yield FieldError(at, "The dictionary has no such column.", self._choose())
        elif name not in self._usable:
            yield FieldError(at, "The release does not model this column.", self._choose())

    def _choose(self) -> str:
        names = ", ".join(f"`{name}`" for name in self._usable[:_MOST_NAMED])
        more = ", ..." if len(self._usable) > _MOST_NAMED else ""
        return f"Name one of {names}{more}."

    def _distinct(self, names: Sequence[str], at: str) -> Iterator[FieldError]:
        if len(set(names)) < len(names):
            yield FieldError(at, "A column is named twice.", "Name each column once.")

    def _target(self, name: str) -> Iterator[FieldError]:
        faults = list(self._known(name, "/target"))
        yield from faults
        if faults:
            return
        column = self._columns[name]
        if not is_numeric(column) and classes_of(column) > MOST_CLASSES:
            yield FieldError(
                "/target",
                f"The column has {classes_of(column)} values; {MOST_CLASSES} are the most.",
                "Name a column with fewer values, or one of numbers.",
            )
        if len(self._usable) < 2:
            yield FieldError(
                "/target", "No other column is left to predict it from.", "Leave it out."
            )

    def _regression(self, form: RegressionIn) -> Iterator[FieldError]:
        yield from self._known(form.outcome, "/regression/outcome")
        outcome = self._columns.get(form.outcome)
        if outcome is not None and family_of(outcome) is None:
            yield FieldError(
                "/regression/outcome",
                "The column has neither numbers nor exactly two values.",
                "Name a column of type integer, number or year, or one with two values.",
            )
        yield from self._distinct(form.predictors, "/regression/predictors")
        for place, name in enumerate(form.predictors):
            at = pointer("regression", "predictors", place)
            yield from self._known(name, at)
            if name == form.outcome:
                yield FieldError(at, "The outcome cannot explain itself.", "Remove it here.")
        known = [self._columns[name] for name in form.predictors if name in self._columns]
        number = 1 + sum(coefficients_of(column) for column in known)
        if number > MOST_COEFFICIENTS:
            yield FieldError(
                "/regression/predictors",
                f"There would be {number} coefficients; {MOST_COEFFICIENTS} are the most.",
                "Leave out a predictor with many values.",
            )

    def _subgroup(self, name: str, at: str) -> Iterator[FieldError]:
        faults = list(self._known(name, at))
        yield from faults
        if not faults and self._columns[name].grouping.cells > MOST_SUBGROUPS:
            yield FieldError(
                at,
                f"The column has {self._columns[name].grouping.cells} cells; {MOST_SUBGROUPS} are"
                " the most.",
                "Name a column with fewer cells.",
            )

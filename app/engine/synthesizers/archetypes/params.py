"""The form of `archetypes`, its presets, and what a form means for a dictionary."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from app.engine.columns.axes import Axes, Bins, choose_axes
from app.engine.method import Params, Problem
from app.engine.method.params import PresetParams
from app.engine.privacy.declared import MOST_MIXED, MixtureMode, RowNumber
from app.engine.privacy.loss import PrivacyLoss
from app.engine.privacy.queries import Contribution, Count
from app.engine.public.conditionals import Link, links
from app.engine.schema import Column, PrivacyUnit, Schema
from app.engine.synthesizers.archetypes.model import AttributesPer, RowsPerEntity
from app.engine.synthesizers.archetypes.tuning import TUNING

MOST_ROW_CELLS = 10_000

Positive = Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)]

_PLACES = ("shift", "pickup_community_area", "dropoff_community_area")

# Table 1 of the published system.
SPRINT3: Mapping[str, Any] = {
    "features": _PLACES,
    "core": _PLACES,
    "components": TUNING.components,
    "attributes": ("company_id",),
    "conditionals": [
        {"column": "fare", "given": _PLACES},
        {"column": "tips", "given": (*_PLACES, "fare")},
        {"column": "trip_total", "given": ("fare", "tips")},
        {"column": "trip_seconds", "given": (*_PLACES, "fare")},
        {"column": "trip_miles", "given": (*_PLACES, "fare")},
        {"column": "payment_type", "given": ("fare", "tips", "trip_total")},
    ],
}


class ConditionalForm(Params):
    """A column and those that it is drawn given."""

    column: str = Field(description="The column that is drawn.")
    given: tuple[str, ...] = Field(description="Columns that are drawn before it.")


class ArchetypesParams(PresetParams):
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {"sprint3": SPRINT3}

    preset: Literal["sprint3"] | None = Field(
        None, description="A published set-up; other params override it."
    )
    features: tuple[str, ...] | None = Field(
        None,
        max_length=MOST_MIXED,
        description="Columns of numbers, dates or times that the mixture is fitted on.",
    )
    core: tuple[str, ...] | None = Field(
        None,
        description="Columns drawn together from an archetype's public rows; `features` if "
        "omitted.",
    )
    attributes: tuple[str, ...] = Field(
        (), description="Columns that belong to the entity, each counted privately."
    )
    attributes_per: AttributesPer = Field(
        "entity", description="Draw an attribute once for each entity, or for each row."
    )
    conditionals: tuple[ConditionalForm, ...] | None = Field(
        None,
        description="The other columns in the order in which they are drawn; all that are left, "
        "each given `core`, if omitted.",
    )
    bins: dict[str, Bins] = Field(
        default_factory=dict,
        description="Bins of a column where it is counted or given, in place of its dictionary's "
        "(and of its values, by which given columns are compared first).",
    )
    components: int = Field(TUNING.components, ge=1, le=1000, description="How many archetypes.")
    covariance: Literal["full", "diag"] = Field("full", description="Shape of the mixture's parts.")
    regularisation: float = Field(
        TUNING.regularisation,
        ge=1e-6,
        le=100,
        description="Added to the variances of each archetype's rows, in squared standard "
        "deviations of the public column, so that a rare value does not decide alone.",
    )
    rows_per_entity: RowsPerEntity = Field(
        "public",
        description="`public`: drawn from public entities of the archetype; `public_mean`: their "
        "mean; `bought`: drawn from a noisy histogram of the private entities.",
    )
    most_bought_rows: int | None = Field(
        None,
        ge=1,
        le=MOST_ROW_CELLS,
        description="Cells of that noisy histogram, the last for this many rows or more; "
        "the unit's `max_rows`, at most 200, if omitted.",
    )
    release: Literal["joint", "split"] = Field(
        "joint",
        description="`joint`: one release of all histograms with the same noise; `split`: each "
        "with a part of the budget of its own.",
    )
    split: tuple[Positive, ...] | None = Field(
        None,
        description="Parts of epsilon for the archetypes, each attribute, and the rows per entity; "
        "0.1 and 0.9 for two if omitted.",
    )
    post_processing: Literal["project", "clip"] = Field(
        "project",
        description="`project`: nearest non-negative counts with the noisy number of entities; "
        "`clip`: negative counts become 0.",
    )
    most_rows: int = Field(
        2_000_000,
        ge=1,
        le=20_000_000,
        description="The most rows where the request names no number; entities are scaled down.",
    )


@dataclass(frozen=True)
class Design:
    """What a form means for a dictionary: what is learnt, measured and drawn, in this order."""

    params: ArchetypesParams
    schema: Schema
    unit: PrivacyUnit

    @cached_property
    def features(self) -> tuple[str, ...]:
        return self.params.features or ()

    @cached_property
    def core(self) -> tuple[str, ...]:
        return self.features if self.params.core is None else self.params.core

    @property
    def attributes(self) -> tuple[str, ...]:
        return self.params.attributes

    @cached_property
    def chain(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """The other columns in order, each with those that it is drawn given."""
        if self.params.conditionals is not None:
            return tuple((form.column, form.given) for form in self.params.conditionals)
        before = {*self.core, *self.attributes}
        left = (column.name for column in self.schema.columns if column.name not in before)
        return tuple((name, self.core) for name in left)

    @cached_property
    def links(self) -> tuple[Link, ...]:
        return links(self.chain, self.core)

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """Columns of the synthetic table."""
        return (*self.core, *self.attributes, *(column for column, _ in self.chain))

    @cached_property
    def public_columns(self) -> tuple[str, ...]:
        """Columns learnt from public rows."""
        given = (name for _, names in self.chain for name in names)
        chained = (column for column, _ in self.chain)
        return tuple(dict.fromkeys((*self.features, *self.core, *given, *chained)))

    @cached_property
    def _known(self) -> dict[str, Column]:
        return {column.name: column for column in self.schema.columns}

    @cached_property
    def _axes(self) -> tuple[Axes, tuple[Problem, ...]]:
        given = (name for _, names in self.chain for name in names)
        used = dict.fromkeys((*self.core, *self.attributes, *given))
        return choose_axes(
            self.schema, [name for name in used if name in self._known], self.params.bins
        )

    @property
    def axes(self) -> Axes:
        """Groupings of the columns that are counted or that another is drawn given."""
        return self._axes[0]

    @property
    def rows_rule(self) -> RowsPerEntity:
        """On a row unit there is nothing to measure: a unit has one row."""
        return self.params.rows_per_entity if self.unit.kind == "entity" else "public"

    @property
    def row_cells(self) -> int | None:
        """Cells of the noisy histogram of rows per entity, None if none is measured."""
        if self.rows_rule != "bought":
            return None
        return min(self.params.most_bought_rows or TUNING.row_cells, self.unit.max_rows)

    def questions(self, function: MixtureMode) -> tuple[Count, ...]:
        """Archetypes, each attribute, and rows per entity: each counts a unit once."""
        attributes = (
            Count((name,), {name: self.axes.groupings[name]}, Contribution("one"))
            for name in self.attributes
        )
        cells = self.row_cells
        rows = () if cells is None else (Count.of_units(RowNumber(cells)),)
        return (Count.of_units(function), *attributes, *rows)

    @property
    def question_cells(self) -> tuple[int, ...]:
        attributes = (self.axes.groupings[name].cells for name in self.attributes)
        cells = self.row_cells
        return (self.params.components, *attributes, *(() if cells is None else (cells,)))

    def weights(self, loss: PrivacyLoss) -> tuple[float, ...]:
        """What the loss of each question is in proportion to."""
        # m histograms of sensitivity 1 have L2 sqrt(m) and L1 m together: the same noise in all of
        # them costs what m equal parts cost.
        if self.params.release == "joint":
            return (1.0,) * len(self.question_cells)
        # A split is of epsilon. Rho grows with its square, which gives both the same proportions
        # of noise.
        power = 2 if loss.kind == "zcdp" else 1
        return tuple(part**power for part in self._split)

    @property
    def _split(self) -> tuple[float, ...]:
        return TUNING.split if self.params.split is None else self.params.split

    def problems(self) -> tuple[Problem, ...]:
        """What is wrong with the form; with any, the rest must not be used."""
        found = [
            *self._unknown(),
            *self._features(),
            *_repeated(self.columns),
            *_out_of_order(self.core, self.attributes, self.chain),
        ]
        if found:
            return tuple(found)
        return self._axes[1] or tuple(self._unsplit())

    def _unknown(self) -> Iterator[Problem]:
        fields: dict[str, Sequence[str]] = {
            "features": self.features,
            "core": self.params.core or (),
            "attributes": self.attributes,
        }
        for field, names in fields.items():
            for position, name in enumerate(names):
                if name not in self._known:
                    yield _no_column(f"{field}/{position}", name)
        for position, form in enumerate(self.params.conditionals or ()):
            if form.column not in self._known:
                yield _no_column(f"conditionals/{position}/column", form.column)

    def _features(self) -> Iterator[Problem]:
        if not self.features:
            yield Problem(
                "/params/features",
                "no column is named for the mixture",
                "name columns of numbers, dates or times, or choose a preset",
            )
        if self.params.core == ():
            yield Problem("/params/core", "no column is named", "name at least one, or leave it")
        for position, name in enumerate(self.features):
            if name in self._known and self._known[name].type == "string":
                yield Problem(
                    f"/params/features/{position}",
                    f"`{name}` holds text, of which no mixture can be fitted",
                    "name columns of numbers, dates or times; text may be in `core`",
                )
        if len(set(self.features)) != len(self.features):
            yield Problem("/params/features", "a column is named twice", "name each column once")

    def _unsplit(self) -> Iterator[Problem]:
        parts = len(self.question_cells)
        if self.params.release == "split" and len(self._split) != parts:
            yield Problem(
                "/params/split",
                f"{len(self._split)} parts of epsilon are given for {parts} histograms",
                "give one for the archetypes, each attribute, and the rows per entity",
            )


def _no_column(place: str, name: str) -> Problem:
    return Problem(
        f"/params/{place}",
        f"there is no column `{name}`",
        "name columns of the data dictionary, without the entity column",
    )


def _repeated(columns: Sequence[str]) -> Iterator[Problem]:
    for name in dict.fromkeys(columns):
        if columns.count(name) > 1:
            yield Problem(
                "/params",
                f"`{name}` is drawn more than once",
                "name each column once in `core`, `attributes` and `conditionals`",
            )


def _out_of_order(
    core: Sequence[str], attributes: Sequence[str], chain: Sequence[tuple[str, Sequence[str]]]
) -> Iterator[Problem]:
    drawn = {*core, *attributes}
    for position, (column, given) in enumerate(chain):
        for place, name in enumerate(given):
            if name not in drawn:
                yield Problem(
                    f"/params/conditionals/{position}/given/{place}",
                    f"`{name}` is not drawn before `{column}`",
                    "name columns of `core`, of `attributes`, or earlier in the list",
                )
        drawn.add(column)

"""The form of `public_reweighted`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from app.engine.columns.axes import ChosenColumns, OwnBins
from app.engine.columns.contribution import ContributionForm
from app.engine.columns.private_bins import (
    USUAL_BINS_SHARE,
    USUAL_VALUES_SHARE,
    BinsShare,
    ValuesShare,
)
from app.engine.method import Params
from app.engine.method.params import PresetParams
from app.engine.privacy.queries import Contribution
from app.engine.privacy.sensitivity import LARGEST_CLIPPED
from app.engine.privacy.unit_budget import UnitBudget
from app.engine.schema import PrivacyUnit

# What becomes of public entities beside a model of rows.
PublicEntityUse = Literal["auto", "keep", "group"]

# Of one entity's counts in a histogram, where nothing else is asked for.
USUAL_NORM = 7

SPRINT3: Mapping[str, Any] = {
    "measure": [["pickup_community_area", "dropoff_community_area"]],
    "watch": ["shift", "pickup_community_area", "dropoff_community_area"],
    "pool": ["trip_total", "trip_seconds"],
    "keep": ["shift"],
}

Columns = Annotated[tuple[str, ...], Field(min_length=1, max_length=8)]


class Shares(Params):
    """How the budget is divided; only the proportions matter."""

    size: float = Field(0.03, gt=0, le=1e6, description="How many rows, or entities by rows.")
    one_way: float = Field(
        0.05, gt=0, le=1e6, description="Histograms of the watched columns, one by one."
    )
    scores: float = Field(
        0.1, gt=0, le=1e6, description="How far the public table is off in each candidate."
    )
    counts: float = Field(0.82, gt=0, le=1e6, description="The chosen histograms.")


class PublicReweightedParams(PresetParams):
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {"sprint3": SPRINT3}

    preset: Literal["sprint3"] | None = Field(
        None,
        description="`sprint3`: the map is measured, and trips are redrawn among those of a like "
        "total and duration. Other params override it.",
    )
    columns: ChosenColumns = None
    bins: OwnBins = Field(default_factory=dict)
    bins_share: BinsShare = USUAL_BINS_SHARE
    values_share: ValuesShare = USUAL_VALUES_SHARE
    measure: tuple[Columns, ...] | None = Field(
        None,
        min_length=1,
        max_length=1000,
        description="Histograms to measure. If omitted, those of one and two columns are "
        "candidates, and noisy scores choose where the public table is off.",
    )
    watch: tuple[str, ...] | None = Field(
        None,
        description="Columns whose values are looked for that the public table lacks; all with at "
        "most `most_cells` cells if omitted, none if empty.",
    )
    shares: Shares = Field(
        default_factory=Shares,
        description="How the budget is divided, beside what bins and values take.",
    )
    contribution: ContributionForm | None = Field(
        None,
        description="How much one privacy unit counts in each histogram. If omitted, all rows on "
        "a row unit; on an entity unit `clipped` to norm 7, or `distinct` with limit 7 under "
        "a pure guarantee. Scores of an entity unit count distinct cells.",
    )
    smooth: float | None = Field(
        None,
        ge=0,
        le=1,
        description="The share of the uses of a public row in which its content is redrawn; "
        "0.5 on an entity unit, 0 on a row unit.",
    )
    pool: Columns | None = Field(
        None,
        description="Contents are redrawn from public rows that agree in these columns, the last "
        "of which are given up where they leave too few rows. If omitted, the column that "
        "says most about the others in the public table, and those in which nearly every public "
        "entity has one value alone.",
    )
    keep: tuple[str, ...] | None = Field(
        None,
        description="Columns beside those of `pool` that stay with the entity when a content is "
        "redrawn. If omitted, the column that the others say least about.",
    )
    mixed: float | None = Field(
        None,
        ge=0,
        le=0.9,
        description="The share of the public table's weight that is given, before anything is "
        "measured, to rows with the contents of other pools, so that combinations that the "
        "public table lacks can be weighted too; 0.1 on an entity unit, 0 on a row unit.",
    )
    fewest_in_pool: int = Field(
        2, ge=1, le=1_000_000, description="Rows that a pool has at least, unless none is left."
    )
    most_cells: int = Field(
        200_000, ge=4, le=10_000_000, description="The most cells of a candidate."
    )

    def rule(self, budget: UnitBudget) -> Contribution:
        if self.contribution is not None:
            return self.contribution.contribution()
        unit = budget.unit
        if unit.kind == "row":
            return Contribution()
        if budget.loss.kind == "pure" or unit.max_rows >= LARGEST_CLIPPED:
            return Contribution("distinct", limit=USUAL_NORM)
        return Contribution("clipped", norm=float(min(USUAL_NORM, unit.max_rows)))

    def redrawn(self, unit: PrivacyUnit) -> float:
        if self.smooth is not None:
            return self.smooth
        return 0.5 if unit.kind == "entity" else 0.0

    def mixing(self, unit: PrivacyUnit) -> float:
        if self.mixed is not None:
            return self.mixed
        return 0.1 if unit.kind == "entity" else 0.0

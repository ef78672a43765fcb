"""The form of `linked_histograms`, and its preset."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field

from app.engine.columns.axes import Bins
from app.engine.method import Params
from app.engine.method.params import PresetParams
from app.engine.synthesizers.linked_histograms.tuning import TUNING


class SteppedBins(Params):
    """Bins of width `step` below `top`, then one bin for all above, filled only up to `max`.

    Edges are the multiples of `step`; what lies below the first is a bin of its own.
    """

    top: float = Field(allow_inf_nan=False, description="Where the last bin starts.")
    step: float = Field(gt=0, allow_inf_nan=False, description="Width of the bins below `top`.")
    max: float = Field(allow_inf_nan=False, description="The largest value drawn in the last bin.")


class GroupForm(Params):
    """Columns that are counted, and drawn, together."""

    columns: tuple[str, ...] = Field(min_length=1, description="Columns of one joint histogram.")
    per: Literal["row", "entity"] = Field(
        "row", description="Whether a synthetic entity draws once, or once for each of its rows."
    )
    cells: Literal["declared", "discovered"] = Field(
        "declared",
        description="`declared`: every cell is counted; `discovered`: those that many entities "
        "have, for domains too large to count. Half of delta is set aside for it.",
    )


class LinkForm(Params):
    """A column that is paired by rank with its expected value, given other columns."""

    given: tuple[str, ...] = Field(
        min_length=1,
        max_length=4,
        description="The expected value depends on these columns, in order.",
    )
    value: str = Field(
        description="A column of numbers; its group is put in the order of expected values."
    )
    expected: Literal["public", "bought"] = Field(
        "public",
        description="`public`: means of a public dataset; `bought`: noisy private ones, measured "
        "with a part of the budget.",
    )
    low: float | None = Field(
        None, allow_inf_nan=False, description="Private means: values are clipped up to this."
    )
    high: float | None = Field(
        None, allow_inf_nan=False, description="Private means: values are clipped down to this."
    )


class TotalForm(Params):
    """A column that is the sum of others."""

    total: str = Field(description="The column that is made.")
    parts: tuple[str, ...] = Field(min_length=1, description="The columns that are added up.")


SPRINT3: dict[str, Any] = {
    "groups": [
        {"columns": ["shift", "pickup_community_area", "dropoff_community_area"]},
        {"columns": ["company_id", "payment_type"], "per": "entity"},
        {"columns": ["fare", "tips", "trip_seconds", "trip_miles"]},
    ],
    "bins": {
        "fare": {"top": 55, "step": 5, "max": 100},
        "tips": {"top": 22, "step": 2, "max": 50},
        "trip_seconds": {"top": 5100, "step": 100, "max": 10000},
        "trip_miles": {"top": 22, "step": 2, "max": 50},
    },
    "links": [
        {"given": ["pickup_community_area", "dropoff_community_area"], "value": "trip_seconds"}
    ],
    "totals": [{"total": "trip_total", "parts": ["fare", "tips"]}],
    "most_rows": TUNING.most_rows,
}


class LinkedHistogramsParams(PresetParams):
    presets: ClassVar[dict[str, dict[str, Any]]] = {"sprint3": SPRINT3}

    preset: Literal["sprint3"] | None = Field(
        None, description="Published columns and bins; other params take precedence."
    )
    groups: tuple[GroupForm, ...] | None = Field(
        None,
        max_length=64,
        description="Groups of columns, no column in two; each column alone if omitted.",
    )
    bins: dict[str, SteppedBins | Bins] = Field(
        default_factory=dict, description="Bins of a column, in place of its dictionary's."
    )
    samples: int | None = Field(
        None,
        ge=1,
        le=1_000_000,
        description="The most distinct cells of one entity that count in a histogram; 10 below "
        "epsilon 5 (under rho: what that is at delta 1e-5), else 30.",
    )
    most_rows: int = Field(
        TUNING.most_rows,
        ge=1,
        le=100_000,
        description="Rows per entity are counted up to this; the last cell is this or more.",
    )
    noise: Literal["gaussian", "laplace"] | None = Field(
        None,
        description="The kind of noise that must be used; `laplace` is for guarantees without a "
        "delta.",
    )
    post_processing: Literal["project", "clip"] = Field(
        "project",
        description="`project`: nearest counts that can be real; `clip`: negative ones become 0.",
    )
    prior: Literal["public", "independent", "none"] | None = Field(
        None,
        description="What noisy counts are pooled with: `public` counts, the default if a public "
        "dataset is named; else, with `project`, those of `independent` columns; or `none`.",
    )
    links: tuple[LinkForm, ...] = Field(
        (), max_length=16, description="Columns paired by rank, in order."
    )
    expected_share: float = Field(
        TUNING.means_share,
        gt=0,
        lt=1,
        description="Part of the budget for noisy private means, if a link has any.",
    )
    totals: tuple[TotalForm, ...] | None = Field(
        None,
        max_length=16,
        description="Columns made as sums; by default those of the dictionary's `sum` rules.",
    )

    @property
    def discovers(self) -> bool:
        return any(group.cells == "discovered" for group in self.groups or ())

    def uses_prior(self, has_public: bool) -> bool:
        """Whether counts are pooled with public ones, if there are some or not."""
        return self.prior == "public" or (self.prior is None and has_public)

    def reads_public(self, has_public: bool) -> bool:
        """Whether public rows are needed, for a prior or for expected values."""
        of_links = any(link.expected == "public" for link in self.links)
        return of_links or self.uses_prior(has_public)

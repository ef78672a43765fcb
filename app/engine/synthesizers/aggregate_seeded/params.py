"""The form of `aggregate_seeded`, with the names that the published package gives its options."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from app.engine.columns.axes import OwnBins
from app.engine.method import Params
from app.engine.method.params import PresetParams
from app.engine.synthesizers.aggregate_seeded.tuning import TUNING

MOST_LENGTH = 6
_Positive = Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)]
Eta = Annotated[float, Field(gt=0, le=1)]
Bound = Annotated[float, Field(ge=0, le=1e12, allow_inf_nan=False)]


class FixedThresholds(Params):
    """Combinations of k items are kept above `values[k - 2]`, k = 2 to R."""

    type: Literal["fixed"] = Field(description="Thresholds are counts.")
    values: tuple[Bound, ...] = Field(description="A count for each length from 2.")


class AdaptiveThresholds(Params):
    """`values[k - 2]` is eta_k: the probability that the noise of an empty combination lies beyond
    the threshold, on both sides of 0."""

    type: Literal["adaptive"] = Field(description="Thresholds follow the noise.")
    values: tuple[Eta, ...] = Field(description="eta_k in (0, 1] for each length from 2.")


Custom = Annotated[FixedThresholds | AdaptiveThresholds, Field(discriminator="type")]
Completion = Literal["required", "all", "counted"]
Mode = Literal["uncontrolled", "progressive", "balanced", "minimise", "graded"]


class AggregateSeededParams(PresetParams):
    preset: Literal["sprint3"] | None = Field(
        None, description="A named set-up; other params override it."
    )
    columns: tuple[str, ...] | None = Field(None, description="Columns; all if omitted.")
    bins: OwnBins = Field(default_factory=dict)
    reporting_length: int = Field(
        3, ge=1, le=MOST_LENGTH, description="R: the most items of a combination that is counted."
    )
    percentile_percentage: int = Field(
        99, ge=1, le=100, description="The percentile of combinations per unit that all count."
    )
    percentile_epsilon_proportion: float = Field(
        TUNING.percentiles, gt=0, lt=1, description="Part of the loss for the percentiles."
    )
    number_of_records_epsilon_proportion: float | None = Field(
        None,
        gt=0,
        lt=1,
        description="Part of the loss for the number of rows (and entities): 0.005, or 0.06 on "
        "an entity unit, whose rows are counted with more noise.",
    )
    sigma_proportions: Literal["long", "short", "balanced"] | tuple[_Positive, ...] = Field(
        "long",
        description="Noise of each length before its sensitivity: `long` 1/k, `short` "
        "1/(R - k + 1), `balanced` 1, or R numbers.",
    )
    fabrication_mode: Mode | Custom = Field(
        "graded",
        description="How many empty combinations are kept: eta_k is 1 (`uncontrolled`), 0.1 to 1 "
        "(`progressive`), 0.55 then 1 (`balanced`), 0.01 (`minimise`), 0.01 for pairs and ten "
        "times as much for each length more (`graded`), or your own.",
    )
    delta: float | None = Field(
        None,
        gt=0,
        lt=1,
        description="Keep single items above the published threshold rho_1 at this delta; none "
        "is needed with a declared domain, and none is spent.",
    )
    use_synthetic_counts: bool = Field(
        False, description="Subtract combinations of rows made so far from the counts that weigh."
    )
    weight_selection_percentile: float = Field(
        95.0, gt=0, le=100, description="Of the counts of all combinations that an item adds."
    )
    aggregate_counts_scale_factor: float = Field(
        1.0, gt=0, le=1000, description="All counts are multiplied by this before synthesis."
    )
    target_number_of_records: int | None = Field(
        None, ge=1, le=20_000_000, description="Rows where a request names none."
    )
    sensitive_zeros: tuple[str, ...] | None = Field(
        None,
        description="Columns whose zeros are values; zeros of the others mean that the value is "
        "absent. All columns if omitted.",
    )
    multi_value_columns: dict[str, Annotated[str, Field(min_length=1, max_length=8)]] = Field(
        default_factory=dict,
        description="Separators of columns of text whose values are lists: each part is an item.",
    )
    item_shares: Literal["singles", "with_pairs"] | None = Field(
        None,
        description="How often an item of a required column is used: by its own count "
        "(`singles`, the default on a row unit), or by the mean of that share and its share in "
        "the counted pairs (`with_pairs`, the default on an entity unit, which counts once for "
        "an item of many rows).",
    )
    complete: Completion = Field(
        "required",
        description="Columns whose open places are filled: those that cannot be empty, or `all`. "
        "`counted`: none; a row that cannot be completed from counted combinations is dropped and "
        "tried again, and fewer rows come out, or none, where these leave too few.",
    )

    presets: ClassVar = {
        "sprint3": {
            "reporting_length": 2,
            "percentile_percentage": 5,
            "weight_selection_percentile": 10.0,
            "fabrication_mode": "uncontrolled",
            "columns": (
                "shift",
                "company_id",
                "pickup_community_area",
                "dropoff_community_area",
                "payment_type",
                "fare",
                "tips",
                "trip_total",
                "trip_seconds",
                "trip_miles",
            ),
            "bins": {
                "fare": [0, *range(10, 100, 10)],
                "tips": [0, *range(10, 100, 10)],
                "trip_total": [0, *range(10, 100, 10)],
                "trip_seconds": list(range(0, 2000, 200)),
                "trip_miles": [0, *range(10, 100, 10)],
            },
        }
    }

    @model_validator(mode="after")
    def _one_number_a_length(self) -> AggregateSeededParams:
        length = self.reporting_length
        if isinstance(self.sigma_proportions, tuple) and len(self.sigma_proportions) != length:
            raise ValueError("`sigma_proportions` has one number for each length from 1")
        custom = self.fabrication_mode
        if not isinstance(custom, str) and len(custom.values) != length - 1:
            raise ValueError("`fabrication_mode` has one value for each length from 2")
        return self

    @property
    def proportions(self) -> tuple[float, ...]:
        """p_k, k = 1 to R."""
        lengths = range(1, self.reporting_length + 1)
        match self.sigma_proportions:
            case "long":
                return tuple(1 / length for length in lengths)
            case "short":
                return tuple(1 / (self.reporting_length - length + 1) for length in lengths)
            case "balanced":
                return tuple(1.0 for _ in lengths)
            case given:
                return given

    @property
    def etas(self) -> tuple[float, ...] | None:
        """eta_k, k = 2 to R; None where thresholds are fixed."""
        lengths = self.reporting_length - 1
        match self.fabrication_mode:
            case "uncontrolled":
                return (1.0,) * lengths
            case "minimise":
                return (0.01,) * lengths
            case "graded":
                eta, factor = TUNING.graded_eta, TUNING.graded_factor
                return tuple(min(eta * factor**step, 1.0) for step in range(lengths))
            case "balanced":
                return (0.55, *(1.0,) * (lengths - 1))[:lengths]
            case "progressive":
                return tuple(0.1 + 0.9 * step / max(lengths - 1, 1) for step in range(lengths))
            case AdaptiveThresholds(values=values):
                return values
            case _:
                return None

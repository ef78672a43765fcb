"""The form of `swift`."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from app.engine.synthesizers.axes import Bins
from app.engine.synthesizers.base import Params
from app.engine.synthesizers.bought import (
    USUAL_BINS_SHARE,
    USUAL_VALUES_SHARE,
    BinsShare,
    ValuesShare,
)
from app.engine.synthesizers.contribution import AllRows, ContributionForm

TARGET_WEIGHT = 3.0

Weight = Annotated[float, Field(ge=1e-6, le=1e6, allow_inf_nan=False)]


class Shares(Params):
    """How the budget is divided; only the proportions matter."""

    one_way: float = Field(gt=0, le=1e6, description="One-way histograms, and the size.")
    scores: float = Field(gt=0, le=1e6, description="How far each pair is from independence.")
    two_way: float = Field(gt=0, le=1e6, description="Histograms of the chosen pairs.")


class SwiftParams(Params):
    columns: tuple[str, ...] | None = Field(
        None, description="Columns of the synthetic table; all columns if omitted."
    )
    bins: dict[str, Bins] = Field(
        default_factory=dict, description="Bins of a column, in place of its dictionary's."
    )
    bins_share: BinsShare = USUAL_BINS_SHARE
    values_share: ValuesShare = USUAL_VALUES_SHARE
    column_weights: dict[str, Weight] = Field(
        default_factory=dict,
        description="Multiplies the weight of each pair that holds the column; 1 if omitted.",
    )
    target: str | None = Field(None, description="A column whose pairs weigh three times as much.")
    shares: Shares | None = Field(
        None,
        description="How the budget is divided, beside what is bought. If omitted, 0.05 goes to "
        "scores and about a quarter to one_way, more where the guarantee is small and less where "
        "it is large.",
    )
    rare_below: float = Field(
        2.0,
        ge=0,
        le=1000,
        description="Cells below this many standard errors are merged before pairs are counted.",
    )
    most_cells: int = Field(
        1_000_000,
        ge=4,
        le=5_000_000,
        description="The most cells of the junction tree, and of all measured pairs together.",
    )
    contribution: ContributionForm = Field(
        default_factory=AllRows,
        description="How much one privacy unit counts in each histogram. "
        "The scores always count rows.",
    )

    def weight(self, pair: tuple[str, str]) -> float:
        """How much the error of a pair counts beside the others'."""
        weight = 1.0
        for name in pair:
            weight *= self.column_weights.get(name, 1.0)
            weight *= TARGET_WEIGHT if name == self.target else 1.0
        return weight

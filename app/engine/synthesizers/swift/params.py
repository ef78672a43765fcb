"""The form of `swift`."""

from __future__ import annotations

from pydantic import Field

from app.engine.graphical.params import TableParams, Weight
from app.engine.method import Params
from app.engine.synthesizers.swift.tuning import TUNING


class Shares(Params):
    """How the budget is divided; only the proportions matter."""

    one_way: float = Field(gt=0, le=1e6, description="One-way histograms, and the size.")
    scores: float = Field(gt=0, le=1e6, description="How far each pair is from independence.")
    two_way: float = Field(gt=0, le=1e6, description="Histograms of the chosen pairs.")


class SwiftParams(TableParams):
    column_weights: dict[str, Weight] = Field(
        default_factory=dict,
        description="Multiplies the weight of each pair that holds the column; 1 if omitted.",
    )
    target: str | None = Field(
        None,
        description="A column whose pairs weigh three times as much. If omitted, pairs that hold "
        "a column of two cells are counted a little more exactly than others.",
    )
    shares: Shares | None = Field(
        None,
        description="How the budget is divided, beside what bins, values and entities take. If "
        "omitted, 0.05 goes to scores (0.1 with a public dataset) and about a quarter to one_way: "
        "more where the guarantee is small or noise would hide the columns, by a noisy number of "
        "rows, and less where it is large.",
    )
    most_cells: int | None = Field(
        None,
        ge=4,
        le=5_000_000,
        description="The most cells of the junction tree; all measured pairs together have no "
        "more, nor more than 2,000,000. If omitted, 2,000,000, and 5,000,000 for 25 to 50 columns "
        "without a public dataset.",
    )

    def weight(self, pair: tuple[str, str]) -> float:
        """How much the error of a pair counts beside the others'."""
        weight = 1.0
        for name in pair:
            weight *= self.column_weights.get(name, 1.0)
            weight *= TUNING.target_weight if name == self.target else 1.0
        return weight

    def emphasis(self, cells: int) -> float:
        """What multiplies the share of a pair whose smaller column has so many cells.

        A table is mostly used to predict a column of two cells, whose pairs would get least by
        their size.
        """
        return TUNING.outcome_emphasis if self.target is None and cells <= 2 else 1.0

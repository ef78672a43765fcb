"""The form of `aim`."""

from __future__ import annotations

from pydantic import Field

from app.engine.columns.axes import Axes
from app.engine.graphical.params import TableParams, Weight
from app.engine.method import Params
from app.engine.synthesizers.aim.workload import Workload, usual_degree

LARGEST_DEGREE = 4


class Shares(Params):
    """How the budget is divided; only the proportions matter."""

    one_way: float = Field(gt=0, le=1e6, description="One-way histograms, and the size.")
    selection: float = Field(gt=0, le=1e6, description="Choosing marginals.")
    marginals: float = Field(gt=0, le=1e6, description="Histograms of the chosen marginals.")
    bounds: float = Field(
        ge=0,
        le=1e6,
        description="Measuring, at the end, how far the model is from each marginal; with 0 the "
        "release states no expected errors.",
    )


class WorkloadMarginal(Params):
    """A marginal that the synthetic table is to answer well."""

    columns: tuple[str, ...] = Field(
        min_length=1, max_length=LARGEST_DEGREE, description="Columns counted together."
    )
    weight: Weight = Field(1.0, description="How much its error counts beside the others'.")


class AimParams(TableParams):
    degree: int | None = Field(
        None,
        ge=1,
        le=LARGEST_DEGREE,
        description="The workload is all marginals of so many columns; 3 if omitted, or 2 where "
        "there would be over 8,000 of three.",
    )
    workload: tuple[WorkloadMarginal, ...] | None = Field(
        None,
        min_length=1,
        max_length=8000,
        description="Marginals to answer well, in place of all of a degree.",
    )
    column_weights: dict[str, Weight] = Field(
        default_factory=dict,
        description="Multiplies the weight of each marginal that holds the column; 1 if omitted.",
    )
    target: str | None = Field(
        None, description="A column whose marginals weigh four times as much."
    )
    shares: Shares | None = Field(
        None,
        description="How the budget is divided. If omitted, about a quarter goes to one_way, more "
        "where the noise is large and less where it is small, 0.04 to bounds, and a tenth of "
        "the rest to selection.",
    )
    rare_below: float = Field(
        1.5,
        ge=0,
        le=1000,
        description="Cells below this many standard errors are merged before marginals are "
        "counted.",
    )
    most_cells: int = Field(
        200_000,
        ge=4,
        le=2_000_000,
        description="The most cells of the junction tree, and of one measured marginal.",
    )
    winners: int = Field(
        3, ge=1, le=20, description="The most marginals that are chosen and measured in a round."
    )


def workload_of(axes: Axes, params: AimParams) -> Workload:
    if params.workload is None:
        degree = params.degree or usual_degree(len(axes.names))
        return Workload.of_degree(axes.names, degree, params.column_weights, params.target)
    return Workload.of(
        axes.names,
        [each.columns for each in params.workload],
        [each.weight for each in params.workload],
        params.column_weights,
        params.target,
    )

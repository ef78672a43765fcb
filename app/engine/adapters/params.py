"""Params of synthesizers that wrap the methods of other libraries."""

from __future__ import annotations

from pydantic import Field

from app.engine.columns.axes import OwnBins
from app.engine.method import Params

# A fitted model crosses the pipe to the worker in one message.
MOST_MODEL_MIB = 40


class AdaptedParams(Params):
    """What every adapted method takes; none of it is computed from the private table."""

    columns: tuple[str, ...] | None = Field(
        None, description="Columns of the synthetic table, two or more; all columns if omitted."
    )
    bins: OwnBins = Field(default_factory=dict)


class AimParams(AdaptedParams):
    degree: int = Field(
        2, ge=2, le=3, description="How many columns each marginal of the workload has."
    )
    max_cells: int = Field(
        10_000, ge=4, le=1_000_000, description="Marginals with more cells are left out."
    )
    max_model_mib: float = Field(
        8,
        gt=0,
        le=MOST_MODEL_MIB,
        description="Upper limit on the size of the library's model, in MiB.",
    )


_COMPRESS = "Whether values that do not stand out from the noise are merged."
_ITERATIONS = "Maximum number of iterations of each fit of the library's model."


class DpmmAimParams(AimParams):
    compress: bool = Field(True, description=_COMPRESS)
    iterations: int = Field(1000, ge=1, le=100_000, description=_ITERATIONS)


class MstParams(AdaptedParams):
    compress: bool = Field(True, description=_COMPRESS)
    iterations: int = Field(5000, ge=1, le=100_000, description=_ITERATIONS)

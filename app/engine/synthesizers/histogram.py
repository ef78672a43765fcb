"""`histogram`: one noisy count for every cell of chosen columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from app.engine.columns.axes import Axes, OwnBins
from app.engine.columns.contribution import (
    AllRows,
    ContributionForm,
    contribution_problems,
    expected_errors,
    noise_scale,
)
from app.engine.columns.private_bins import (
    USUAL_BINS_SHARE,
    USUAL_VALUES_SHARE,
    BinsShare,
    ValuesShare,
    delta_for_values,
    plan_axes,
)
from app.engine.columns.table_size import Size, pooled, size_questions, size_weights
from app.engine.inference.projection import onto_simplex
from app.engine.inference.rounding import apportion, round_keeping_margins, shuffled_cells
from app.engine.inference.shrinkage import CountNoise, shrink_counts
from app.engine.method import (
    Case,
    CountsTable,
    Example,
    Model,
    Needs,
    Problem,
    Progress,
    Session,
    Synthesizer,
)
from app.engine.method.model_file import ModelFormatError, pack, unpack
from app.engine.method.model_file import counts as stored_counts
from app.engine.method.needs import bounded
from app.engine.method.params import PresetParams
from app.engine.privacy.queries import Contribution, Count, Measurement
from app.engine.privacy.unit_budget import UnitBudget
from app.engine.privacy.wire import narrowed
from app.engine.schema import PrivacyUnit, Schema
from app.engine.table import PublicTable, Table, generator

# Their noise takes over eight minutes to draw, and all that is held of them 1.6 GB.
MOST_CELLS = 10_000_000

# An array of NumPy 1 has no more axes. Of two cells each, 24 columns pass `MOST_CELLS` already.
MOST_COLUMNS = 32

# Counts, noise and their copy through the pipe, then expected counts and the order of rounding.
_BYTES_PER_CELL = 160

# The published map: 278 neighbourhoods by 12 months by 174 types in the challenge's dictionary.
SPRINT1: Mapping[str, Any] = {"columns": ("neighborhood", "month", "incident_type")}


class HistogramParams(PresetParams):
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {"sprint1": SPRINT1}

    preset: Literal["sprint1"] | None = Field(
        None,
        description="`sprint1`: the columns `neighborhood`, `month` and `incident_type`, as the "
        "dictionary declares them. Other params override it.",
    )
    columns: tuple[str, ...] | None = Field(
        None, description="Columns of the histogram; all columns if omitted."
    )
    bins: OwnBins = Field(default_factory=dict)
    bins_share: BinsShare = USUAL_BINS_SHARE
    values_share: ValuesShare = USUAL_VALUES_SHARE
    post_processing: Literal["project", "clip", "threshold"] = Field(
        "project",
        description="`project`: nearest non-negative counts with the noisy total; `clip`: "
        "negative counts become 0; `threshold`: counts below a bound become 0.",
    )
    prior: Literal["independent", "none"] = Field(
        "independent",
        description="What `project` shrinks noisy counts towards, the more the noisier they are: "
        "`independent` columns, each with its noisy distribution; or `none`.",
    )
    threshold: float = Field(
        3.0, ge=0, le=1000, description="The bound of `threshold`, in standard errors of a cell."
    )
    contribution: ContributionForm = Field(
        default_factory=AllRows, description="How much one privacy unit counts."
    )


@dataclass(frozen=True)
class HistogramModel(Model):
    """Non-negative whole counts, shape `axes.shape`, and the noisy size of the table."""

    axes: Axes
    contribution: Contribution
    values: NDArray[np.int64]
    size: Size

    def counts(self) -> CountsTable:
        return CountsTable(
            Count(self.axes.names, self.axes.groupings, self.contribution), self.values
        )

    @property
    def noisy_rows(self) -> int:
        return self.size.rows

    def sample(self, rows: int | None, rng: np.random.Generator) -> Table:
        rows = self.size.rows if rows is None else rows
        weights = self.values.astype(np.float64)
        if not weights.any():
            weights = np.ones(self.axes.shape)
        cells = shuffled_cells(apportion(weights, rows, rng), rng)
        positions = np.unravel_index(cells, self.axes.shape)
        codes = {
            name: grouping.expand(position.astype(np.int64), rng)
            for (name, grouping), position in zip(
                self.axes.groupings.items(), positions, strict=True
            )
        }
        return Table(codes, rows, self.size.deal(rows, rng))

    def dump(self) -> bytes:
        header = {
            "model": "histogram",
            "axes": self.axes.to_json(),
            "contribution": {
                "rule": self.contribution.rule,
                "limit": self.contribution.limit,
                "norm": self.contribution.norm,
            },
            "size": self.size.to_json(),
        }
        return pack(header, {"counts": narrowed(self.values)})


class Histogram(Synthesizer):
    name = "histogram"
    title = "Noisy histogram over chosen columns"
    reference = "The baseline of the NIST Temporal Map Challenge (2020), with bounded contribution"
    outputs = ("rows", "counts")
    Params = HistogramParams
    example = Example(
        params={"columns": ["shift", "payment_type"], "post_processing": "project"},
    )

    def needs(self, case: Case, params: HistogramParams) -> Needs:
        plan = plan_axes(case.schema, params, case.budget, far_cuts=0)
        axes, budget = plan.axes, plan.rest
        contribution = params.contribution.contribution()
        problems = plan.problems + contribution_problems(contribution, budget)
        errors = expected_errors(
            _questions(axes, contribution, case.unit), _weights(contribution, budget), budget
        )
        cells = bounded(axes.cells)
        return Needs.of_table(len(axes.names), case.limits) + Needs(
            cells=cells,
            memory_bytes=cells * _BYTES_PER_CELL,
            draws=cells + plan.draws,
            header_cells=axes.header_cells,
            noise_scale=noise_scale(errors, contribution),
            expected_error=errors[0],
            problems=problems + _cell_problems(axes),
        )

    def delta_share(self, params: HistogramParams, schema: Schema) -> float:
        return delta_for_values(schema, params)

    def fit(
        self,
        session: Session,
        params: HistogramParams,
        public: PublicTable | None,  # noqa: ARG002
        seed: int,
        progress: Progress,
    ) -> HistogramModel:
        contribution = params.contribution.contribution()
        allowance = UnitBudget(session.unit, session.allowance)
        plan = plan_axes(session.schema, params, allowance, far_cuts=0)
        progress(0.02, "measuring bins")
        axes, budget = plan.measure(session), plan.left(session)
        progress(0.05, "counting")
        answers = session.count(
            _questions(axes, contribution, session.unit),
            budget.loss,
            _weights(contribution, budget),
        )
        progress(0.7, "post-processing")
        histogram, size_answers = answers[0], answers[1:]
        size = Size.from_answers(session.unit, _rows(histogram, size_answers[0]), size_answers)
        values = _post_processed(histogram, size, params, generator(seed))
        return HistogramModel(axes, contribution, values, size)

    def load(self, schema: Schema, unit: PrivacyUnit, data: bytes) -> HistogramModel:
        header, arrays = unpack(data)
        axes = Axes.from_json(header.get("axes"), schema)
        values = stored_counts(arrays, "counts", axes.shape)
        contribution = _stored_contribution(header.get("contribution"))
        return HistogramModel(axes, contribution, values, Size.from_json(header.get("size"), unit))


def _questions(axes: Axes, contribution: Contribution, unit: PrivacyUnit) -> tuple[Count, ...]:
    return (Count(axes.names, axes.groupings, contribution), *size_questions(unit))


def _weights(contribution: Contribution, budget: UnitBudget) -> tuple[float, ...]:
    sizes = size_weights(contribution, budget)
    return (1 - sum(sizes), *sizes)


def _cell_problems(axes: Axes) -> tuple[Problem, ...]:
    if len(axes.names) > MOST_COLUMNS:
        message = f"the histogram would have {len(axes.names)} columns; {MOST_COLUMNS} are the most"
    elif axes.cells > MOST_CELLS:
        cells = bounded(axes.cells)
        message = f"the histogram would have {cells} cells; {MOST_CELLS} are the most"
    else:
        return ()
    return (Problem("/params/columns", message, "choose fewer columns, or coarser `bins`"),)


def _rows(histogram: Measurement, rows: Measurement) -> float:
    """The noisy number of rows; where cells count rows, pooled with the sum of the cells."""
    direct = (float(rows.values), rows.variance)
    if histogram.count.contribution.rule != "rows":
        return direct[0]
    cells_sum = float(histogram.values.sum())
    return pooled([direct, (cells_sum, histogram.variance * histogram.values.size)])


def _post_processed(
    histogram: Measurement, size: Size, params: HistogramParams, rng: np.random.Generator
) -> NDArray[np.int64]:
    if params.post_processing == "clip":
        return np.maximum(histogram.values, 0)
    if params.post_processing == "threshold":
        bound = params.threshold * histogram.standard_error
        return np.where(histogram.values >= max(bound, 1), histogram.values, 0)
    counts_rows = histogram.count.contribution.rule == "rows"
    total = size.rows if counts_rows else max(0, int(histogram.values.sum()))
    if not total:
        return np.zeros_like(histogram.values)
    if params.prior == "none":
        return apportion(onto_simplex(histogram.values.astype(np.float64), total), total, rng)
    noise = CountNoise(histogram.noise, histogram.scale, histogram.variance)
    return round_keeping_margins(
        shrink_counts(histogram.values, noise, total).with_total(total), total, rng
    )


def _stored_contribution(wire: Any) -> Contribution:
    try:
        return Contribution(wire["rule"], wire["limit"], wire["norm"])
    except (TypeError, KeyError, ValueError) as error:
        raise ModelFormatError("the stored model has no valid contribution") from error

"""`independent`: every column's noisy histogram, and columns drawn independently."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from app.engine.inference.rounding import apportion, shuffled_cells
from app.engine.privacy.loss import PrivacyLoss
from app.engine.schema import PrivacyUnit, Schema
from app.engine.synthesizers import one_way
from app.engine.synthesizers.archive import ModelFormatError, pack, unpack
from app.engine.synthesizers.archive import weights as stored_weights
from app.engine.synthesizers.axes import Axes, Bins
from app.engine.synthesizers.base import (
    Limits,
    Params,
    Preflight,
    Progress,
    PublicFacts,
    PublicTable,
    Session,
    Table,
)
from app.engine.synthesizers.bought import (
    USUAL_BINS_SHARE,
    USUAL_VALUES_SHARE,
    USUAL_WITHIN_BINS,
    BinsShare,
    ValuesShare,
    WithinBins,
    delta_for_values,
    plan_axes,
)
from app.engine.synthesizers.columns import in_rows
from app.engine.synthesizers.contribution import (
    AllRows,
    ContributionForm,
    contribution_problems,
    expected_errors,
    noise_problems,
)
from app.engine.synthesizers.forecast import message_problems, run_problems, table_bytes
from app.engine.synthesizers.shapes import (
    Shape,
    expanded,
    shape_arrays,
    shapes_of,
    shapes_to_json,
    stored_shapes,
)
from app.engine.synthesizers.size import Size

_BYTES_PER_CELL = 80


class IndependentParams(Params):
    columns: tuple[str, ...] | None = Field(
        None, description="Columns of the synthetic table; all columns if omitted."
    )
    bins: dict[str, Bins] = Field(
        default_factory=dict, description="Bins of a column, in place of its dictionary's."
    )
    bins_share: BinsShare = USUAL_BINS_SHARE
    within_bins: WithinBins = USUAL_WITHIN_BINS
    values_share: ValuesShare = USUAL_VALUES_SHARE
    contribution: ContributionForm = Field(
        default_factory=AllRows, description="How much one privacy unit counts in each column."
    )


@dataclass(frozen=True)
class IndependentModel:
    """Shares of each column's cells, in the order of the axes, each adding up to 1, and how rows
    lie within cells."""

    axes: Axes
    shares: tuple[NDArray[np.float64], ...]
    size: Size
    shapes: Mapping[str, Shape] = field(default_factory=dict)

    @property
    def noisy_rows(self) -> int:
        return self.size.rows

    def sample(self, rows: int | None, rng: np.random.Generator) -> Table:
        """Each column is apportioned, then shuffled by itself, so columns are independent."""
        rows = self.size.rows if rows is None else rows
        codes = {
            name: expanded(
                name,
                shuffled_cells(apportion(shares, rows, rng), rng),
                self.axes,
                self.shapes,
                rng,
            )
            for name, shares in zip(self.axes.names, self.shares, strict=True)
        }
        return Table(codes, rows, self.size.deal(rows, rng))

    def dump(self) -> bytes:
        header = {
            "model": "independent",
            "axes": self.axes.to_json(),
            "size": self.size.to_json(),
            "pieces": shapes_to_json(self.shapes),
        }
        shares = {f"shares{i}": shares for i, shares in enumerate(self.shares)}
        return pack(header, shares | shape_arrays(self.shapes))


class Independent:
    name = "independent"
    title = "Independent columns from noisy one-way histograms"
    reference = "The product-of-marginals baseline, e.g. Ping, Stoyanovich and Howe (2017)"
    Params = IndependentParams

    def check(
        self,
        schema: Schema,
        unit: PrivacyUnit,
        params: IndependentParams,
        loss: PrivacyLoss,
        public: PublicFacts | None,  # noqa: ARG002
        limits: Limits,
    ) -> Preflight:
        plan = plan_axes(schema, unit, params, loss, within_bins=params.within_bins)
        axes, loss = plan.axes, plan.rest
        contribution = params.contribution.contribution()
        problems = plan.problems + contribution_problems(contribution, unit, loss)
        cells = sum(axes.shape)
        memory = cells * _BYTES_PER_CELL + table_bytes(len(axes.names), limits)
        problems += run_problems(memory, cells + plan.draws, limits) + message_problems(
            axes, 8 * cells
        )
        if not axes.names:
            return Preflight(0, memory, 0.0, problems)
        errors = expected_errors(
            one_way.questions(axes, contribution, unit),
            one_way.shares(axes, contribution, unit, loss),
            unit,
            loss,
        )
        problems += noise_problems(errors, contribution)
        return Preflight(cells, memory, errors[0], problems)

    def delta_for_values(self, params: IndependentParams, schema: Schema) -> float:
        return delta_for_values(schema, params)

    def fit(
        self,
        session: Session,
        params: IndependentParams,
        public: PublicTable | None,  # noqa: ARG002
        seed: int,  # noqa: ARG002
        progress: Progress,
    ) -> IndependentModel:
        plan = plan_axes(
            session.schema,
            session.unit,
            params,
            session.allowance,
            within_bins=params.within_bins,
        )
        progress(0.02, "buying cells")
        axes, loss = plan.buy(session), plan.left(session)
        progress(0.05, "counting columns")
        measured = one_way.measure_one_ways(session, axes, params.contribution.contribution(), loss)
        shares = measured.shares()
        rows = {
            name: part * measured.size.rows for name, part in zip(axes.names, shares, strict=True)
        }
        pieces = [in_rows(answer, measured.size) for answer in measured.pieces]
        return IndependentModel(axes, shares, measured.size, shapes_of(axes, pieces, rows))

    def load(self, schema: Schema, unit: PrivacyUnit, data: bytes) -> IndependentModel:
        header, arrays = unpack(data)
        axes = Axes.from_json(header.get("axes"), schema)
        shares = tuple(
            stored_weights(arrays, f"shares{i}", (cells,)) for i, cells in enumerate(axes.shape)
        )
        if any(not np.isclose(column.sum(), 1) for column in shares):
            raise ModelFormatError("the stored model's shares do not add up")
        size = Size.from_json(header.get("size"), unit)
        shapes = stored_shapes(header.get("pieces"), arrays, axes, schema)
        return IndependentModel(axes, shares, size, shapes)

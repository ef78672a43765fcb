"""`independent`: every column's noisy histogram, and columns drawn independently."""

from __future__ import annotations

from dataclasses import dataclass

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
    BinsShare,
    ValuesShare,
    delta_for_values,
    plan_axes,
)
from app.engine.synthesizers.contribution import (
    AllRows,
    ContributionForm,
    contribution_problems,
    expected_errors,
    noise_problems,
)
from app.engine.synthesizers.forecast import message_problems, run_problems, table_bytes
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
    values_share: ValuesShare = USUAL_VALUES_SHARE
    contribution: ContributionForm = Field(
        default_factory=AllRows, description="How much one privacy unit counts in each column."
    )


@dataclass(frozen=True)
class IndependentModel:
    """Shares of each column's cells, in the order of the axes, each adding up to 1."""

    axes: Axes
    shares: tuple[NDArray[np.float64], ...]
    size: Size

    @property
    def noisy_rows(self) -> int:
        return self.size.rows

    def sample(self, rows: int | None, rng: np.random.Generator) -> Table:
        """Each column is apportioned, then shuffled by itself, so columns are independent."""
        rows = self.size.rows if rows is None else rows
        codes = {
            name: grouping.expand(shuffled_cells(apportion(shares, rows, rng), rng), rng)
            for (name, grouping), shares in zip(
                self.axes.groupings.items(), self.shares, strict=True
            )
        }
        return Table(codes, rows, self.size.deal(rows, rng))

    def dump(self) -> bytes:
        header = {
            "model": "independent",
            "axes": self.axes.to_json(),
            "size": self.size.to_json(),
        }
        return pack(header, {f"shares{i}": shares for i, shares in enumerate(self.shares)})


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
        plan = plan_axes(schema, unit, params, loss)
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
        plan = plan_axes(session.schema, session.unit, params, session.allowance)
        progress(0.02, "buying cells")
        axes, loss = plan.buy(session), plan.left(session)
        progress(0.05, "counting columns")
        measured = one_way.measure_one_ways(session, axes, params.contribution.contribution(), loss)
        return IndependentModel(axes, measured.shares(), measured.size)

    def load(self, schema: Schema, unit: PrivacyUnit, data: bytes) -> IndependentModel:
        header, arrays = unpack(data)
        axes = Axes.from_json(header.get("axes"), schema)
        shares = tuple(
            stored_weights(arrays, f"shares{i}", (cells,)) for i, cells in enumerate(axes.shape)
        )
        if any(not np.isclose(column.sum(), 1) for column in shares):
            raise ModelFormatError("the stored model's shares do not add up")
        return IndependentModel(axes, shares, Size.from_json(header.get("size"), unit))

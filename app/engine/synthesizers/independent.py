"""`independent`: every column's noisy histogram, and columns drawn independently."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.engine.columns import one_way
from app.engine.columns.axes import Axes
from app.engine.columns.estimates import in_rows
from app.engine.columns.private_bins import delta_for_values
from app.engine.columns.table_size import Size
from app.engine.columns.within_bins import (
    WithinBinDensity,
    densities_of,
    densities_to_json,
    density_arrays,
    expanded,
    stored_densities,
)
from app.engine.entities.model import Entities, Grouper
from app.engine.graphical.params import PreparationParams
from app.engine.graphical.preparation import one_way_errors, plan_preparation, prepare
from app.engine.inference.rounding import apportion, shuffled_cells
from app.engine.method import (
    Case,
    Example,
    Model,
    Needs,
    Progress,
    PublicFacts,
    Session,
    Synthesizer,
)
from app.engine.method.model_file import ModelFormatError, pack, unpack
from app.engine.method.model_file import weights as stored_weights
from app.engine.schema import PrivacyUnit, Schema
from app.engine.table import PublicTable, Table

# Counts, probabilities, the rows made of them, and their copies through the pipe.
_BYTES_PER_CELL = 80


class IndependentParams(PreparationParams):
    """Nothing beside what every method that prepares a table takes."""


@dataclass(frozen=True)
class IndependentModel(Model):
    """Probabilities of each column's cells, in the order of the axes, and how rows lie within
    cells. `entities`, where they were measured, group the rows."""

    axes: Axes
    probabilities: tuple[NDArray[np.float64], ...]
    size: Size
    densities: Mapping[str, WithinBinDensity] = field(default_factory=dict)
    entities: Entities | None = None

    @property
    def noisy_rows(self) -> int:
        return self.size.rows

    def sample(self, rows: int | None, rng: np.random.Generator) -> Table:
        """Each column is apportioned, then shuffled by itself, so columns are independent."""
        rows = self.size.rows if rows is None else rows
        grouper = Grouper(self.entities, self.size, rows)
        codes = {}
        for name, weights in zip(self.axes.names, self.probabilities, strict=True):
            cells = shuffled_cells(apportion(weights, rows, rng), rng)
            grouper.see(name, cells)
            codes[name] = expanded(name, cells, self.axes, self.densities, rng)
        return Table(codes, rows, grouper.owner(rng))

    def dump(self) -> bytes:
        header: dict[str, Any] = {
            "model": "independent",
            "axes": self.axes.to_json(),
            "size": self.size.to_json(),
            "pieces": densities_to_json(self.densities),
        }
        arrays = {f"shares{i}": column for i, column in enumerate(self.probabilities)}
        arrays |= density_arrays(self.densities)
        if self.entities is not None:
            header["entities"] = list(self.entities.columns)
            arrays |= self.entities.to_arrays()
        return pack(header, arrays)


class Independent(Synthesizer):
    name = "independent"
    title = "Independent columns from noisy one-way histograms"
    reference = "The product-of-marginals baseline, e.g. Ping, Stoyanovich and Howe (2017)"
    Params = IndependentParams
    example = Example(
        guarantee={"epsilon": "0.5"},
        rows=10000,
    )
    auto_rank = 30

    def auto_reason(self, columns: int, unit: PrivacyUnit, public: PublicFacts | None) -> str:
        del columns, unit, public
        return "`independent` measures each column alone, which any table allows"

    def needs(self, case: Case, params: IndependentParams) -> Needs:
        plan = plan_preparation(case, params)
        cells = sum(plan.axes.shape)
        needs = plan.needs + Needs(memory_bytes=cells * _BYTES_PER_CELL, message_bytes=8 * cells)
        if not plan.axes.names:
            return needs
        return needs + plan.noise(one_way_errors(plan.axes, plan.contribution, plan.budget))

    def delta_share(self, params: IndependentParams, schema: Schema) -> float:
        return delta_for_values(schema, params)

    def fit(
        self,
        session: Session,
        params: IndependentParams,
        public: PublicTable | None,  # noqa: ARG002
        seed: int,  # noqa: ARG002
        progress: Progress,
    ) -> IndependentModel:
        prepared = prepare(session, params, progress)
        axes = prepared.axes
        progress(0.05, "counting columns")
        measured = one_way.measure_one_ways(
            session, axes, prepared.contribution, prepared.budget.loss, prepared.size
        )
        probabilities = measured.shares()
        rows = {
            name: column * measured.size.rows
            for name, column in zip(axes.names, probabilities, strict=True)
        }
        sub_bins = [in_rows(answer, measured.size) for answer in measured.sub_bins]
        densities = densities_of(axes, sub_bins, rows)
        entities = None if prepared.entities is None else prepared.entities.entities
        return IndependentModel(axes, probabilities, measured.size, densities, entities)

    def load(self, schema: Schema, unit: PrivacyUnit, data: bytes) -> IndependentModel:
        header, arrays = unpack(data)
        axes = Axes.from_json(header.get("axes"), schema)
        probabilities = tuple(
            stored_weights(arrays, f"shares{i}", (cells,)) for i, cells in enumerate(axes.shape)
        )
        if any(not np.isclose(column.sum(), 1) for column in probabilities):
            raise ModelFormatError("the probabilities of a stored column do not add up to 1")
        size = Size.from_json(header.get("size"), unit)
        densities = stored_densities(header.get("pieces"), arrays, axes, schema)
        entities = Entities.from_stored(header, arrays, axes, unit)
        return IndependentModel(axes, probabilities, size, densities, entities)

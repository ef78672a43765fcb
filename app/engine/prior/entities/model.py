"""The fitted model: public rows with their weights, and how they are drawn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.engine.method import Model
from app.engine.method.model_file import ModelFormatError, integers, number, pack, unpack, weights
from app.engine.prior.entities.sampling import WeightedRows, assembled_rows
from app.engine.privacy.wire import narrowed
from app.engine.public.stored import code_arrays, stored_codes, stored_starts
from app.engine.schema import PrivacyUnit, Schema
from app.engine.table import Table

NAME = "public_reweighted"


@dataclass(frozen=True)
class PublicReweightedModel(Model):
    """codes: a private code of each atom of `weighted`. kept: the columns that
    stay with the entity when a content is redrawn. units: the noisy number of entities (of rows
    on a row unit). method: the name of the synthesizer that fitted it."""

    unit: PrivacyUnit
    codes: dict[str, NDArray[np.int64]]
    kept: tuple[str, ...]
    weighted: WeightedRows
    units: int
    smooth: float
    method: str = NAME

    @property
    def rows_each(self) -> float:
        """Rows of an entity, drawn by weight."""
        shares = self.weighted.entities / self.weighted.entities.sum()
        return float(shares @ self.weighted.sizes)

    @property
    def noisy_rows(self) -> int:
        return min(round(self.units * self.rows_each), self.units * self.unit.max_rows)

    def sample(self, rows: int | None, rng: np.random.Generator) -> Table:
        """`rows` rows; None: those of the noisy number of entities."""
        most = self.unit.max_rows
        if rows is None:
            entities, wanted = self.units, self.noisy_rows
        else:
            entities = round(rows / max(self.rows_each, 1e-9))
            entities = max(entities, -(-rows // most), min(rows, 1))
            wanted = rows
        if not wanted:
            return self._table(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.int64))
        made = assembled_rows(self.weighted, min(entities, wanted), wanted, most, self.smooth, rng)
        return self._table(made.slots, made.contents, made.entity)

    def _table(
        self, slots: NDArray[np.int64], contents: NDArray[np.int64], entity: NDArray[np.int64]
    ) -> Table:
        codes = {
            name: column[slots if name in self.kept else contents]
            for name, column in self.codes.items()
        }
        return Table(codes, len(slots), entity if self.unit.kind == "entity" else None)

    def dump(self) -> bytes:
        header = {
            "model": self.method,
            "atoms": "public",
            "columns": list(self.codes),
            "kept": list(self.kept),
            "units": self.units,
            "smooth": self.smooth,
        }
        arrays = code_arrays(self.codes) | {
            "sizes": narrowed(np.diff(self.weighted.starts)),
            "entities": self.weighted.entities,
            "rows": self.weighted.rows,
            "pool": narrowed(self.weighted.pool),
            "place": narrowed(self.weighted.place),
            "alike": narrowed(self.weighted.alike),
        }
        return pack(header, arrays)


def holds_public_entities(data: bytes) -> bool:
    """Whether a stored model is one of public rows; raises `ModelFormatError` for no model."""
    return unpack(data)[0].get("atoms") == "public"


def load_model(
    schema: Schema, unit: PrivacyUnit, data: bytes, method: str = NAME
) -> PublicReweightedModel:
    """A stored model of `method`. Raises `ModelFormatError` for one of another dictionary or
    unit."""
    header, arrays = unpack(data)
    if header.get("model") != method or header.get("atoms") != "public":
        raise ModelFormatError("the stored model is of another synthesizer")
    smooth = header.get("smooth")
    if not isinstance(smooth, int | float) or not 0 <= smooth <= 1:
        raise ModelFormatError("the stored model has no valid `smooth`")
    starts = stored_starts(arrays, unit)
    codes = stored_codes(header.get("columns"), arrays, schema)
    atoms = len(next(iter(codes.values())))
    if atoms < starts[-1]:
        raise ModelFormatError("the stored model has entities without rows")
    kept = header.get("kept")
    if not isinstance(kept, list) or not all(isinstance(name, str) for name in kept):
        raise ModelFormatError("the stored model has no valid `kept`")
    weighted = WeightedRows(
        starts,
        weights(arrays, "entities", (len(starts) - 1,)),
        weights(arrays, "rows", (atoms,)),
        *(_labels(arrays, name, atoms) for name in ("pool", "place", "alike")),
    )
    if not (weighted.entities > 0).all() or not weighted.rows.sum() > 0:
        raise ModelFormatError("the stored model has no entity to draw")
    return PublicReweightedModel(
        unit, codes, tuple(kept), weighted, number(header, "units"), float(smooth), method
    )


def _labels(arrays: Mapping[str, NDArray[Any]], name: str, atoms: int) -> NDArray[np.int64]:
    labels = integers(arrays, name, least=0, most=atoms)
    if len(labels) != atoms:
        raise ModelFormatError(f"`{name}` of the stored model is of another length")
    return labels

"""The model that `mst`, `swift` and `aim` fit: a graphical model over merged cells."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.engine.columns.axes import Axes
from app.engine.columns.rare_cells import Compression
from app.engine.columns.table_size import Size
from app.engine.columns.within_bins import (
    WithinBinDensity,
    densities_to_json,
    density_arrays,
    expanded,
    stored_densities,
)
from app.engine.entities.model import Entities, Grouper
from app.engine.inference.model import GraphicalModel
from app.engine.method import Model
from app.engine.method.model_file import ModelFormatError, pack, unpack
from app.engine.method.model_file import weights as stored_weights
from app.engine.schema import PrivacyUnit, Schema
from app.engine.table import Table


@dataclass(frozen=True)
class TableModel(Model):
    """A distribution over merged cells, and how each column is restored to its own cells.

    Cells with small noisy counts are merged before pairs are measured (`compressions`).
    `method` is the name of the synthesizer that fitted the model, `densities` describe how rows
    are spread within a bin. `entities`, where they were measured, group the rows.
    """

    method: str
    axes: Axes
    compressions: tuple[Compression, ...]
    graph: GraphicalModel
    size: Size
    densities: Mapping[str, WithinBinDensity] = field(default_factory=dict)
    entities: Entities | None = None

    @property
    def noisy_rows(self) -> int:
        return self.size.rows

    def sample(self, rows: int | None, rng: np.random.Generator) -> Table:
        rows = self.size.rows if rows is None else rows
        cells = self.graph.sample(rows, rng)
        grouper = Grouper(self.entities, self.size, rows)
        codes = {}
        for name, compression in zip(self.axes.names, self.compressions, strict=True):
            restored = compression.restore(cells.pop(name), rng)
            codes[name] = expanded(name, restored, self.axes, self.densities, rng)
            grouper.see(name, restored)
        return Table(codes, rows, grouper.owner(rng))

    def marginals(self, asked: Sequence[tuple[str, ...]]) -> list[NDArray[np.float64]]:
        """Shares of the cells of `axes`, over each set of axes asked, in the order asked."""
        return list(self.each_marginal(asked))

    def each_marginal(self, asked: Sequence[tuple[str, ...]]) -> Iterator[NDArray[np.float64]]:
        """`marginals` one by one, so that not all are held at once. The caller may modify each."""
        within = dict(zip(self.axes.names, self.compressions, strict=True))
        for names, table in zip(asked, self.graph.each_marginal(asked), strict=True):
            for axis, name in enumerate(names):
                along = [-1 if i == axis else 1 for i in range(len(names))]
                table = table.take(within[name].merge, axis)
                table *= within[name].shares.reshape(along)
            yield table

    def dump(self) -> bytes:
        header: dict[str, Any] = {
            "model": self.method,
            "axes": self.axes.to_json(),
            "size": self.size.to_json(),
            # The key of stored models, older than the name `densities`.
            "pieces": densities_to_json(self.densities),
        }
        arrays: dict[str, NDArray[np.int64] | NDArray[np.float64]] = dict(self.graph.arrays())
        for i, compression in enumerate(self.compressions):
            arrays[f"merge{i}"] = compression.merge
            arrays[f"merged_shares{i}"] = compression.shares
        arrays |= density_arrays(self.densities)
        if self.entities is not None:
            header["entities"] = list(self.entities.columns)
            arrays |= self.entities.to_arrays()
        return pack(header, arrays)

    @classmethod
    def load(cls, method: str, schema: Schema, unit: PrivacyUnit, data: bytes) -> TableModel:
        """A stored model of `method`. Validates all that it reads; raises `ModelFormatError`."""
        header, arrays = unpack(data)
        if header.get("model") != method:
            raise ModelFormatError(f"the stored model was fitted by another method than `{method}`")
        axes = Axes.from_json(header.get("axes"), schema)
        compressions = tuple(
            _stored_compression(arrays, i, cells) for i, cells in enumerate(axes.shape)
        )
        shape = {
            name: compression.merged_cells
            for name, compression in zip(axes.names, compressions, strict=True)
        }
        try:
            graph = GraphicalModel.from_arrays(shape, arrays)
        except ValueError as error:
            raise ModelFormatError("the stored model's tables do not fit together") from error
        size = Size.from_json(header.get("size"), unit)
        densities = stored_densities(header.get("pieces"), arrays, axes, schema)
        entities = Entities.from_stored(header, arrays, axes, unit)
        return cls(method, axes, compressions, graph, size, densities, entities)


def _stored_compression(
    arrays: Mapping[str, NDArray[Any]], position: int, cells: int
) -> Compression:
    merge = arrays.get(f"merge{position}")
    if merge is None or merge.dtype != np.int64 or merge.shape != (cells,):
        raise ModelFormatError("the stored model merges cells that do not exist")
    if (merge < 0).any() or (merge >= cells).any():
        raise ModelFormatError("the stored model merges cells that do not exist")
    shares = stored_weights(arrays, f"merged_shares{position}", (cells,))
    return Compression.stored(merge.astype(np.int64), shares)

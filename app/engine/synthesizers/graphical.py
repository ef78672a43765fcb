"""The model that `mst`, `swift` and `aim` fit: a graphical model over merged cells."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.engine.inference.model import GraphicalModel
from app.engine.schema import PrivacyUnit, Schema
from app.engine.synthesizers.archive import ModelFormatError, pack, unpack
from app.engine.synthesizers.archive import weights as stored_weights
from app.engine.synthesizers.axes import Axes
from app.engine.synthesizers.base import Table
from app.engine.synthesizers.compression import Compression
from app.engine.synthesizers.size import Size


@dataclass(frozen=True)
class TableModel:
    """A distribution over merged cells, and how each column is restored to its own cells.

    `method` is the name of the synthesizer that fitted it.
    """

    method: str
    axes: Axes
    compressions: tuple[Compression, ...]
    graph: GraphicalModel
    size: Size

    def sample(self, rows: int | None, rng: np.random.Generator) -> Table:
        rows = self.size.rows if rows is None else rows
        cells = self.graph.sample(rows, rng)
        codes = {
            name: grouping.expand(compression.restore(cells.pop(name), rng), rng)
            for (name, grouping), compression in zip(
                self.axes.groupings.items(), self.compressions, strict=True
            )
        }
        return Table(codes, rows, self.size.deal(rows, rng))

    def dump(self) -> bytes:
        header = {
            "model": self.method,
            "axes": self.axes.to_json(),
            "size": self.size.to_json(),
        }
        arrays: dict[str, NDArray[np.int64] | NDArray[np.float64]] = dict(self.graph.arrays())
        for i, compression in enumerate(self.compressions):
            arrays[f"rare{i}"] = compression.rare
            arrays[f"rare_shares{i}"] = compression.rare_shares
        return pack(header, arrays)

    @classmethod
    def load(cls, method: str, schema: Schema, unit: PrivacyUnit, data: bytes) -> TableModel:
        """A model of `method` that was dumped; raises `ModelFormatError`. Trusts nothing."""
        header, arrays = unpack(data)
        if header.get("model") != method:
            raise ModelFormatError(f"the stored model is not of `{method}`")
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
        return cls(method, axes, compressions, graph, Size.from_json(header.get("size"), unit))


def _stored_compression(
    arrays: Mapping[str, NDArray[Any]], position: int, cells: int
) -> Compression:
    rare = arrays.get(f"rare{position}")
    if rare is None or rare.dtype != np.int64 or rare.ndim != 1:
        raise ModelFormatError("the stored model merges impossible cells")
    shares = stored_weights(arrays, f"rare_shares{position}", rare.shape)
    return Compression.stored(cells, rare.astype(np.int64), shares)

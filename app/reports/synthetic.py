"""The synthetic side of a comparison: a release's first sample, stored compactly in memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.engine.schema import Schema
from app.engine.table import Table

_ROWS_AT_ONCE = 2**17


@dataclass(frozen=True)
class SyntheticRows:
    """Codes in the columns' own small types; `owner` is the number of each row's entity."""

    codes: Mapping[str, NDArray[Any]]
    rows: int
    owner: NDArray[np.int64] | None

    @classmethod
    def of(cls, parts: Iterable[Table], schema: Schema) -> SyntheticRows:
        """The rows of a sample that comes in parts, one at least, in the dictionary's order."""
        held: dict[str, list[NDArray[Any]]] = {}
        owners: list[NDArray[np.int64]] = []
        rows = 0
        for part in parts:
            rows += part.rows
            for column in schema.columns:
                if column.name in part.codes:
                    compact = part.codes[column.name].astype(column.dtype)
                    held.setdefault(column.name, []).append(compact)
            if part.entity is not None:
                owners.append(part.entity)
        codes = {name: np.concatenate(arrays) for name, arrays in held.items()}
        return cls(codes, rows, _numbered(owners) if owners else None)

    def chunks(self, columns: Sequence[str]) -> Iterator[dict[str, NDArray[Any]]]:
        for part in self._parts():
            yield {name: self.codes[name][part] for name in columns}

    def owners(self) -> Iterator[NDArray[np.int64]]:
        if self.owner is None:
            raise ValueError("a row unit has no entities")
        for part in self._parts():
            yield self.owner[part]

    def _parts(self) -> Iterator[slice]:
        for first in range(0, self.rows, _ROWS_AT_ONCE):
            yield slice(first, min(first + _ROWS_AT_ONCE, self.rows))


def _numbered(owners: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    """Numbers without gaps: an entity without rows does not count."""
    _, numbers = np.unique(np.concatenate(owners), return_inverse=True)
    return numbers.reshape(-1).astype(np.int64)

"""The first sample as a statement sees it: compact codes, in bounded memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.engine.schema import Schema
from app.engine.table import Table

# Rows times columns. A million rows of 64 columns fit; of a larger table every second, fourth, ...
# row (or entity) is kept, whose own sampling error is far below what can be stated.
MOST_VALUES = 2**26


@dataclass(frozen=True)
class SampleRows:
    """Codes of each column, int, shape (rows,), and on an entity unit the entity of each row.

    made: how many rows the sample has, of which these are all or an even choice.
    """

    codes: Mapping[str, NDArray[Any]]
    rows: int
    made: int
    owner: NDArray[np.int64] | None


@dataclass
class KeptRows:
    """Takes the rows of a sample as they pass; `rows` gives what it kept of them."""

    schema: Schema
    most_values: int = MOST_VALUES
    _parts: list[_Part] = field(default_factory=list)
    _stride: int = 1
    _made: int = 0

    def see(self, part: Table) -> None:
        """The next rows, in order."""
        codes = {
            column.name: part.codes[column.name].astype(column.dtype)
            for column in self.schema.columns
            if column.name in part.codes
        }
        is_row = part.entity is None
        number = np.arange(self._made, self._made + part.rows) if is_row else part.entity
        assert number is not None
        self._made += part.rows
        self._parts.append(_Part(codes, number).every(self._stride))
        while self._values > self.most_values:
            self._stride *= 2
            self._parts = [each.every(self._stride) for each in self._parts]

    @property
    def _values(self) -> int:
        return sum(len(part.number) * len(part.codes) for part in self._parts)

    def rows(self, *, entities: bool) -> SampleRows:
        """What was kept; `entities`: with the entity of each row."""
        names = list(self._parts[0].codes) if self._parts else []
        codes = {name: np.concatenate([p.codes[name] for p in self._parts]) for name in names}
        numbers = [np.zeros(0, np.int64), *(part.number for part in self._parts)]
        owner = np.concatenate(numbers)
        return SampleRows(codes, len(owner), self._made, owner if entities else None)


@dataclass(frozen=True)
class _Part:
    """Codes, and the number of each row or of its entity, by which rows are chosen."""

    codes: Mapping[str, NDArray[Any]]
    number: NDArray[np.int64]

    def every(self, stride: int) -> _Part:
        if stride == 1:
            return self
        kept = self.number % stride == 0
        return _Part({name: codes[kept] for name, codes in self.codes.items()}, self.number[kept])

"""What no private method reaches, and what any should beat: resampled rows, independent columns."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from bench.synthesizers.implementations import Made
from bench.synthesizers.measures import Codes
from bench.synthesizers.tables import CodedTable


def bootstrap(rows: Codes, rng: np.random.Generator) -> Codes:
    """As many real rows, drawn with replacement."""
    count = len(next(iter(rows.values())))
    drawn = rng.integers(0, count, count)
    return {name: column[drawn] for name, column in rows.items()}


def independent(rows: Codes, rng: np.random.Generator) -> Codes:
    """Every column as it is, in an order of its own."""
    return {name: rng.permutation(column) for name, column in rows.items()}


@dataclass(frozen=True, slots=True)
class Reference:
    """A table without any privacy, made of the exact rows."""

    name: str
    draw: Callable[[Codes, np.random.Generator], Codes]
    group: ClassVar[str] = "references"
    private: ClassVar[bool] = False

    def make(self, table: CodedTable, epsilon: str, seed: int) -> Made:
        del epsilon
        started = time.perf_counter()
        codes = self.draw(table.used, np.random.default_rng(seed))
        return Made(codes, time.perf_counter() - started)


REFERENCES = (
    Reference("resampled-rows", bootstrap),
    Reference("separate-columns", independent),
)

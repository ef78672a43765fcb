"""Groupings: public maps from a column's stored codes to the cells that are counted.

A column stores codes `0..regular-1` for its regular values in public order (enum order,
integers from the minimum, grid points of a number or a date), followed by `tail` codes for
its special values, its `other` value and null. A grouping cuts the regular codes at `edges`,
gives each tail code a cell of its own, and may then merge cells by a lookup.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Grouping:
    """`edges` are stored codes in increasing order, from 0 to the number of regular codes.

    Base cells are `[edges[i], edges[i + 1])` in order, then one cell for each tail code.
    `merge`, if given, maps base cell i to cell `merge[i]`; its values are `0..cells-1`, and
    each occurs. Raises `ValueError` for anything else.
    """

    edges: tuple[int, ...]
    tail: int
    merge: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if self.tail < 0 or not self.edges or self.edges[0] != 0:
            raise ValueError("edges must start at code 0, and the tail must not be negative")
        if any(b <= a for a, b in zip(self.edges, self.edges[1:], strict=False)):
            raise ValueError("edges must be strictly increasing")
        if self.base_cells == 0:
            raise ValueError("a grouping needs at least one cell")
        if self.merge is not None:
            if len(self.merge) != self.base_cells:
                raise ValueError("a merge needs a cell for each base cell")
            if min(self.merge) < 0 or len(set(self.merge)) != max(self.merge) + 1:
                raise ValueError("merged cells must be numbered from 0 without gaps")

    @classmethod
    def identity(cls, regular: int, tail: int) -> Grouping:
        """One cell for each stored code."""
        return cls(tuple(range(regular + 1)), tail)

    @classmethod
    def equal(cls, regular: int, tail: int, bins: int) -> Grouping:
        """At most `bins` intervals of regular codes, of nearly equal length."""
        bins = min(bins, regular)
        cuts = [round(i * regular / bins) for i in range(bins + 1)] if bins else [0]
        return cls(tuple(cuts), tail)

    @property
    def regular(self) -> int:
        return self.edges[-1]

    @property
    def codes(self) -> int:
        """How many stored codes the column has."""
        return self.regular + self.tail

    @property
    def base_cells(self) -> int:
        return len(self.edges) - 1 + self.tail

    @cached_property
    def cells(self) -> int:
        return self.base_cells if self.merge is None else max(self.merge) + 1

    @cached_property
    def _lookup(self) -> NDArray[np.int64] | None:
        return None if self.merge is None else np.asarray(self.merge, dtype=np.int64)

    @cached_property
    def _is_identity(self) -> bool:
        return len(self.edges) - 1 == self.regular

    def merged(self, merge: Sequence[int]) -> Grouping:
        """This grouping followed by a map of its cells."""
        current = range(self.base_cells) if self.merge is None else self.merge
        return Grouping(self.edges, self.tail, tuple(int(merge[cell]) for cell in current))

    def cell_of(self, codes: NDArray[Any]) -> NDArray[np.int64]:
        """The cells of an array of stored codes, int64, of the same shape."""
        wide = codes.astype(np.int64)
        if self._is_identity:
            base = wide
        else:
            bins = len(self.edges) - 1
            cuts = np.asarray(self.edges[1:-1], dtype=np.int64)
            base = np.searchsorted(cuts, wide, side="right")
            in_tail = wide >= self.regular
            base[in_tail] = wide[in_tail] - self.regular + bins
        return base if self._lookup is None else self._lookup[base]

    def widths(self) -> NDArray[np.int64]:
        """Number of stored codes in each cell, shape (cells,)."""
        base = np.concatenate([np.diff(self.edges), np.ones(self.tail, dtype=np.int64)])
        if self._lookup is None:
            return base.astype(np.int64)
        return np.bincount(self._lookup, weights=base, minlength=self.cells).astype(np.int64)

    def expand(self, cells: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
        """A random stored code for each of `cells`, uniform over the codes of its cell."""
        starts = np.concatenate(
            [np.asarray(self.edges[:-1]), self.regular + np.arange(self.tail)]
        ).astype(np.int64)
        base_widths = np.concatenate([np.diff(self.edges), np.ones(self.tail)]).astype(np.int64)
        if self._lookup is None:
            return starts[cells] + rng.integers(0, base_widths[cells])
        # Base cells of one merged cell need not adjoin, so their codes are lined up by cell first.
        order = np.argsort(self._lookup, kind="stable")
        ends = np.cumsum(base_widths[order])
        cell_ends = np.cumsum(self.widths())
        offset = cell_ends[cells] - self.widths()[cells] + rng.integers(0, self.widths()[cells])
        slot = np.searchsorted(ends, offset, side="right")
        base = order[slot]
        code: NDArray[np.int64] = starts[base] + offset - (ends[slot] - base_widths[base])
        return code

    def to_json(self) -> dict[str, Any]:
        wire: dict[str, Any] = {"tail": self.tail}
        if self._is_identity:
            wire["regular"] = self.regular
        else:
            wire["edges"] = list(self.edges)
        if self.merge is not None:
            wire["merge"] = list(self.merge)
        return wire

    @classmethod
    def from_json(cls, wire: Mapping[str, Any]) -> Grouping:
        edges = (
            tuple(range(int(wire["regular"]) + 1))
            if "regular" in wire
            else tuple(int(edge) for edge in wire["edges"])
        )
        merge = wire.get("merge")
        return cls(edges, int(wire["tail"]), None if merge is None else tuple(map(int, merge)))

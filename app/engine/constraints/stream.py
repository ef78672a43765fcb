"""The rows of a sample, repaired block by block, and how much that changed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.engine.constraints.repair import Repair, Repaired
from app.engine.schema import Schema
from app.engine.table import Table

# Blocks of about 32 MiB, with rows enough that some are valid and can be donors.
_MOST_ROWS, _FEWEST_ROWS, _VALUES = 2**17, 2**12, 2**22


@dataclass(frozen=True, slots=True)
class Repairs:
    """What repair did to a sample.

    rows: how many rows have other values. redrawn: of these, how many took the columns of
    another row because no smaller change was found. broken: by number of the rule, the rows that
    broke it. distances: for each column that rules name, the total variation distance between
    its one-way marginals before and after, over the dictionary's own cells.
    """

    rows: int
    redrawn: int
    broken: Mapping[int, int]
    distances: Mapping[str, float]

    def to_json(self) -> dict[str, Any]:
        return {
            "rows": self.rows,
            "redrawn": self.redrawn,
            "constraints": [{"number": k, "rows": rows} for k, rows in self.broken.items()],
            "columns": [
                {"name": name, "distance": distance} for name, distance in self.distances.items()
            ],
        }


class RepairedRows:
    """An iterable, once, of the parts of a sample after repair.

    Blocks hold the same rows whatever parts they arrive in, and each has its own random numbers
    from the seed, so that a sample is the same however it was sent. Where no rule names only
    columns of the sample, parts pass unchanged.
    """

    def __init__(self, parts: Iterable[Table], schema: Schema, seed: int) -> None:
        self._parts = iter(parts)
        self._schema = schema
        self._seed = seed
        self._tally: _Tally | None = None

    @property
    def repairs(self) -> Repairs | None:
        """What was done so far; None where no rule applies."""
        return None if self._tally is None else self._tally.repairs()

    def __iter__(self) -> Iterator[Table]:
        first = next(self._parts)
        repair = Repair(self._schema, first.codes)
        if not repair.components:
            yield first
            yield from self._parts
            return
        self._tally = _Tally(self._schema, repair)
        size = max(_FEWEST_ROWS, min(_MOST_ROWS, _VALUES // (len(first.codes) + 1)))
        for number, block in enumerate(_blocks(first, self._parts, size)):
            repaired = repair.repaired(block.codes, _generator(self._seed, number))
            self._tally.add(block, repaired)
            yield Table(dict(repaired.codes), block.rows, block.entity)


class _Tally:
    def __init__(self, schema: Schema, repair: Repair) -> None:
        self._groupings = {
            name: schema.column(name).grouping
            for component in repair.components
            for name in component.columns
        }
        self._moved: dict[str, NDArray[np.int64]] = {}
        self._broken = {number: 0 for each in repair.components for number in each.rules}
        self._all = self._rows = self._redrawn = 0

    def add(self, before: Table, after: Repaired) -> None:
        self._all += before.rows
        self._redrawn += after.redrawn
        for number, rows in after.broken.items():
            self._broken[number] += rows
        other = np.zeros(before.rows, bool)
        for name, grouping in self._groupings.items():
            old, new = before.codes[name][after.changed], after.codes[name][after.changed]
            other[after.changed] |= old != new
            moved = np.bincount(grouping.cell_of(new), minlength=grouping.cells)
            moved -= np.bincount(grouping.cell_of(old), minlength=grouping.cells)
            self._moved[name] = self._moved.get(name, 0) + moved
        self._rows += int(other.sum())

    def repairs(self) -> Repairs:
        distances = {
            name: float(np.abs(moved).sum()) / 2 / max(self._all, 1)
            for name, moved in self._moved.items()
        }
        return Repairs(self._rows, self._redrawn, dict(sorted(self._broken.items())), distances)


def _generator(seed: int, block: int) -> np.random.Generator:
    """Apart from the stream that drew the rows, which has the seed alone."""
    return np.random.Generator(
        np.random.PCG64DXSM(np.random.SeedSequence(seed, spawn_key=(1, block)))
    )


def _blocks(first: Table, rest: Iterator[Table], size: int) -> Iterator[Table]:
    """The same rows in blocks of `size`, the last one smaller; one at least, if with no rows."""
    held, rows = [first], first.rows
    made = False
    while True:
        while rows >= size:
            joined = _joined(held)
            yield _part(joined, 0, size)
            held, rows, made = [_part(joined, size, rows)], rows - size, True
        part = next(rest, None)
        if part is None:
            break
        held.append(part)
        rows += part.rows
    if rows or not made:
        yield _joined(held)


def _part(table: Table, start: int, end: int) -> Table:
    codes = {name: column[start:end] for name, column in table.codes.items()}
    entity = None if table.entity is None else table.entity[start:end]
    return Table(codes, end - start, entity)


def _joined(parts: list[Table]) -> Table:
    if len(parts) == 1:
        return parts[0]
    first = parts[0]
    codes = {name: np.concatenate([part.codes[name] for part in parts]) for name in first.codes}
    owners = [part.entity for part in parts if part.entity is not None]
    entity = np.concatenate(owners) if owners else None
    return Table(codes, sum(part.rows for part in parts), entity)

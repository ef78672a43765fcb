"""What a report draws: shares of cells of the sample beside those of the noisy counts."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.engine.grouping import Grouping
from app.engine.privacy.queries import Contribution
from app.engine.schema import Column
from app.engine.statements.evidence import Answers, Evidence
from app.engine.statements.noisy import Floats

# Bars of a column that an eye can tell apart, and cells of each side of a heat map.
MOST_BARS = 40
MOST_SIDE = 100
# Of a column whose association with others is shown.
_ASSOCIATED_CELLS = 12
OTHERS = "all others"


@dataclass(frozen=True, slots=True)
class ColumnPicture:
    """Shares of the cells of one column: of the sample and, where it was measured, of the noisy
    counts, with the standard error of each. `ordered`: the cells lie along a line."""

    column: str
    cells: Sequence[str]
    ordered: bool
    synthetic: Sequence[float]
    measured: Sequence[float] | None
    error: Sequence[float] | None


@dataclass(frozen=True, slots=True)
class PairPicture:
    """Shares of the cells of a measured pair, a row of numbers for each cell of the first column.

    error: the standard error of a measured share, the largest of all.
    """

    columns: Sequence[str]
    rows: Sequence[str]
    across: Sequence[str]
    synthetic: Sequence[Sequence[float]]
    measured: Sequence[Sequence[float]]
    error: float


@dataclass(frozen=True, slots=True)
class Pictures:
    """associations: Cramer's V of each two columns of the sample, from 0 to 1 (Cramer 1946,
    section 21.9); a row for each of `columns`."""

    columns: Sequence[ColumnPicture]
    pairs: Sequence[PairPicture]
    associations: Sequence[Sequence[float]]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, wire: Mapping[str, Any]) -> Pictures:
        return cls(
            [ColumnPicture(**each) for each in wire["columns"]],
            [PairPicture(**each) for each in wire["pairs"]],
            wire["associations"],
        )

    def to_bytes(self) -> bytes:
        """As they are stored; equal pictures give equal bytes."""
        return zlib.compress(json.dumps(self.to_json(), separators=(",", ":")).encode())

    @classmethod
    def from_bytes(cls, stored: bytes) -> Pictures:
        return cls.from_json(json.loads(zlib.decompress(stored)))


def pictured(
    answers: Answers, columns: Sequence[Column], check: Callable[[], None] = lambda: None
) -> Pictures:
    """Pictures of the columns of a sample and of its measured pairs, in order. `check` is called
    between two of them, and may end it."""
    bars, evidence = [], {}
    for column in columns:
        check()
        counted = answers.about((column.name,))
        evidence[column.name] = None if counted is None else counted.on_grid()
        bars.append(_bars(answers, column, evidence[column.name]))
    pairs = []
    for first, second in combinations(columns, 2):
        check()
        found = answers.about((first.name, second.name))
        if found is not None:
            pairs.append(_pair(first, second, found.on_grid()))
    return Pictures(bars, pairs, list(_associations(answers, columns, check)))


def _bars(answers: Answers, column: Column, evidence: Evidence | None) -> ColumnPicture:
    if evidence is None:
        grouping = column.grouping
        counts = answers.counts.counts((column.name,), (grouping,), Contribution())
        measured = variance = None
    else:
        grouping = evidence.noisy.groupings[0]
        counts, measured = evidence.synthetic, evidence.noisy.values
        variance = np.broadcast_to(evidence.noisy.variance, measured.shape)
    parts = _parts(column, grouping, counts, MOST_BARS)
    rows = max(evidence.total[0], 1.0) if evidence is not None else 1.0
    return ColumnPicture(
        column.name,
        parts.labels,
        column.ranged,
        _shares(parts.sums(counts), counts.sum()),
        None if measured is None else _shares(parts.sums(measured), rows),
        None if variance is None else _shares(np.sqrt(parts.sums(variance)), rows),
    )


def _pair(first: Column, second: Column, evidence: Evidence) -> PairPicture:
    counts, noisy = evidence.synthetic, evidence.noisy
    down = _parts(first, noisy.groupings[0], counts.sum(axis=1), MOST_SIDE)
    across = _parts(second, noisy.groupings[1], counts.sum(axis=0), MOST_SIDE)

    def sums(values: Floats) -> Floats:
        return across.sums(down.sums(values).T).T

    rows = max(evidence.total[0], 1.0)
    variance = sums(np.broadcast_to(noisy.variance, noisy.values.shape))
    return PairPicture(
        (first.name, second.name),
        down.labels,
        across.labels,
        [_shares(row, counts.sum()) for row in sums(counts)],
        [_shares(row, rows) for row in sums(noisy.values)],
        _shares(np.sqrt(variance.max(initial=0.0, keepdims=True)).reshape(-1), rows)[0],
    )


def _associations(
    answers: Answers, columns: Sequence[Column], check: Callable[[], None]
) -> Iterator[list[float]]:
    groupings = [_coarse(column) for column in columns]
    known = np.eye(len(columns))
    for a, b in combinations(range(len(columns)), 2):
        check()
        joint = answers.counts.counts(
            (columns[a].name, columns[b].name), (groupings[a], groupings[b]), Contribution()
        )
        known[a, b] = known[b, a] = cramers_v(joint)
    for row in known:
        yield [round(float(value), 3) for value in row]


def _coarse(column: Column) -> Grouping:
    grouping = column.grouping
    if grouping.cells <= _ASSOCIATED_CELLS:
        return grouping
    # Neighbours together: of categories, whose order means nothing, as well as any other choice.
    step = -(-grouping.cells // _ASSOCIATED_CELLS)
    return grouping.merged([cell // step for cell in range(grouping.cells)])


def cramers_v(joint: Floats) -> float:
    """Cramer's V of a table of counts; 0 where a column has one value alone."""
    total = joint.sum()
    held = joint[joint.sum(axis=1) > 0][:, joint.sum(axis=0) > 0]
    least = min(held.shape, default=0) - 1
    if total <= 0 or least < 1:
        return 0.0
    expected = np.outer(held.sum(axis=1), held.sum(axis=0)) / total
    square = float(((held - expected) ** 2 / expected).sum()) / total
    return float(np.sqrt(min(square / least, 1.0)))


@dataclass(frozen=True, slots=True, eq=False)
class _Parts:
    """Cells put together so that few enough remain: the part of each cell, and their labels."""

    part: NDArray[np.int64]
    labels: list[str]

    def sums(self, values: Floats) -> Floats:
        """Sums along the first axis."""
        out = np.zeros((len(self.labels), *values.shape[1:]))
        np.add.at(out, self.part, values)
        return out


def _parts(column: Column, grouping: Grouping, counts: Floats, most: int) -> _Parts:
    labels = column.labels(grouping)
    cells = len(labels)
    if cells <= most:
        return _Parts(np.arange(cells), labels)
    if column.ranged:
        # Neighbours of the line, and each special value by itself.
        line = cells - grouping.tail if grouping.merge is None else cells
        step = -(-line // max(most - (cells - line), 1))
        part = np.concatenate([np.arange(line) // step, np.arange(cells - line) + -(-line // step)])
        named = [_span(labels[first : min(first + step, line)]) for first in range(0, line, step)]
        return _Parts(part, [*named, *labels[line:]])
    largest = np.sort(np.argsort(-counts, kind="stable")[: most - 1])
    part = np.full(cells, most - 1)
    part[largest] = np.arange(most - 1)
    return _Parts(part, [*(labels[cell] for cell in largest), OTHERS])


def _span(labels: Sequence[str]) -> str:
    return labels[0] if len(labels) == 1 else f"{labels[0]} to {labels[-1]}"


def _shares(values: Floats, total: float) -> list[float]:
    return [round(float(value), 5) for value in values / max(float(total), 1e-12)]

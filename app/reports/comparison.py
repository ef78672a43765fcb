"""The figures of a report's exact part: synthetic rows compared with the exact ones.

Distances are total variation distances between marginals. Work and memory are bounded: if there
are too many pairs or triples, some are drawn with a public seed; what would need a large table in
memory is left out, and the report lists it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import comb
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from app.engine.grouping import Grouping
from app.engine.marginals import (
    ChunkedTable,
    Marginal,
    chosen,
    counts,
    distances,
    distinct,
    total_variation,
)
from app.engine.method import ExpectedError
from app.engine.schema import PrivacyUnit, Schema
from app.engine.table import Table
from app.reports.combinations import CombinationErrors, PublishedCombinations, compared_combinations
from app.reports.schemas import (
    Broken,
    CombinationFigures,
    Combinations,
    Distance,
    Distances,
    DistinctValues,
    Entities,
    Exact,
    ExpectedAndExact,
    MeasuredDistance,
    Rows,
)

# Fixed and public: the same columns always give the same pairs and triples.
SEED = 20_190_501
# All pairs up to 63 columns.
MOST_PAIRS = 2000
TRIPLES = 100
MOST_LISTED = 100
WORST_TRIPLES = 10
MOST_MEASURED = 1000
MOST_EXPECTED = 1000
# Total cells of the measured marginals that are compared, and likewise of the bounds' marginals. A
# third party may state bounds for any columns, and each of them costs a pass over both tables.
MOST_CELLS = 2**27
# Values (rows times columns) of each table that combinations may be counted in.
MOST_VALUES_IN_MEMORY = 2**25

# Called with a fraction in [0, 1] and the stage; may raise, to stop.
Progress = Callable[[float, str], None]


class ComparedRows(ChunkedTable, Protocol):
    """One side: its rows in chunks, and on an entity unit the entity of each."""

    @property
    def rows(self) -> int: ...

    def owners(self) -> Iterator[NDArray[np.int64]]:
        """For each chunk the numbers of the rows' entities, from 0 without gaps."""
        ...


@dataclass(frozen=True)
class Measured:
    """A marginal that the release measured.

    noisy: its noisy counts, flat, if rows were counted; else None.
    """

    marginal: Marginal
    noisy: NDArray[np.int64] | None = None


@dataclass(frozen=True)
class Subject:
    """What is compared, from public facts: the dictionary, and what the release published.

    columns: those that the release models, in the dictionary's order. measured: the marginals
    that it measured. combinations: where it publishes counts of combinations, these. cells:
    those of the model, in which it states errors, if they are not the dictionary's.
    """

    schema: Schema
    unit: PrivacyUnit
    columns: tuple[str, ...]
    measured: tuple[Measured, ...]
    expected: tuple[ExpectedError, ...]
    combinations: PublishedCombinations | None
    cells: Mapping[str, Grouping] = field(default_factory=dict)

    @property
    def unmodelled(self) -> tuple[str, ...]:
        return tuple(
            column.name for column in self.schema.columns if column.name not in self.columns
        )

    def marginal(self, columns: Sequence[str]) -> Marginal:
        """In the cells of the dictionary."""
        return Marginal({name: self.schema.column(name).grouping for name in columns})

    def stated_cells(self, columns: Sequence[str]) -> Marginal:
        """In the cells in which the model states errors.

        Where it names none: those of each column's first measurement, else the dictionary's.
        """
        known = {**self.marginal(columns).groupings, **self._as_measured, **self.cells}
        return Marginal({name: known[name] for name in columns})

    @cached_property
    def _as_measured(self) -> Mapping[str, Grouping]:
        used: dict[str, Grouping] = {}
        for measured in self.measured:
            # The first measurement of a column decides.
            used = {**measured.marginal.groupings, **used}
        return used


def compared(
    real: ComparedRows, synthetic: ComparedRows, subject: Subject, progress: Progress
) -> Exact:
    """Every figure of the exact part. Reads both tables a few dozen times."""
    comparison = _Comparison(real, synthetic, subject)
    progress(0.0, "columns")
    columns = comparison.listed([(name,) for name in subject.columns])
    progress(0.1, "pairs")
    pairs = comparison.drawn(2, MOST_PAIRS, MOST_LISTED)
    progress(0.4, "triples")
    triples = comparison.drawn(3, TRIPLES, WORST_TRIPLES)
    progress(0.6, "measured marginals")
    measured = comparison.measured()
    expected = comparison.expected()
    progress(0.7, "constraints")
    constraints = comparison.constraints()
    progress(0.75, "entities")
    entities = comparison.entities()
    progress(0.85, "combinations")
    return Exact(
        rows=Rows(real=real.rows, synthetic=synthetic.rows),
        columns=columns,
        pairs=pairs,
        triples=triples,
        measured=measured,
        expected=expected,
        entities=entities,
        constraints=constraints,
        combinations=comparison.combinations(),
        left_out=comparison.left_out(),
    )


class _Comparison:
    def __init__(self, real: ComparedRows, synthetic: ComparedRows, subject: Subject) -> None:
        self._sides = (real, synthetic)
        self._subject = subject
        self._stated = [
            each for each in subject.expected if set(each.columns) <= set(subject.columns)
        ]
        of_stated = (subject.stated_cells(each.columns).cells for each in self._stated)
        of_measured = (each.marginal.cells for each in subject.measured)
        self._expected = _affordable(of_stated, MOST_EXPECTED)
        self._measured = _affordable(of_measured, MOST_MEASURED)

    def distances(self, marginals: Sequence[Marginal]) -> list[Distance]:
        found = distances(*self._sides, marginals)
        return [
            Distance(columns=list(marginal.columns), cells=marginal.cells, distance=distance)
            for marginal, distance in zip(marginals, found, strict=True)
        ]

    def listed(self, choices: Sequence[tuple[str, ...]]) -> list[Distance]:
        return self.distances([self._subject.marginal(columns) for columns in choices])

    def drawn(self, size: int, most: int, most_listed: int) -> Distances:
        """Of `size` columns each; all choices, or `most` of them."""
        names = self._subject.columns
        found = self.listed(chosen(names, size, most, SEED))
        worst = sorted(found, key=lambda each: -each.distance)
        return Distances(
            possible=comb(len(names), size),
            compared=len(found),
            mean=float(np.mean([each.distance for each in found])) if found else None,
            worst=worst[0] if worst else None,
            listed=worst[:most_listed],
        )

    def measured(self) -> list[MeasuredDistance]:
        measured = [self._subject.measured[place] for place in self._measured]
        marginals = [each.marginal for each in measured]
        exact = counts(self._sides[0], marginals)
        return [
            MeasuredDistance(**distance.model_dump(), noisy=_noisy_distance(real, each.noisy))
            for each, distance, real in zip(measured, self.distances(marginals), exact, strict=True)
        ]

    def expected(self) -> list[ExpectedAndExact]:
        stated_ones = [self._stated[place] for place in self._expected]
        found = self.distances([self._subject.stated_cells(each.columns) for each in stated_ones])
        return [
            ExpectedAndExact(
                columns=list(stated.columns),
                # No two distributions are further apart than 1, so a larger bound says nothing
                # more.
                distance=min(stated.distance, 1.0),
                confidence=stated.confidence,
                exact=exact.distance,
            )
            for stated, exact in zip(stated_ones, found, strict=True)
        ]

    def constraints(self) -> list[Broken]:
        checked = [
            (number, constraint)
            for number, constraint in enumerate(self._subject.schema.constraints)
            if set(constraint.columns) <= set(self._subject.columns)
        ]
        names = tuple(dict.fromkeys(name for _, rule in checked for name in rule.columns))
        if not checked:
            return []
        broken = np.zeros((2, len(checked)), dtype=np.int64)
        for side, table in enumerate(self._sides):
            for chunk in table.chunks(names):
                broken[side] += [int(rule.violations(chunk).sum()) for _, rule in checked]
        return [
            Broken(
                number=number,
                columns=list(dict.fromkeys(rule.columns)),
                real=int(broken[0, place]),
                synthetic=int(broken[1, place]),
            )
            for place, (number, rule) in enumerate(checked)
        ]

    def entities(self) -> Entities | None:
        if self._subject.unit.kind != "entity":
            return None
        owners = [_joined(table.owners()) for table in self._sides]
        sizes = [np.bincount(each) for each in owners]
        return Entities(
            real=len(sizes[0]),
            synthetic=len(sizes[1]),
            rows_per_entity=_distance_of_numbers(*sizes),
            distinct_values=[
                DistinctValues(column=name, distance=self._distinct_values(name, owners))
                for name in self._subject.columns
            ],
        )

    def _distinct_values(self, name: str, owners: Sequence[NDArray[np.int64]]) -> float:
        grouping = self._subject.schema.column(name).grouping
        numbers = []
        for table, owner in zip(self._sides, owners, strict=True):
            cells = _joined(grouping.cell_of(chunk[name]) for chunk in table.chunks([name]))
            # Each pair of entity and cell once; what remains of the number is the entity.
            held = distinct(owner * grouping.cells + cells) // grouping.cells
            numbers.append(np.bincount(held))
        return _distance_of_numbers(*numbers)

    def combinations(self) -> CombinationFigures | None:
        published = self._subject.combinations
        if published is None or not self._fits_memory:
            return None
        real, synthetic = (self._in_memory(table) for table in self._sides)
        errors = compared_combinations(real, synthetic, published)
        return CombinationFigures(
            aggregates=[_combinations(each) for each in errors.aggregates],
            rows=[_combinations(each) for each in errors.rows],
        )

    def _in_memory(self, table: ComparedRows) -> Table:
        names = self._subject.columns
        chunks: list[Mapping[str, NDArray[Any]]] = list(table.chunks(names))
        codes = {name: _joined(chunk[name] for chunk in chunks) for name in names}
        is_entity = self._subject.unit.kind == "entity"
        return Table(codes, table.rows, _joined(table.owners()) if is_entity else None)

    @property
    def _fits_memory(self) -> bool:
        most = max(table.rows for table in self._sides)
        return most * len(self._subject.columns) <= MOST_VALUES_IN_MEMORY

    def left_out(self) -> list[str]:
        subject, notes = self._subject, []
        if subject.unmodelled:
            notes.append(
                f"columns that the release does not model: {', '.join(subject.unmodelled)}"
            )
        if comb(len(subject.columns), 2) > MOST_PAIRS:
            notes.append(f"all but {MOST_PAIRS} pairs of columns, which a public seed draws")
        for places, of, what in (
            (self._measured, subject.measured, "measured marginals"),
            (self._expected, self._stated, "expected errors"),
        ):
            if len(places) < len(of):
                notes.append(
                    f"{len(of) - len(places)} of {len(of)} {what}: too many, or of too many cells"
                )
        if subject.combinations is not None and not self._fits_memory:
            notes.append("combinations: the tables are too large to count them in memory")
        return notes


def _affordable(cells: Iterable[int], most: int) -> list[int]:
    """Places of the first `most` marginals that have `MOST_CELLS` cells together."""
    places: list[int] = []
    left = MOST_CELLS
    for place, size in enumerate(cells):
        # A large one is skipped, so that smaller ones after it are still compared.
        if size <= left and len(places) < most:
            places.append(place)
            left -= size
    return places


def _joined(arrays: Iterator[NDArray[Any]]) -> NDArray[np.int64]:
    wide = (np.asarray(array, dtype=np.int64) for array in arrays)
    return np.concatenate([np.zeros(0, dtype=np.int64), *wide])


def _distance_of_numbers(real: NDArray[np.int64], synthetic: NDArray[np.int64]) -> float:
    """Between the distributions of a number, such as rows, that each entity has."""
    most = int(max(real.max(initial=0), synthetic.max(initial=0)))
    return total_variation(
        np.bincount(real, minlength=most + 1), np.bincount(synthetic, minlength=most + 1)
    )


def _noisy_distance(
    real: NDArray[np.int64] | None, noisy: NDArray[np.int64] | None
) -> float | None:
    if real is None or noisy is None:
        return None
    # A negative count cannot be part of a distribution.
    return total_variation(real, np.maximum(noisy, 0))


def _combinations(errors: CombinationErrors) -> Combinations:
    return Combinations(
        length=errors.length,
        original=errors.original,
        reported=errors.reported,
        suppressed=errors.suppressed,
        fabricated=errors.fabricated,
        mean_error=errors.mean_error,
        mean_count=errors.mean_count,
        combination_error=errors.combination_error,
    )

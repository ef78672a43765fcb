"""Makes a statement of a release's noisy answers and its first sample."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from math import prod

import numpy as np

from app.engine.grouping import Grouping
from app.engine.method import ExpectedError
from app.engine.privacy.journal import Published
from app.engine.privacy.queries import Contribution, Measurement, Scored
from app.engine.schema import Column, PrivacyUnit, Schema
from app.engine.statements import notes
from app.engine.statements.bounds import drawn_bound, least_overlap, sampling_error, stated_bounds
from app.engine.statements.counting import SampleCounts
from app.engine.statements.distances import estimated_distance
from app.engine.statements.evidence import Answers, Columns, Evidence
from app.engine.statements.noisy import Floats
from app.engine.statements.numbers import (
    QUANTILES,
    CellRanges,
    SampleNumbers,
    correlation_interval,
    correlations,
    is_numeric,
    mean_interval,
    quantile_interval,
)
from app.engine.statements.pictures import Pictures, pictured
from app.engine.statements.sample import SampleRows
from app.engine.statements.statement import Interval, StatedDistance, StatedNumber, Statement

# Pairs of 64 columns. Beyond these, a pair that was not measured is left out.
MOST_PAIRS = 2016
_ROWS_AT_ONCE = 2**16


@dataclass(frozen=True)
class Released:
    """What a release publishes, and what is public about it.

    answers: in the order measured. errors: what the method states of its model. changed: the share
    of the sample's rows that were changed to meet the dictionary's rules.
    """

    schema: Schema
    unit: PrivacyUnit
    answers: Sequence[Published]
    sample: SampleRows
    errors: Sequence[ExpectedError] = ()
    changed: float = 0.0


def stated(released: Released) -> Statement:
    """The statement of a release; the same release always has the same one."""
    return _Making(released).statement()


def stated_and_pictured(
    released: Released, check: Callable[[], None] = lambda: None
) -> tuple[Statement, Pictures]:
    """The statement of a release, and what a report draws beside it. `check` is called now and
    then, and may end it."""
    making = _Making(released)
    statement = making.statement()
    check()
    return statement, pictured(making.answers, making.columns, check)


@dataclass
class _Making:
    released: Released
    answers: Answers = field(init=False)
    _evidence: dict[str, Evidence | None] = field(init=False)

    def __post_init__(self) -> None:
        released = self.released
        counts = SampleCounts(released.sample, released.unit.max_rows)
        measured = [each for each in released.answers if isinstance(each, Measurement)]
        self.answers = Answers.of(measured, released.schema, released.unit, counts)
        self._bounds = stated_bounds(
            released.errors,
            [each for each in released.answers if isinstance(each, Scored)],
            released.schema,
        )
        self._evidence = {
            column.name: self.answers.about((column.name,)) for column in self.columns
        }
        self._draws = counts.independent_draws * released.sample.made / max(released.sample.rows, 1)

    @property
    def columns(self) -> list[Column]:
        """Those of the sample, in the dictionary's order."""
        return [
            column
            for column in self.released.schema.columns
            if column.name in self.released.sample.codes
        ]

    def statement(self) -> Statement:
        released = self.released
        columns = {column.name: self._column(column.name) for column in self.columns}
        numbers = list(self._one_way_numbers())
        numeric = [column for column in self.columns if is_numeric(column)]
        found = np.full((len(numeric), len(numeric)), np.nan)
        if len(numeric) > 1 and released.sample.rows:
            found = correlations(self._numbers(numeric))
        place = {column.name: number for number, column in enumerate(numeric)}
        pairs: list[StatedDistance] = []
        for first, second in combinations(self.columns, 2):
            evidence = self.answers.about((first.name, second.name))
            if evidence is None and len(pairs) >= MOST_PAIRS:
                continue
            pairs.append(self._pair(first.name, second.name, evidence, columns))
            if first.name in place and second.name in place:
                value = float(found[place[first.name], place[second.name]])
                numbers.append(self._correlation(first, second, value, evidence))
        return Statement(
            "rows" if released.unit.kind == "row" else "entities",
            released.sample.made,
            tuple(columns.values()),
            tuple(pairs),
            tuple(numbers),
            tuple(notes.of_release(self.answers, self._evidence, released.sample, pairs)),
        )

    def _column(self, name: str) -> StatedDistance:
        evidence = self._evidence[name]
        if evidence is not None:
            return self._measured((name,), evidence)
        grouping = self.released.schema.column(name).grouping
        return self._unmeasured((name,), (grouping,), (0.0, 1.0), notes.NO_COUNTS)

    def _measured(self, columns: Columns, evidence: Evidence) -> StatedDistance:
        found = estimated_distance(
            evidence.noisy.values,
            evidence.noisy.variance,
            evidence.noisy.noise,
            evidence.synthetic,
            evidence.total,
        )
        high = found.high
        if evidence.counts_rows:
            high = min(high, self._bound(columns, evidence.noisy.groupings, evidence.synthetic))
        return StatedDistance(
            columns,
            "measured",
            evidence.synthetic.size,
            min(found.distance, high),
            (min(found.low, high), high),
            sampling_error(evidence.synthetic, self._draws),
            notes.of_rule(evidence.noisy.rule),
        )

    def _pair(
        self,
        first: str,
        second: str,
        evidence: Evidence | None,
        columns: dict[str, StatedDistance],
    ) -> StatedDistance:
        if evidence is not None:
            return self._measured((first, second), evidence)
        a, b = self._evidence[first], self._evidence[second]
        groupings = tuple(
            self.released.schema.column(name).grouping if each is None else each.noisy.groupings[0]
            for name, each in ((first, a), (second, b))
        )
        if a is None or b is None or not (a.counts_rows and b.counts_rows):
            return self._unmeasured((first, second), groupings, (0.0, 1.0), notes.NO_PAIR)
        low = max(each.interval[0] for each in (columns[first], columns[second]) if each.interval)
        high = 1.0
        if a.least_shares.max() + b.least_shares.max() > 1:
            high -= least_overlap(a, b, self._joint((first, second), groupings))
        return self._unmeasured((first, second), groupings, (low, high), notes.NO_PAIR)

    def _unmeasured(
        self, columns: Columns, groupings: Sequence[Grouping], known: Interval, note: str
    ) -> StatedDistance:
        """Measured all the same, if the method asked how far its model is off."""
        if self.answers.is_counted(columns):
            note = notes.TOO_MANY_CELLS
        cells = prod(grouping.cells for grouping in groupings)
        low, high = known
        if any(bound.covers(columns, groupings) for bound in self._bounds):
            joint = self._joint(columns, groupings)
            high = min(high, self._bound(columns, groupings, joint))
            interval = (min(low, high), high)
            return StatedDistance(
                columns, "measured", cells, interval=interval, note=notes.OWN_BOUND
            )
        is_known = low >= 5e-5 or high < 1
        is_modelled = len(self.released.answers) > 0
        return StatedDistance(
            columns,
            "implied by the model" if is_modelled else "not measured",
            cells,
            interval=(min(low, high), high) if is_known else None,
            note=note,
        )

    def _joint(self, columns: Columns, groupings: Sequence[Grouping]) -> Floats:
        return self.answers.counts.counts(columns, groupings, Contribution())

    def _bound(self, columns: Columns, groupings: Sequence[Grouping], synthetic: Floats) -> float:
        stated = [each.distance for each in self._bounds if each.covers(columns, groupings)]
        if not stated:
            return 1.0
        return drawn_bound(min(stated), synthetic, self._draws, self.released.changed)

    def _numbers(self, columns: Sequence[Column]) -> Iterator[list[Floats]]:
        sample = self.released.sample
        for first in range(0, sample.rows, _ROWS_AT_ONCE):
            rows = slice(first, first + _ROWS_AT_ONCE)
            chunk = []
            for column in columns:
                places, null = column.places(sample.codes[column.name][rows])
                chunk.append(np.where(null, np.nan, places.astype(np.float64)))
            yield chunk

    def _one_way_numbers(self) -> Iterator[StatedNumber]:
        for column in self.columns:
            if not is_numeric(column):
                continue
            numbers = SampleNumbers.of(column, self.released.sample.codes[column.name])
            evidence = self._evidence[column.name]
            basis, note = notes.of_numbers(evidence)
            ranges = None
            if evidence is not None and evidence.counts_rows:
                ranges = CellRanges.of(column, evidence.noisy.groupings[0])
            for q in (None, *QUANTILES):
                interval = None
                if ranges is not None and evidence is not None:
                    interval = (
                        mean_interval(evidence.noisy, ranges)
                        if q is None
                        else quantile_interval(evidence.noisy, ranges, q)
                    )
                yield StatedNumber(
                    "mean" if q is None else "quantile",
                    (column.name,),
                    q,
                    numbers.mean if q is None else numbers.quantile(q),
                    basis,
                    interval,
                    note,
                )

    def _correlation(
        self, first: Column, second: Column, value: float, evidence: Evidence | None
    ) -> StatedNumber:
        basis, note = notes.of_numbers(evidence)
        interval = None
        if evidence is not None and evidence.counts_rows:
            ranges = [
                CellRanges.of(column, grouping)
                for column, grouping in zip((first, second), evidence.noisy.groupings, strict=True)
            ]
            a, b = ranges
            if a is not None and b is not None:
                interval = correlation_interval(evidence.noisy, (a, b))
        return StatedNumber(
            "correlation",
            (first.name, second.name),
            None,
            None if np.isnan(value) else value,
            basis,
            interval,
            note,
        )

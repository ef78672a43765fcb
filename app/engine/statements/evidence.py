"""What a release measured of one column or pair, beside the sample's counts of the same cells."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import prod

import numpy as np
from numpy.typing import NDArray

from app.engine.grouping import Grouping
from app.engine.privacy.queries import Contribution, Count, Measurement
from app.engine.schema import PrivacyUnit, Schema
from app.engine.statements.combinations import ListedCombinations
from app.engine.statements.counting import SampleCounts
from app.engine.statements.noisy import LEAST_VARIANCE, Floats, NoisyTable

# Cells that are added up in all to get columns and pairs out of larger tables: some seconds.
MOST_SUMMED = 2**30
# A larger table is compared with no sample: a dozen arrays of its size would be needed.
MOST_CELLS = 2**22

Columns = tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Evidence:
    """Noisy counts of some columns' cells, the sample's under the same rule, and their sum.

    total: the best estimate of the sum of the exact counts, and its variance. cells: where only
    some cells were counted, the flat numbers of these; the arrays then hold them alone.
    """

    noisy: NoisyTable
    synthetic: Floats
    total: tuple[float, float]
    cells: NDArray[np.int64] | None = None

    def on_grid(self) -> Evidence:
        """The same with an axis for each column; cells that were not counted have 0, exactly."""
        if self.cells is None:
            return self
        shape = tuple(grouping.cells for grouping in self.noisy.groupings)
        values, variance, synthetic = (np.zeros(prod(shape)) for _ in range(3))
        values[self.cells] = self.noisy.values
        variance[self.cells] = self.noisy.variance
        synthetic[self.cells] = self.synthetic
        noisy = replace(self.noisy, values=values.reshape(shape), variance=variance.reshape(shape))
        return Evidence(noisy, synthetic.reshape(shape), self.total)

    @property
    def counts_rows(self) -> bool:
        """Whether the cells count rows, and not what a rule makes of an entity's rows."""
        return self.noisy.rule.rule == "rows"

    @property
    def least_shares(self) -> Floats:
        """Shares that the exact ones are not below, two standard deviations to the safe side."""
        rows, variance = self.total
        sure = self.noisy.values - 2 * np.sqrt(self.noisy.variance)
        shares: Floats = np.clip(sure / max(rows + 2 * math.sqrt(variance), 1.0), 0, 1)
        return shares


@dataclass
class Answers:
    """The noisy tables of a release, ordered by the question."""

    schema: Schema
    unit: PrivacyUnit
    counts: SampleCounts
    tables: Sequence[NoisyTable]
    sizes: Sequence[Measurement]
    combinations: Sequence[ListedCombinations]
    _summed: int = field(default=0)

    @classmethod
    def of(
        cls,
        measured: Sequence[Measurement],
        schema: Schema,
        unit: PrivacyUnit,
        counts: SampleCounts,
    ) -> Answers:
        found = [NoisyTable.of(each, schema, unit) for each in measured]
        names = set(counts.sample.codes)
        tables = [each for each in found if each is not None and set(each.columns) <= names]
        listed = [ListedCombinations.of(each, schema, counts) for each in measured]
        return cls(
            schema,
            unit,
            counts,
            tables,
            [each for each in measured if is_size(each)],
            [each for each in listed if each is not None],
        )

    def about(self, columns: Columns) -> Evidence | None:
        """All that was measured of these columns, over the cells in which they were first counted:
        those of the dictionary if any question used them."""
        lead = self._lead(columns)
        if lead is None:
            return self._of_combinations(columns)
        groupings = tuple(lead.groupings[lead.columns.index(name)] for name in columns)
        if prod(grouping.cells for grouping in groupings) > MOST_CELLS:
            return None
        found = self._over(lead, columns, groupings)
        if found is None:
            return None
        others = [
            self._over(each, columns, groupings)
            for each in self.tables
            if each is not lead and each.comparable(lead, columns)
        ]
        noisy = found.with_([each for each in others if each is not None])
        return Evidence(noisy, self._synthetic(lead, columns, groupings), self._total(noisy))

    def is_counted(self, columns: Columns) -> bool:
        """Whether a question counted these columns, alone or with others."""
        return any(set(each.columns) >= set(columns) for each in self.tables)

    def _of_combinations(self, columns: Columns) -> Evidence | None:
        for each in self.combinations:
            found = each.about(columns)
            if found is not None:
                return Evidence(found.noisy, found.synthetic, found.noisy.total, found.cells)
        return None

    def _lead(self, columns: Columns) -> NoisyTable | None:
        direct = [each for each in self.tables if set(each.columns) == set(columns)]
        if not direct:
            larger = [each for each in self.tables if set(each.columns) > set(columns)]
            return min(larger, key=lambda each: each.noise_of_sum, default=None)
        declared = {name: self.schema.column(name).grouping for name in columns}
        for each in direct:
            if all(
                grouping == declared[name]
                for name, grouping in zip(each.columns, each.groupings, strict=True)
            ):
                return each
        return direct[0]

    def _over(
        self, table: NoisyTable, columns: Columns, groupings: Sequence[Grouping]
    ) -> NoisyTable | None:
        if len(table.columns) > len(columns):
            self._summed += table.values.size
            if self._summed > MOST_SUMMED:
                return None
        return table.over(columns, groupings)

    def _synthetic(
        self, lead: NoisyTable, columns: Columns, groupings: Sequence[Grouping]
    ) -> Floats:
        if lead.rule.rule == "rows":
            return self.counts.counts(columns, groupings, lead.rule)
        # Other rules look at joint cells, so the sample is counted in those of the question.
        joint = self.counts.counts(lead.columns, lead.groupings, lead.rule)
        dropped = tuple(axis for axis, name in enumerate(lead.columns) if name not in columns)
        kept = [name for name in lead.columns if name in columns]
        kept_cells: Floats = joint.sum(axis=dropped)
        return kept_cells.transpose([kept.index(name) for name in columns])

    def _total(self, noisy: NoisyTable) -> tuple[float, float]:
        estimates = [noisy.total]
        if noisy.rule.rule in ("rows", "one"):
            estimates += [
                (float(each.values), max(each.variance, LEAST_VARIANCE))
                for each in self.sizes
                if each.count.contribution == noisy.rule or self.unit.kind == "row"
            ]
        precision = math.fsum(1 / variance for _, variance in estimates)
        return math.fsum(value / variance for value, variance in estimates) / precision, (
            1 / precision
        )

    def rows(self) -> tuple[float, float] | None:
        """The noisy number of rows that count, and its variance."""
        found = [each for each in self.sizes if each.count.contribution == Contribution()]
        if not found:
            return None
        precision = math.fsum(1 / max(each.variance, LEAST_VARIANCE) for each in found)
        weighted = math.fsum(
            float(each.values) / max(each.variance, LEAST_VARIANCE) for each in found
        )
        return weighted / precision, 1 / precision


def is_size(measured: Measurement) -> bool:
    """Whether it counts rows or units in a single cell."""
    count = measured.count
    return isinstance(count, Count) and not count.columns and count.function is None

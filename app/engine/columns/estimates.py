"""Estimates of each column from its noisy one-way histogram, and the cells to count pairs in.

All of it is post-processing of what was measured: counts of ordered columns are smoothed and, with
a public table, shrunk to its counts; cells that do not stand out from the noise are merged, and all
columns get one number of rows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from app.engine.columns.axes import Axes
from app.engine.columns.one_way import OneWayHistograms
from app.engine.columns.rare_cells import Compression
from app.engine.columns.table_size import SMALLEST_VARIANCE, Size
from app.engine.columns.tuning import TUNING
from app.engine.columns.within_bins import WithinBinDensity, densities_of
from app.engine.constraints.structural_zeros import cell_kinds
from app.engine.grouping import Grouping
from app.engine.inference.measurements import NoisyMarginal
from app.engine.inference.projection import onto_simplex
from app.engine.inference.shrinkage import Estimates
from app.engine.inference.smoothing import smooth_counts
from app.engine.privacy.queries import Measurement
from app.engine.public.rows import PublicRows
from app.engine.schema import Schema

Floats = NDArray[np.float64]

# References are sent in steps of 1/1024 of a count.
GRID = 1024


@dataclass(frozen=True)
class ColumnEstimates:
    """Estimates of each column's own cells in rows, the cells that stand out (`merged`), and how
    rows lie within the own cells of columns that have sub-bins. `in_order` counts the
    own cells that lie in order, from the first."""

    axes: Axes
    estimates: tuple[Estimates, ...]
    compressions: tuple[Compression, ...]
    in_order: tuple[int, ...]
    measured: OneWayHistograms
    densities: Mapping[str, WithinBinDensity] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        axes: Axes,
        schema: Schema,
        measured: OneWayHistograms,
        rare_below: float,
        public: PublicRows | None = None,
    ) -> ColumnEstimates:
        """Cells are rare below `rare_below` standard errors of what was measured. Public rows, if
        there are any, lessen these."""
        marginals = [in_rows(answer, measured.size) for answer in measured.answers]
        in_order = ordered_cells(axes, schema)
        total = float(max(measured.size.rows, 1))
        estimates = tuple(
            _estimated(marginal, ordered, total)
            for marginal, ordered in zip(marginals, in_order, strict=True)
        )
        errors = [_error(marginal) for marginal in marginals]
        if public is not None:
            estimates = shrunk_to_public(axes, estimates, total, public)
            errors = [float(np.sqrt(estimate.variances.mean())) for estimate in estimates]
        counts = tuple(_projected(estimate, total) for estimate in estimates)
        kinds = cell_kinds(schema, axes.groupings)
        compressions = tuple(
            Compression.below(rows, rare_below * error, ordered, kinds.get(name))
            for name, rows, error, ordered in zip(axes.names, counts, errors, in_order, strict=True)
        )
        sub_bins = [in_rows(answer, measured.size) for answer in measured.sub_bins]
        densities = densities_of(axes, sub_bins, dict(zip(axes.names, counts, strict=True)), public)
        return cls(axes, estimates, compressions, in_order, measured, densities)

    @property
    def size(self) -> Size:
        return self.measured.size

    @property
    def total(self) -> float:
        """Rows, and 1 where the noisy number is less: what shares are of."""
        return float(max(self.size.rows, 1))

    @cached_property
    def merged(self) -> Axes:
        """The axes with their rare cells merged, in which pairs are counted."""
        return Axes(
            {
                name: compression.grouping(grouping)
                for (name, grouping), compression in zip(
                    self.axes.groupings.items(), self.compressions, strict=True
                )
            }
        )

    @property
    def shape(self) -> dict[str, int]:
        """Merged cells of each column."""
        return dict(zip(self.merged.names, self.merged.shape, strict=True))

    @property
    def ordered(self) -> dict[str, int]:
        """How many merged cells of each column, from the first, lie in order."""
        return {
            name: int(compression.merge[:cells].max()) + 1 if cells else 0
            for name, cells, compression in zip(
                self.axes.names, self.in_order, self.compressions, strict=True
            )
        }

    @cached_property
    def marginals(self) -> tuple[NoisyMarginal, ...]:
        """The estimates over merged cells, as measurements of a model; variances add up."""
        return tuple(
            NoisyMarginal(
                (name,), compression.add_up(estimate.means), compression.add_up(estimate.variances)
            )
            for name, compression, estimate in zip(
                self.axes.names, self.compressions, self.estimates, strict=True
            )
        )

    @cached_property
    def counts(self) -> dict[str, Floats]:
        """Rows in each merged cell: not negative, of one total, in steps of 1/1024.

        The grid hides in what order a processor adds up floats: a run that is started again
        on another machine must ask the very same question.
        """
        return {
            marginal.axes[0]: np.rint(
                GRID * onto_simplex(marginal.values, self.total, marginal.variance)
            )
            / GRID
            for marginal in self.marginals
        }

    @cached_property
    def shares(self) -> dict[str, Floats]:
        """`counts` divided by their sum."""
        return {name: counts / counts.sum() for name, counts in self.counts.items()}


def in_rows(answer: Measurement, size: Size) -> NoisyMarginal:
    """A measurement in rows: rules that do not count all rows are scaled to the noisy rows."""
    values = answer.values.astype(np.float64)
    factor = rows_per_count(answer, size)
    variance = max(answer.variance * factor**2, SMALLEST_VARIANCE)
    return NoisyMarginal(answer.columns, values * factor, np.full(answer.shape, variance))


def rows_per_count(answer: Measurement, size: Size) -> float:
    """What a count of the measurement stands for: 1 where all rows are counted."""
    if answer.count.contribution.rule == "rows":
        return 1.0
    return size.rows / max(float(answer.values.sum(dtype=np.float64)), 1.0)


def ordered_cells(axes: Axes, schema: Schema) -> tuple[int, ...]:
    """How many cells of each axis, from the first, lie in order on a range; public."""
    return tuple(
        len(grouping.edges) - 1 if schema.column(name).ranged and grouping.merge is None else 0
        for name, grouping in axes.groupings.items()
    )


def _estimated(marginal: NoisyMarginal, ordered: int, total: float) -> Estimates:
    if ordered < TUNING.fewest_smoothed:
        return Estimates(marginal.values, marginal.variance)
    smooth = smooth_counts(marginal.values[:ordered], float(marginal.variance[0]), total)
    return Estimates(
        np.concatenate([smooth.means, marginal.values[ordered:]]),
        np.concatenate([smooth.variances, marginal.variance[ordered:]]),
    )


def _projected(estimate: Estimates, total: float) -> Floats:
    return onto_simplex(estimate.means, total, estimate.variances)


def _error(marginal: NoisyMarginal) -> float:
    return float(np.sqrt(marginal.variance.max()))


def shrunk_to_public(
    axes: Axes, noisy: Sequence[Estimates], total: float, rows: PublicRows
) -> tuple[Estimates, ...]:
    """Posterior means and variances, in rows, of each column's counts.

    A private count is thought to stray from the public one, m rows for a public table of as many
    rows, with the variance phi m: phi says how far the tables are apart, and is estimated for each
    column from its noisy counts, as (y - m)^2 has the expectation phi m + sigma^2 (empirical
    Bayes). Where the noise explains all differences phi is small and the public counts stand; a
    drifted table gives a large phi, and the noisy counts stand. So does any count that noise and
    phi do not explain.
    """
    return tuple(
        _drawn(each, _shares(rows.codes[name], grouping), total, rows.rows)
        for each, (name, grouping) in zip(noisy, axes.groupings.items(), strict=True)
    )


def _shares(codes: NDArray[np.int64], grouping: Grouping) -> Floats:
    """The column's shares of its cells in the public rows; none is 0."""
    counts = np.bincount(grouping.cell_of(codes), minlength=grouping.cells) + TUNING.unseen
    shares: Floats = counts / counts.sum()
    return shares


def _drawn(noisy: Estimates, shares: Floats, total: float, public_rows: int) -> Estimates:
    expected = total * shares
    surplus = noisy.means - expected
    reach = 2 * math.log(TUNING.chance * max(noisy.means.size, 1))
    spread = total / public_rows
    explained = surplus**2 <= reach * (noisy.variances + spread * expected)
    spread = max(spread, _spread(surplus, noisy.variances, expected, explained))
    prior = spread * expected
    kept = np.where(explained, prior / (prior + noisy.variances), 1.0)
    return Estimates(expected + kept * surplus, kept * noisy.variances)


def _spread(
    surplus: Floats, variances: Floats, expected: Floats, explained: NDArray[np.bool_]
) -> float:
    over = float((surplus**2 - variances)[explained].sum())
    error = float(np.sqrt(2 * (variances[explained] ** 2).sum()))
    return max(over + error, 0.0) / max(float(expected[explained].sum()), 1e-9)

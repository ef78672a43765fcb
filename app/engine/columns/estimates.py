"""Estimates of each column from its noisy one-way histogram, and the cells to count pairs in.

All of it is post-processing of what was measured: counts of ordered columns are smoothed, cells
that do not stand out from the noise are merged, and all columns get one number of rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from app.engine.columns.axes import Axes
from app.engine.columns.one_way import OneWayHistograms
from app.engine.columns.public_shrinkage import shrunk_to_public
from app.engine.columns.rare_cells import Compression
from app.engine.columns.table_size import SMALLEST_VARIANCE, Size
from app.engine.columns.tuning import TUNING
from app.engine.columns.within_bins import WithinBinDensity, densities_of
from app.engine.constraints.structural_zeros import cell_kinds
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

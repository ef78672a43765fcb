"""The density of rows within the cells of a column, from a noisy histogram of finer sub-bins.

A bin that holds a twentieth of the rows can be wide, and what it holds uneven: spikes, weekdays,
one end of a long tail. Where bins are private, each is therefore cut into *sub-bins*, which are
counted too: equal ones, or in a bin far wider than its neighbour ever wider ones. The differences
between the sub-bins and an even bin are shrunk as far as the noise calls for, over runs of
neighbours (see `smoothing`): a bin whose counts show nothing but noise stays even. Where public
rows are at hand, the differences are taken from these in place of an even bin if they are nearer to
the counts. Rows of a cell are assigned to its sub-bins by those shares, whatever their other
columns are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.engine.columns.axes import Axes
from app.engine.columns.rare_cells import Compression
from app.engine.columns.tuning import TUNING
from app.engine.grouping import Grouping
from app.engine.inference.measurements import NoisyMarginal
from app.engine.inference.projection import onto_simplex
from app.engine.inference.smoothing import smooth_counts
from app.engine.method.model_file import ModelFormatError, weights
from app.engine.public.rows import PublicRows
from app.engine.schema import Schema

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


def with_sub_bins(
    axes: Axes,
    names: Sequence[str],
    most: int,
    frequent: Mapping[str, Sequence[int]] | None = None,
) -> Axes:
    """The same axes, where each cell of the columns `names` is cut into `most` sub-bins at most.

    A cell of fewer codes is cut into these. A column of which no cell can be cut gets no sub-bins.
    Codes that are `frequent` in a column become sub-bins of their own besides.
    """
    if most == 1:
        return axes
    cut = {
        name: _alone(_cut(axes.groupings[name], most), (frequent or {}).get(name, ()))
        for name in names
    }
    return Axes(
        axes.groupings,
        {name: sub_bins for name, sub_bins in cut.items() if sub_bins != axes.groupings[name]},
    )


def with_most_sub_bins(axes: Axes, names: Sequence[str], most: int) -> Axes:
    """Axes with as many sub-bins as `with_sub_bins` can give to cells of this number."""
    cut = with_sub_bins(axes, names, most)
    more = 2 * TUNING.frequent_codes
    return Axes(
        cut.groupings,
        {
            name: Grouping.equal(sub_bins.regular, sub_bins.tail, len(sub_bins.edges) - 1 + more)
            for name, sub_bins in cut.sub_bins.items()
        },
    )


def _alone(sub_bins: Grouping, codes: Sequence[int]) -> Grouping:
    edges = {*sub_bins.edges}.union(*({code, code + 1} for code in codes))
    return Grouping(tuple(sorted(edges)), sub_bins.tail)


def _cut(cells: Grouping, most: int) -> Grouping:
    widths = [high - low for low, high in zip(cells.edges, cells.edges[1:], strict=False)]
    edges = [0]
    for place, (low, width) in enumerate(zip(cells.edges, widths, strict=False)):
        before, after = (
            widths[near] if 0 <= near < len(widths) else cells.regular
            for near in (place - 1, place + 1)
        )
        ends = _ends(width, min(most, width), min(before, after))
        if after < before:
            ends = [*(width - end for end in reversed(ends[:-1])), width]
        edges += [low + end for end in ends]
    return Grouping(tuple(edges), cells.tail)


def _ends(width: int, many: int, narrow: int) -> list[int]:
    """Where sub-bins of a bin end, from the side of its narrower neighbour.

    They are equal; but if a bin is far wider than the neighbour, as private bins of a long tail
    are, most of what it holds lies near that side, and each sub-bin ends 2^s times as far out as
    the one before, for the least s whose first sub-bin is no wider than the neighbour.
    """
    if many == 1 or width <= TUNING.far_wider * narrow:
        return [width * place // many for place in range(1, many + 1)]
    shift = 1
    while width >> shift * (many - 1) > narrow:
        shift += 1
    ends = [max(width >> shift * (many - place), 1) for place in range(1, many + 1)]
    return sorted(set(ends))


@dataclass(frozen=True)
class WithinBinDensity:
    """`sub_bins` cut the cells of a column; `within` has the cell of each and its share of it."""

    sub_bins: Grouping
    within: Compression

    @classmethod
    def of(
        cls,
        cells: Grouping,
        sub_bins: Grouping,
        counted: NoisyMarginal,
        counts: Floats,
        public: Integers | None = None,
    ) -> WithinBinDensity:
        """counted: noisy rows in each sub-bin; counts: rows in each cell, none negative.

        public: the column's codes in public rows.
        """
        cell = _cell_of(cells, sub_bins)
        base = sub_bins.widths() / cells.widths()[cell]
        if public is not None:
            base = _nearer(base, _of_public(sub_bins, cell, base, public), counted, counts[cell])
        divided = np.flatnonzero(np.bincount(cell)[cell] > 1)
        expected = base * counts[cell]
        stray = smooth_counts(
            (counted.values - expected)[divided],
            float(np.mean(counted.variance)),
            float(counts.sum()),
        )
        rows = expected.copy()
        rows[divided] += stray.means
        return cls(sub_bins, Compression(cell, _shares(rows, cell, counts, base)))

    def expand(self, cells: Integers, rng: np.random.Generator) -> Integers:
        """A stored code for each cell, uniform over the codes of the sub-bin assigned to it."""
        return self.sub_bins.expand(self.within.restore(cells, rng), rng)


def _cell_of(cells: Grouping, sub_bins: Grouping) -> Integers:
    tail = sub_bins.regular + np.arange(sub_bins.tail)
    return cells.cell_of(np.concatenate([np.asarray(sub_bins.edges[:-1]), tail]))


def _of_public(sub_bins: Grouping, cell: Integers, even: Floats, codes: Integers) -> Floats:
    """Each sub-bin's share of its cell in public rows, to which each cell has an even one added."""
    counts = np.bincount(sub_bins.cell_of(codes), minlength=sub_bins.cells) + even
    shares: Floats = counts / np.bincount(cell, counts)[cell]
    return shares


def _nearer(one: Floats, other: Floats, counted: NoisyMarginal, counts: Floats) -> Floats:
    """Whichever shares of the cells' counts are nearer to the noisy ones, in squares."""
    apart = [float(((counted.values - shares * counts) ** 2).sum()) for shares in (one, other)]
    return one if apart[0] <= apart[1] else other


def _shares(rows: Floats, cell: Integers, counts: Floats, base: Floats) -> Floats:
    """Each sub-bin's share of its cell, from estimates of rows that may be negative."""
    shares = base.copy()
    starts = np.searchsorted(cell, np.arange(counts.size + 1))
    for number in np.flatnonzero(counts > 0):
        place = slice(starts[number], starts[number + 1])
        shares[place] = onto_simplex(rows[place] / counts[number], 1.0)
    return shares


def densities_of(
    axes: Axes,
    counted: Sequence[NoisyMarginal],
    counts: Mapping[str, Floats],
    public: PublicRows | None = None,
) -> dict[str, WithinBinDensity]:
    """The density of each column with sub-bins: `counted` in their order, `counts` by column."""
    codes = {} if public is None else public.codes
    return {
        name: WithinBinDensity.of(
            axes.groupings[name], sub_bins, marginal, counts[name], codes.get(name)
        )
        for (name, sub_bins), marginal in zip(axes.sub_bins.items(), counted, strict=True)
    }


def expanded(
    name: str,
    cells: Integers,
    axes: Axes,
    densities: Mapping[str, WithinBinDensity],
    rng: np.random.Generator,
) -> Integers:
    """A stored code for each cell of a column: by its density, else uniform over the cell."""
    if name in densities:
        return densities[name].expand(cells, rng)
    return axes.groupings[name].expand(cells, rng)


def densities_to_json(densities: Mapping[str, WithinBinDensity]) -> list[list[Any]]:
    return [[name, density.sub_bins.to_json()] for name, density in densities.items()]


def density_arrays(densities: Mapping[str, WithinBinDensity]) -> dict[str, Floats]:
    return {f"pieces{i}": density.within.shares for i, density in enumerate(densities.values())}


def stored_densities(
    wire: Any, arrays: Mapping[str, NDArray[Any]], axes: Axes, schema: Schema
) -> dict[str, WithinBinDensity]:
    """Densities of a stored model over `axes`; raises `ModelFormatError` for impossible ones."""
    sub_bins = Axes.from_json(wire, schema).groupings
    return {
        name: _stored(name, cut, weights(arrays, f"pieces{i}", (cut.cells,)), axes)
        for i, (name, cut) in enumerate(sub_bins.items())
    }


def _stored(name: str, sub_bins: Grouping, shares: Floats, axes: Axes) -> WithinBinDensity:
    cells = axes.groupings.get(name)
    if (
        cells is None
        or not set(cells.edges) <= set(sub_bins.edges)
        or sub_bins.merge
        or cells.merge
    ):
        raise ModelFormatError("the stored model's sub-bins do not cut its cells")
    return WithinBinDensity(sub_bins, Compression.stored(_cell_of(cells, sub_bins), shares))

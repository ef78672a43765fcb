"""A model of public rows: how columns depend on each other, for a private model to start from.

The public rows make a base measure, a product of conditional distributions over the cliques of
a junction tree; fitted to the noisy columns of the private table it is the public model M. No
question is asked for it.

*The tree.* Pairs of columns are joined whose public histogram is further from independence than
the sampling of its rows explains, the most dependent first, while the tree stays small.

*The cliques.* A pairwise model, fitted to the public histograms of these pairs, is the prior of
each clique. Its rows are then mixed in: a cell's probability given the separator is
(n + a m) / (N + a), where n of the N public rows with these separator cells lie in the cell, m is
what the pairwise model says, and a is what predicts an entity's rows best from those of all other
entities, clique by clique. Where public rows are few the pairwise model stands, and where they
are many the rows decide.

`drift` finds what has changed since the public table was made.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from app.engine.columns.axes import Axes
from app.engine.columns.estimates import ColumnEstimates
from app.engine.compiled import compiled
from app.engine.constraints.structural_zeros import structural_zeros
from app.engine.inference.estimation import fit
from app.engine.inference.junction_tree import JunctionTree
from app.engine.inference.measurements import AxisNames, NoisyMarginal
from app.engine.inference.model import GraphicalModel
from app.engine.inference.pairs import pair_marginals
from app.engine.inference.prior import Factor
from app.engine.inference.tree_growth import best_growth
from app.engine.method import Limits, Problem, PublicFacts
from app.engine.method.needs import Step, step_faults
from app.engine.prior.tuning import TUNING
from app.engine.privacy.queries import SCORE_STEP, GridReference
from app.engine.public.rows import PublicRows, public_problems
from app.engine.schema import PrivacyUnit, Schema

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Pair = tuple[str, str]

# Below any probability that a fit makes, so that its logarithm is finite.
_TINY = 1e-250

# Cells of all pairs that are compared, for each of two references.
_MOST_COMPARED_CELLS = 2**21

# Copies of the public rows: as read, translated, those kept, in cells, and in counting a clique.
_COPIES_OF_PUBLIC = 5

# Shares, logarithms and counts, and the vectors of the pairwise fit.
_BYTES_PER_CELL = 200

# Of a row in a pair; of one whose entity's repeated cells are counted, twice; and of a
# pair beside each column of its tree. Measured on a busy two-core machine: for rows alone 7 to
# 11 s for 100 columns and 12 to 27 s for 200, of one core.
_SECONDS_PER_COUNTED_ROW = 4e-9
_SECONDS_PER_REPEATED_ROW = 2e-7
_SECONDS_PER_PLACE = 1.5e-5


@dataclass(frozen=True)
class PublicCells:
    """Public rows in the merged cells of the private columns."""

    rows: PublicRows
    columns: ColumnEstimates

    @cached_property
    def some(self) -> PublicCells:
        """Enough rows to see how often entities repeat a cell."""
        return self.at_most(TUNING.rows_for_amounts)

    def at_most(self, most: int) -> PublicCells:
        """Rows of whole entities, evenly taken, about `most` of them."""
        step = -(-self.rows.rows // most)
        if step == 1:
            return self
        kept = self.rows.entity % step == 0
        codes = {name: column[kept] for name, column in self.rows.codes.items()}
        entity = self.rows.entity[kept] // step
        return PublicCells(PublicRows(codes, entity, int(entity.max()) + 1), self.columns)

    @cached_property
    def _cells(self) -> dict[str, Integers]:
        return {
            name: grouping.cell_of(self.rows.codes[name])
            for name, grouping in self.columns.merged.groupings.items()
        }

    @cached_property
    def shape(self) -> dict[str, int]:
        """Merged cells of each column."""
        return self.columns.shape

    def flat(self, axes: AxisNames) -> Integers:
        """The place of each row in a flat table over the axes."""
        places = np.zeros(self.rows.rows, dtype=np.int64)
        for name in axes:
            places = places * self.shape[name] + self._cells[name]
        return places

    def counts(self, axes: AxisNames) -> Floats:
        sizes = [self.shape[name] for name in axes]
        if len(axes) == 2:  # of which there may be many thousands
            table = np.zeros(sizes, dtype=np.int64)
            _count_pair(self._cells[axes[0]], self._cells[axes[1]], table)
            return table.astype(np.float64)
        counts = np.bincount(self.flat(axes), minlength=math.prod(sizes))
        return counts.reshape(sizes).astype(np.float64)

    def variances(self, axes: AxisNames) -> Floats:
        """Of the counts, were entities drawn anew: the sum of squares of their own counts."""
        if self.rows.entities == self.rows.rows:
            return self.counts(axes)
        sizes = [self.shape[name] for name in axes]
        size = math.prod(sizes)
        own, times = np.unique(self.rows.entity * size + self.flat(axes), return_counts=True)
        squares = np.bincount(own % size, times.astype(np.float64) ** 2, size)
        return squares.astype(np.float64).reshape(sizes)

    def repeats(self, axes: AxisNames) -> float:
        """How many times more the counts vary than those of rows drawn one by one."""
        if self.rows.entities == self.rows.rows:
            return 1.0
        return float(self.some.variances(axes).sum()) / self.some.rows.rows


@compiled
def _count_pair(first: Integers, second: Integers, table: Integers) -> None:
    """Add each row's pair of cells to the table."""
    for row in range(first.size):
        table[first[row], second[row]] += 1


@dataclass(frozen=True)
class PublicModel:
    """The pairs that made the tree, and the model that they make with the noisy columns."""

    cells: PublicCells
    schema: Schema
    pairs: tuple[Pair, ...]
    model: GraphicalModel

    @classmethod
    def of(
        cls,
        rows: PublicRows,
        schema: Schema,
        columns: ColumnEstimates,
        most_cells: int,
        most_pair: int,
    ) -> PublicModel:
        """Its junction tree has at most `most_cells` cells, before structural zeros are added, and
        no pair that it is made of more than `most_pair`."""
        cells = PublicCells(rows, columns)
        return cls.over(cells, schema, dependent_pairs(cells, most_cells, most_pair))

    @classmethod
    def over(cls, cells: PublicCells, schema: Schema, pairs: Sequence[Pair]) -> PublicModel:
        columns = cells.columns
        model = fit(
            columns.shape,
            columns.marginals,
            columns.total,
            base=dependence(cells, pairs),
            zeros=structural_zeros(schema, columns.merged.groupings, pairs),
            tolerance=TUNING.tolerance,
        )
        return cls(cells, schema, tuple(pairs), model)

    def without(self, pairs: Sequence[Pair]) -> PublicModel:
        kept = [pair for pair in self.pairs if pair not in set(pairs)]
        return self if len(kept) == len(self.pairs) else self.over(self.cells, self.schema, kept)

    @property
    def cliques(self) -> tuple[AxisNames, ...]:
        return self.model.tree.cliques

    def marginals(self, pairs: Sequence[Pair]) -> list[Floats]:
        """The model's shares of each pair; cached, since all of them are needed twice."""
        asked = [pair for pair in pairs if pair not in self._known]
        self._known.update(zip(asked, pair_marginals(self.model, asked), strict=True))
        return [self._known[pair] for pair in pairs]

    @cached_property
    def _known(self) -> dict[Pair, Floats]:
        return {}

    def references(self, pairs: Sequence[Pair]) -> dict[Pair, GridReference]:
        """Rows that the model expects in each cell."""
        total = self.cells.columns.total
        return {
            pair: grid_reference(table * total)
            for pair, table in zip(pairs, self.marginals(pairs), strict=True)
        }

    @cached_property
    def factors(self) -> tuple[Factor, ...]:
        return self.model.factors()


def grid_reference(counts: Floats) -> GridReference:
    """Counts on a dyadic grid, which hides in what order a processor adds up floats: a run that is
    started again must ask the very same question."""
    return GridReference(np.rint(counts / SCORE_STEP).astype(np.int64))


def public_model_problems(
    schema: Schema,
    unit: PrivacyUnit,
    public: PublicFacts | None,
    columns: Sequence[str],
    limits: Limits,
) -> tuple[Problem, ...]:
    """Why a public table, if there is one, is of no use, or takes too long to learn from."""
    if public is None:
        return ()
    problems = public_problems(schema, unit, public, columns, needs_entities=False)
    learning = Step(
        learning_seconds(public, len(columns)),
        f"learning how {len(columns)} columns depend on each other in the public dataset",
        "choose fewer columns, or leave `public_dataset` out",
    )
    return (*problems, *step_faults([learning], limits))


def learning_seconds(public: PublicFacts, columns: int) -> float:
    """The longest that it takes to learn from a public table, and to look for what has drifted."""
    pairs = columns * (columns - 1) / 2
    seconds = pairs * min(public.rows, TUNING.rows_for_pairs) * _SECONDS_PER_COUNTED_ROW
    if public.schema.entity is not None:
        seconds += pairs * min(public.rows, TUNING.rows_for_amounts) * _SECONDS_PER_REPEATED_ROW
    return seconds + pairs * columns * _SECONDS_PER_PLACE


def most_pair_cells(axes: Axes, limit: int = _MOST_COMPARED_CELLS) -> int:
    """Pairs of more cells are left out: a power of 2, and the largest for which all pairs together
    have at most `limit` cells, whatever is merged. By default as many as can be compared."""
    sizes = [first * second for first, second in combinations(axes.shape, 2)]
    most = limit
    while most > 4 and sum(min(size, most) for size in sizes) > limit:
        most //= 2
    return most


def compared_cells(axes: Axes) -> int:
    """The most cells that all compared pairs have together."""
    most = most_pair_cells(axes)
    return sum(min(first * second, most) for first, second in combinations(axes.shape, 2))


def pairs_within(columns: ColumnEstimates, most: int) -> list[Pair]:
    """Pairs of at most `most` merged cells."""
    shape = columns.shape
    return [pair for pair in combinations(shape, 2) if shape[pair[0]] * shape[pair[1]] <= most]


def public_model_bytes(public: PublicFacts | None, columns: int, most_cells: int) -> int:
    """Memory of the public rows, and of a tree of `most_cells` cells beside the model's own."""
    if public is None:
        return 0
    return public.rows * 8 * (columns + 1) * _COPIES_OF_PUBLIC + most_cells * _BYTES_PER_CELL


def dependent_pairs(cells: PublicCells, most_cells: int, most_pair: int) -> tuple[Pair, ...]:
    """Pairs that depend on each other by more than sampling explains: of a tree of at most
    `most_cells` cells those that are furthest from independence in sum."""
    shape = cells.columns.shape
    few = cells.at_most(TUNING.rows_for_pairs)
    gains = {pair: _surplus(few, pair) for pair in pairs_within(cells.columns, most_pair)}
    return best_pairs(shape, {pair: gain for pair, gain in gains.items() if gain > 0}, most_cells)


def best_pairs(
    shape: Mapping[str, int], gains: Mapping[Pair, float], most_cells: int
) -> tuple[Pair, ...]:
    """Pairs of a tree of at most `most_cells` cells with the largest sum of gains that is found."""
    whole = math.fsum(gains.values())
    best = best_growth(
        lambda: _DependentPairs(gains),
        shape,
        (),
        most_cells,
        [price * whole / most_cells for price in TUNING.prices],
        looked_at=max(2, min(TUNING.looked_at, TUNING.looked_at_in_all // max(1, len(gains)))),
    )
    return best.taken


def _surplus(cells: PublicCells, pair: Pair) -> float:
    """The L1 distance from independence, as a share of the rows, less what sampling adds."""
    counts = cells.counts(pair) / cells.rows.rows
    product = np.multiply.outer(counts.sum(axis=1), counts.sum(axis=0))
    sampling = np.sqrt(2 / math.pi * product * (cells.repeats(pair) / cells.rows.rows))
    return float(np.abs(counts - product).sum() - np.minimum(2 * product, sampling).sum())


class _DependentPairs:
    """Pairs whose gains do not change, the most dependent first."""

    def __init__(self, gains: Mapping[Pair, float]) -> None:
        self._pairs = sorted(gains, key=lambda pair: -gains[pair])
        self._gains = gains
        self._open = list(range(len(self._pairs)))
        self._taken: list[int] = []

    @property
    def taken(self) -> tuple[Pair, ...]:
        return tuple(self._pairs[number] for number in self._taken)

    @property
    def sum(self) -> float:
        return math.fsum(self._gains[pair] for pair in self.taken)

    def promising(self, most: int) -> list[tuple[int, float]]:
        return [(number, self._gains[self._pairs[number]]) for number in self._open[:most]]

    def axes(self, candidate: int) -> Pair:
        return self._pairs[candidate]

    def fits(self, candidate: int) -> bool:  # noqa: ARG002
        return True

    def take(self, candidate: int) -> None:
        self._taken.append(candidate)
        self.drop(candidate)

    def drop(self, candidate: int) -> None:
        self._open.remove(candidate)


def dependence(cells: PublicCells, pairs: Sequence[Pair]) -> tuple[Factor, ...]:
    """The base measure: a conditional distribution for each clique of the tree over the pairs."""
    tree = JunctionTree.of(cells.columns.shape, pairs)
    pairwise = _pairwise(cells, pairs)
    tables = pairwise.marginals(tree.cliques)
    return tuple(
        Factor(clique, _mixed(cells, clique, separator, table))
        for clique, separator, table in zip(tree.cliques, tree.separators, tables, strict=True)
    )


def _pairwise(cells: PublicCells, pairs: Sequence[Pair]) -> GraphicalModel:
    """The public pairs' histograms as noisy ones, with the noise of drawing entities.

    The pull is the one that would be best if logarithms varied from cell to cell as much as the
    pairs' distances from independence say (see the shrinkage of `swift`).
    """
    shape, rows = cells.columns.shape, float(cells.rows.rows)
    marginals = []
    for axes in [*((name,) for name in shape), *pairs]:
        counts = cells.counts(axes)
        marginals.append(NoisyMarginal(axes, counts, cells.variances(axes) + 1.0))
    shrinkage = 1.0
    if pairs:
        few = cells.at_most(TUNING.rows_for_pairs)
        distances = np.array([max(_surplus(few, pair), TUNING.least_dependence) for pair in pairs])
        sizes = [shape[one] * shape[other] for one, other in pairs]
        pull = TUNING.pull * float(np.mean(sizes)) / float(np.mean(distances**2))
        variances = np.concatenate([each.variance.ravel() for each in marginals])
        shrinkage = pull * math.sqrt(float(variances.mean())) / rows
    return fit(
        shape,
        marginals,
        rows,
        shrinkage=max(shrinkage, TUNING.least_shrinkage),
        tolerance=TUNING.public_tolerance,
    )


def _mixed(cells: PublicCells, clique: AxisNames, separator: AxisNames, table: Floats) -> Floats:
    """Logarithms of the clique's cells given the separator's; see the head of this module."""
    group = _separator_cells(table.shape, clique, separator)
    groups = int(group.max()) + 1
    model = np.maximum(table.ravel(), _TINY)
    model = model / np.bincount(group, model, groups)[group]
    flat = cells.flat(clique)
    own, place, of_row = np.unique(
        cells.rows.entity * table.size + flat, return_index=True, return_inverse=True
    )
    times = np.bincount(of_row.reshape(-1)).astype(np.float64)
    cell, entity = own % table.size, cells.rows.entity[place]
    counts = np.bincount(flat, minlength=table.size).astype(np.float64)
    sums = np.bincount(group, counts, groups)
    entity_group = np.unique(entity * groups + group[cell], return_inverse=True)[1].reshape(-1)
    others = counts[cell] - times
    others_sums = sums[group[cell]] - np.bincount(entity_group, times)[entity_group]
    log_likelihoods = [
        float((times * np.log((others + weight * model[cell]) / (others_sums + weight))).sum())
        for weight in TUNING.pairwise_rows
    ]
    weight = TUNING.pairwise_rows[int(np.argmax(np.round(log_likelihoods, 6)))]
    logs: Floats = np.log((counts + weight * model) / (sums[group] + weight))
    return logs.reshape(table.shape)


def _separator_cells(sizes: tuple[int, ...], clique: AxisNames, separator: AxisNames) -> Integers:
    """The separator's flat cell of each flat cell of the clique."""
    cells = np.zeros(sizes, dtype=np.int64)
    for axis, (name, size) in enumerate(zip(clique, sizes, strict=True)):
        if name in separator:
            along = [-1 if i == axis else 1 for i in range(len(sizes))]
            cells = cells * size + np.arange(size).reshape(along)
    return np.ascontiguousarray(np.broadcast_to(cells, sizes)).reshape(-1)

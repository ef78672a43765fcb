"""What may be measured next: candidates with their public references, and which are left out."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from app.engine.columns.axes import Axes
from app.engine.inference.elimination import predicted_cells_with_each
from app.engine.inference.model import GraphicalModel
from app.engine.privacy.queries import Candidate, Count, GridReference
from app.engine.privacy.references import counts_of, on_grid
from app.engine.synthesizers.aim.workload import Clique, Workload, smallest

Floats = NDArray[np.float64]

# Cells of all candidates of a selection; the largest candidates give way.
MOST_OFFERED_CELLS = 2**22

# Cells measured in a run, for which noise is drawn one by one.
MOST_MEASURED_CELLS = 1_000_000


@dataclass(frozen=True, slots=True)
class Noise:
    """Standard deviation, in rows, of a measured cell, and the mean of its size in these."""

    deviation: float
    mean: float

    def expected_distance(self, expected: Floats) -> float:
        """The distance, in rows, that the noise adds to a marginal of `expected` rows in each
        cell, once it was fitted.

        The fit draws a cell towards what it was expected to be, so noise far above the root of
        (expected times deviation) is shrunk to about that; empty cells add nothing.
        """
        return float(
            np.minimum(self.mean * self.deviation, np.sqrt(expected * self.deviation)).sum()
        )


@dataclass(frozen=True, slots=True)
class OpenCandidate:
    """A candidate that may be chosen. Its reference is what is publicly expected of it, in rows,
    held in few bytes: all open candidates are held at once."""

    clique: Clique
    candidate: Candidate
    reference: GridReference
    noise: float

    @property
    def expected(self) -> Floats:
        return counts_of(self.reference)

    def overlaps(self, other: OpenCandidate) -> bool:
        """Whether they share two columns, so that measuring one says much of the other."""
        return len(set(self.clique) & set(other.clique)) > 1


class CandidatePool:
    """All candidates of a run, and those of them that a round may choose from."""

    def __init__(
        self,
        axes: Axes,
        workload: Workload,
        total: float,
        most_cells: int,
        held: Sequence[Clique] = (),
    ) -> None:
        """`held` are cliques of the junction tree from the start."""
        self._held = held
        self._shape = dict(zip(axes.names, axes.shape, strict=True))
        self._total = total
        self.most_cells = most_cells
        cliques = smallest(
            workload.candidates, self._shape, each=most_cells, in_all=MOST_OFFERED_CELLS
        )
        relevance = workload.relevance(cliques)
        self._counts = {
            clique: Count(clique, {name: axes.groupings[name] for name in clique})
            for clique in cliques
        }
        self._weights = dict(zip(cliques, relevance.tolist(), strict=True))

    @property
    def cliques(self) -> tuple[Clique, ...]:
        return tuple(self._counts)

    def cells(self, clique: Clique) -> int:
        return prod(self._shape[name] for name in clique)

    def open_candidates(
        self, model: GraphicalModel, measured: Collection[Clique], noise: Noise, share: float
    ) -> list[OpenCandidate]:
        """Candidates that fit, at this share of the budget being spent, with their references.

        A candidate is left out if with it the junction tree would pass `share` of its most
        cells (McKenna et al. 2022, section 4.3), if not enough is left of the cells that a run
        measures, or if its noise would add as much as all rows being in wrong cells.
        """
        left = MOST_MEASURED_CELLS - sum(self.cells(clique) for clique in measured)
        small = [clique for clique in self._counts if self.cells(clique) <= left]
        fitting = self._fitting(small, measured, share)
        found = (
            self._open(clique, table, noise)
            for clique, table in zip(fitting, model.each_marginal(fitting), strict=True)
        )
        return [each for each in found if each.noise < 2 * self._total]

    def still_open(
        self,
        opened: Sequence[OpenCandidate],
        measured: Collection[Clique],
        winner: OpenCandidate,
        share: float,
    ) -> list[OpenCandidate]:
        """Those of `opened` that do not overlap with a winner, and fit beside it."""
        left = MOST_MEASURED_CELLS - sum(self.cells(clique) for clique in measured)
        apart = {
            each.clique: each
            for each in opened
            if not each.overlaps(winner) and self.cells(each.clique) <= left
        }
        return [apart[clique] for clique in self._fitting(list(apart), measured, share)]

    def _fitting(
        self, cliques: Sequence[Clique], measured: Collection[Clique], share: float
    ) -> list[Clique]:
        sizes = predicted_cells_with_each(self._shape, [*self._held, *measured], cliques)
        most = self.most_cells * share
        return [clique for clique, cells in zip(cliques, sizes, strict=True) if cells <= most]

    def _open(self, clique: Clique, shares: Floats, noise: Noise) -> OpenCandidate:
        """The reference lies on a dyadic grid, which hides in what order a processor adds up
        floats: a run that is started again must ask the very same question."""
        weight = self._weights[clique]
        reference = on_grid(shares * self._total)
        distance = round(noise.expected_distance(counts_of(reference)))
        candidate = Candidate(self._counts[clique], reference, weight, bias=-weight * distance)
        return OpenCandidate(clique, candidate, reference, distance)

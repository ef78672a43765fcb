"""What is known of a distance that was not measured in counts of its own cells.

*From columns.* A pair is at least as far off as each of its columns. And let p be the exact shares
of a pair, a and b those of its columns: p_ij >= a_i + b_j - 1 (Frechet 1951). The distance to
shares q is 1 - sum min(p, q), so at most 1 - sum min(q_ij, max(0, a_i + b_j - 1)). That says
something where one value of each column has most of the rows.

*From a method's own bound.* `aim` states that its model's distance is at most d. The sample's is
at most d plus what drawing it adds. With m rows drawn independently, that is above
sum sqrt(q (1 - q) / m) / 2 + sqrt(ln(100) / (2 m)) with a chance below 1 % (McDiarmid 1989: a row
moves it by 1 / m). Rows that were changed to meet the dictionary's rules add their share.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from app.engine.grouping import Grouping
from app.engine.method import ExpectedError
from app.engine.privacy.queries import Count, Scored
from app.engine.schema import Schema
from app.engine.statements.evidence import Columns, Evidence
from app.engine.statements.noisy import Floats, coarsened

_MISSED_DRAW = 0.01


@dataclass(frozen=True, slots=True)
class StatedBound:
    """A method's bound of its model's distance, and the cells that it is about."""

    cells: Mapping[str, Grouping]
    distance: float

    def covers(self, columns: Columns, groupings: Sequence[Grouping]) -> bool:
        """Whether a distance over these cells cannot be larger: they are fewer or coarser."""
        return all(
            name in self.cells and coarsened(self.cells[name], grouping) is not None
            for name, grouping in zip(columns, groupings, strict=True)
        )


def stated_bounds(
    errors: Sequence[ExpectedError], scored: Sequence[Scored], schema: Schema
) -> list[StatedBound]:
    """The bounds of a method, in the cells of the questions that it made them of.

    A bound without such a question is left out: nothing says in which cells it holds.
    """
    asked: dict[Columns, Count] = {}
    for each in scored:
        # A later question about the same columns is about a later model.
        asked |= {count.columns: count for count in each.counts}
    bounds = []
    for error in errors:
        count = asked.get(error.columns)
        if count is not None and count.contribution.rule == "rows":
            cells = {
                name: count.groupings.get(name, schema.column(name).grouping)
                for name in count.columns
            }
            bounds.append(StatedBound(cells, error.distance))
    return bounds


def sampling_error(synthetic: Floats, draws: float) -> float:
    """The expected distance between a model and a sample of so many independent draws, by the
    normal law: sum sqrt(2 q (1 - q) / (pi m)) / 2."""
    if draws <= 0 or synthetic.sum() <= 0:
        return 1.0
    shares = synthetic / synthetic.sum()
    spread = float(np.sqrt(shares * (1 - shares)).sum())
    return min(spread * math.sqrt(2 / (math.pi * draws)) / 2, 1.0)


def drawn_bound(bound: float, synthetic: Floats, draws: float, changed: float) -> float:
    """The bound of a sample, from that of its model; `changed`: the share of repaired rows."""
    if draws <= 0:
        return 1.0
    mean = sampling_error(synthetic, draws) * math.sqrt(math.pi / 2)
    most = math.sqrt(math.log(1 / _MISSED_DRAW) / (2 * draws))
    return min(bound + mean + most + changed, 1.0)


def least_overlap(a: Evidence, b: Evidence, joint: Floats) -> float:
    """sum min(q_ij, max(0, a_i + b_j - 1)); `joint` are the sample's counts of the pair."""
    if not joint.sum():
        return 0.0
    sure = np.maximum(a.least_shares[:, None] + b.least_shares[None, :] - 1, 0.0)
    return float(np.minimum(joint / joint.sum(), sure).sum())

"""The form of a contribution rule, and the noise that a rule costs."""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import Field

from app.engine.privacy.loss import PrivacyLoss
from app.engine.privacy.queries import Contribution
from app.engine.schema import PrivacyUnit
from app.engine.synthesizers.base import Params, Problem

LARGEST_SCALE = 2.0**40
"""The kernel draws no noise of a larger scale."""


class AllRows(Params):
    """Each unit counts with all its rows, at most the dictionary's `max_rows`."""

    rule: Literal["rows"] = "rows"

    def contribution(self) -> Contribution:
        return Contribution()


class DistinctCells(Params):
    """Each unit counts once in at most `limit` of its cells, drawn at random."""

    rule: Literal["distinct"]
    limit: int = Field(ge=1, le=1_000_000, description="The most cells of one unit that count.")

    def contribution(self) -> Contribution:
        return Contribution("distinct", limit=self.limit)


class ClippedCounts(Params):
    """Each unit's counts are scaled down to Euclidean norm `norm`; not for pure guarantees."""

    rule: Literal["clipped"]
    norm: float = Field(
        gt=0,
        le=1e9,
        allow_inf_nan=False,
        description="The largest Euclidean norm of one unit's counts.",
    )

    def contribution(self) -> Contribution:
        return Contribution("clipped", norm=self.norm)


ContributionForm = Annotated[AllRows | DistinctCells | ClippedCounts, Field(discriminator="rule")]


def sensitivities(contribution: Contribution, unit: PrivacyUnit, cells: int) -> tuple[float, float]:
    """(L1, L2) of one histogram when one unit is added or removed."""
    most_rows = unit.max_rows if unit.kind == "entity" else 1
    if contribution.rule == "rows":
        return most_rows, most_rows
    if contribution.limit is not None:
        limit = min(contribution.limit, most_rows, cells)
        return limit, math.sqrt(limit)
    if contribution.norm is not None:
        norm = min(contribution.norm, most_rows)
        return min(most_rows, norm * math.sqrt(min(most_rows, cells))), norm
    return 1, 1


def expected_error(
    contribution: Contribution, unit: PrivacyUnit, cells: int, loss: PrivacyLoss
) -> float:
    """Standard deviation of the noise in one cell of a histogram bought with `loss`."""
    if loss.amount == 0:
        return math.inf
    l1, l2 = sensitivities(contribution, unit, cells)
    if loss.kind == "pure":
        return math.sqrt(2) * l1 / loss.value
    return l2 / math.sqrt(2 * loss.value)


def contribution_problems(contribution: Contribution, loss: PrivacyLoss) -> tuple[Problem, ...]:
    if contribution.rule == "clipped" and loss.kind == "pure":
        return (
            Problem(
                "/params/contribution/rule",
                "`clipped` bounds the Euclidean norm, which pure noise cannot use",
                "choose `rows` or `distinct`, or ask for a guarantee with a delta",
            ),
        )
    return ()


def noise_problems(error: float) -> tuple[Problem, ...]:
    """The noise of the finest question would pass the kernel's largest scale."""
    if error <= LARGEST_SCALE:
        return ()
    return (
        Problem(
            "/guarantee",
            "the noise would pass the largest scale that can be drawn",
            "ask for a larger guarantee or measure fewer columns",
        ),
    )

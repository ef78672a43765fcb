"""The form of a contribution rule, and the noise that a rule costs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field

from app.engine.method import Params, Problem
from app.engine.privacy.deviations import laplace_deviation
from app.engine.privacy.loss import PrivacyLoss
from app.engine.privacy.queries import SCORE_STEP, Contribution, Count
from app.engine.privacy.sensitivity import GRID, LARGEST_CLIPPED, sensitivity
from app.engine.privacy.unit_budget import UnitBudget

# The error of what nothing is spent on: beyond any noise, but still a number on the wire.
UNMEASURED = 2.0**62


class ChosenRule(Params):
    """`rows`, `clipped` or, under a pure guarantee, `distinct`, whichever promises the least error
    by the measured rows and distinct values of entities."""

    rule: Literal["auto"] = Field("auto", description="Chosen by what is measured of entities.")

    def widest(self, budget: UnitBudget) -> Contribution:
        """The rule of the largest noise among those that may be chosen."""
        most = budget.unit.max_rows
        if budget.loss.kind == "pure" or not 1 < most < LARGEST_CLIPPED:
            return Contribution()
        return Contribution("clipped", norm=float(most))

    def narrowest(self, budget: UnitBudget) -> Contribution:
        """The rule of the smallest noise among those that may be chosen."""
        if budget.loss.kind == "pure" and budget.unit.max_rows > 1:
            return Contribution("distinct", limit=1)
        widest = self.widest(budget)
        return Contribution("clipped", norm=1.0) if widest.rule == "clipped" else widest


class AllRows(Params):
    """Each unit counts with all its rows, at most the dictionary's `max_rows`."""

    rule: Literal["rows"] = Field("rows", description="Every bounded row counts.")

    def contribution(self) -> Contribution:
        return Contribution()


class DistinctCells(Params):
    """Each unit counts once in at most `limit` of its cells, drawn at random."""

    rule: Literal["distinct"] = Field(description="Each unit counts once in a cell.")
    limit: int = Field(ge=1, le=1_000_000, description="The most cells of one unit that count.")

    def contribution(self) -> Contribution:
        return Contribution("distinct", limit=self.limit)


class ClippedCounts(Params):
    """Each unit's counts are scaled down to Euclidean norm `norm`; not for pure guarantees."""

    rule: Literal["clipped"] = Field(description="Counts of a unit are scaled down to `norm`.")
    norm: float = Field(
        ge=1 / GRID,
        le=1e9,
        allow_inf_nan=False,
        description="The largest Euclidean norm of one unit's counts.",
    )

    def contribution(self) -> Contribution:
        return Contribution("clipped", norm=self.norm)


ContributionForm = Annotated[AllRows | DistinctCells | ClippedCounts, Field(discriminator="rule")]

# The same where entities are measured, so that a rule can be chosen.
RuleForm = Annotated[
    ChosenRule | AllRows | DistinctCells | ClippedCounts, Field(discriminator="rule")
]


def expected_error(contribution: Contribution, cells: int, budget: UnitBudget) -> float:
    """Standard deviation, in counts, of the noise in a cell of a histogram measured with `loss`."""
    loss = budget.loss
    if loss.amount <= 0:
        return UNMEASURED
    moved = sensitivity(contribution, budget.unit.max_rows, cells)
    if loss.kind == "pure":
        return laplace_deviation(moved.l1_counts / loss.value)
    return moved.l2_counts / math.sqrt(2 * loss.value)


def expected_errors(
    questions: Sequence[Count], weights: Sequence[float], budget: UnitBudget
) -> tuple[float, ...]:
    """Standard deviations of the noise in a cell of each of `questions`, one joint release.

    Each question names the groupings of all its columns.
    """
    return tuple(
        expected_error(question.contribution, _cells(question), part)
        for question, part in zip(questions, budget.split(weights), strict=True)
    )


def _cells(question: Count) -> int:
    return math.prod(question.groupings[name].cells for name in question.columns)


def expected_distance(error: float, loss: PrivacyLoss) -> float:
    """The mean absolute noise of a cell whose noise has standard deviation `error`."""
    return error * (math.sqrt(1 / 2) if loss.kind == "pure" else math.sqrt(2 / math.pi))


def expected_score_error(budget: UnitBudget) -> float:
    """The scale, in rows, of the noise on one private selection that counts all rows."""
    loss = budget.loss
    if loss.amount <= 0:
        return UNMEASURED
    epsilon = loss.value if loss.kind == "pure" else math.sqrt(8 * loss.value)
    return 2 * budget.unit.max_rows / epsilon


def contribution_problems(contribution: Contribution, budget: UnitBudget) -> tuple[Problem, ...]:
    """What the kernel would refuse about a rule."""
    if contribution.rule != "clipped":
        return ()
    if budget.loss.kind == "pure":
        return (
            Problem(
                "/params/contribution/rule",
                "`clipped` bounds the Euclidean norm, which pure noise cannot use",
                "choose `rows` or `distinct`, or ask for a guarantee with a delta",
            ),
        )
    if budget.unit.max_rows >= LARGEST_CLIPPED:
        return (
            Problem(
                "/params/contribution/rule",
                f"`clipped` is for units of fewer than {LARGEST_CLIPPED} rows",
                "choose `rows` or `distinct`",
            ),
        )
    return ()


def noise_scale(
    errors: Sequence[float], contribution: Contribution, scores: Sequence[float] = ()
) -> float:
    """The largest of these standard deviations, in the kernel's steps.

    `scores` are the errors of noisy distances, which are drawn in finer steps than counts.
    """
    steps = GRID if contribution.rule == "clipped" else 1
    drawn = (*(error * steps for error in errors), *(error / SCORE_STEP for error in scores))
    return max(drawn, default=0.0)

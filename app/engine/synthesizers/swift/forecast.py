"""What a run of `swift` can need at most, from public facts."""

from __future__ import annotations

from itertools import combinations

from app.engine.privacy.loss import PrivacyLoss
from app.engine.privacy.queries import Contribution, Count
from app.engine.privacy.scores import expected_distance_errors
from app.engine.schema import PrivacyUnit, Schema
from app.engine.synthesizers.axes import Axes, escaped
from app.engine.synthesizers.base import Limits, Preflight, Problem
from app.engine.synthesizers.contribution import (
    expected_error,
    noise_problems,
)
from app.engine.synthesizers.forecast import (
    counting_bytes,
    message_problems,
    question_problems,
    run_problems,
)
from app.engine.synthesizers.opening import forecast, opening_errors
from app.engine.synthesizers.swift.budget import Losses
from app.engine.synthesizers.swift.params import SwiftParams

MOST_COLUMNS = 200
"""A question scores every pair, and holds no more than it can."""

MOST_SCORED_CELLS = 2**26
"""Cells of all pairs that are scored: counting them takes a few seconds."""

_BYTES_PER_TREE_CELL = 100
_BYTES_PER_MEASURED_CELL = 400
"""Noisy counts, their copy through the pipe, and about forty vectors of the descent."""


def most_pair_cells(axes: Axes) -> int:
    """Pairs of more merged cells are neither scored nor measured: a power of 2.

    It is the largest for which all pairs together have at most `MOST_SCORED_CELLS` cells,
    whatever is merged.
    """
    sizes = [first * second for first, second in combinations(axes.shape, 2)]
    most = MOST_SCORED_CELLS
    while most > 4 and sum(min(size, most) for size in sizes) > MOST_SCORED_CELLS:
        most //= 2
    return most


def preflight(
    schema: Schema, unit: PrivacyUnit, params: SwiftParams, loss: PrivacyLoss, limits: Limits
) -> Preflight:
    plan = forecast(schema, unit, params, loss, limits)
    axes, problems, contribution, loss = plan.axes, plan.problems, plan.contribution, plan.loss
    problems += _weight_problems(params, axes)
    if len(axes.names) > MOST_COLUMNS:
        return Preflight(sum(axes.shape), 0, 0.0, (*problems, _too_many_columns(axes)))
    pair_cells = _pair_cells(axes, params)
    measured = min(params.most_cells, sum(pair_cells))
    cells = sum(axes.shape) + measured
    tree = sum(axes.shape) + params.most_cells
    memory = cells * _BYTES_PER_MEASURED_CELL + tree * _BYTES_PER_TREE_CELL
    memory += plan.memory_bytes + counting_bytes(sum(pair_cells), max(pair_cells, default=0))
    problems += run_problems(memory, cells + len(pair_cells) + plan.draws, limits)
    # A child hands over its model, and with the scores each reference for every other column.
    problems += message_problems(axes, 8 * max(tree, (len(axes.names) - 1) * sum(axes.shape)))
    problems += question_problems(
        max(sum(pair_cells), sum(axes.shape)),
        "/params/columns",
        "choose fewer columns, or coarser `bins`",
    )
    if not axes.names:
        return Preflight(0, memory, 0.0, problems)
    losses = Losses.of(loss, params, contribution, unit, len(axes.names))
    errors = _errors(axes, contribution, params, unit, losses)
    scores = _score_errors(axes, unit, losses)
    problems += noise_problems(errors, contribution, scores)
    return Preflight(cells, memory, errors[0], problems)


def _pair_cells(axes: Axes, params: SwiftParams) -> list[int]:
    most = min(params.most_cells, most_pair_cells(axes))
    return [min(first * second, most) for first, second in combinations(axes.shape, 2)]


def _errors(
    axes: Axes,
    contribution: Contribution,
    params: SwiftParams,
    unit: PrivacyUnit,
    losses: Losses,
) -> tuple[float, ...]:
    """Noise in a cell of a pair, were as many measured as there are columns, in equal parts;
    then of the columns, and of the pair that is given least."""
    errors = opening_errors(axes, contribution, unit, losses.one_way)
    pairs = list(combinations(axes.names, 2))
    if not pairs:
        return errors
    most = max(_pair_cells(axes, params))
    usual, least = (
        expected_error(contribution, unit, most, _of_each(losses.two_way, parts))
        for parts in (min(len(pairs), len(axes.names)), len(pairs) * most)
    )
    return (usual, *errors, least)


def _score_errors(axes: Axes, unit: PrivacyUnit, losses: Losses) -> tuple[float, ...]:
    """Noise in the distance of a pair, if pairs are scored."""
    if len(axes.names) < 3:
        return ()
    counts = [Count(pair, axes.groupings) for pair in combinations(axes.names, 2)]
    return expected_distance_errors(counts, [1.0] * len(counts), unit, losses.scores)[:1]


def _of_each(loss: PrivacyLoss, parts: int) -> PrivacyLoss:
    return PrivacyLoss(loss.kind, loss.amount // parts)


def _weight_problems(params: SwiftParams, axes: Axes) -> tuple[Problem, ...]:
    named = {f"/params/column_weights/{escaped(name)}": name for name in params.column_weights}
    if params.target is not None:
        named["/params/target"] = params.target
    return tuple(
        Problem(pointer, f"`{name}` is not among the chosen columns", "name a chosen column")
        for pointer, name in named.items()
        if name not in axes.names
    )


def _too_many_columns(axes: Axes) -> Problem:
    return Problem(
        "/params/columns",
        f"pairs would be chosen of {len(axes.names)} columns; {MOST_COLUMNS} are the most",
        "name fewer columns",
    )

"""What choosing and measuring pairs can need at most, from public facts."""

from __future__ import annotations

from itertools import combinations

from app.engine.columns.axes import Axes, not_chosen_problems
from app.engine.columns.contribution import expected_error
from app.engine.graphical.preparation import PreparationPlan, one_way_errors
from app.engine.graphical.run import TableBudget
from app.engine.json_pointer import escaped
from app.engine.method import Case, Needs, Problem, Question, Step
from app.engine.method.needs import counting_bytes
from app.engine.prior import public_model
from app.engine.prior.drift import drawn_cells, prior_errors
from app.engine.prior.public_model import compared_cells
from app.engine.privacy.queries import Contribution, Count
from app.engine.privacy.scores import expected_distance_errors
from app.engine.privacy.unit_budget import UnitBudget
from app.engine.schema import PrivacyUnit
from app.engine.synthesizers.swift.budget import (
    MostCells,
    PairBudget,
    budget_weights,
    chooses_twice,
    possible_shares,
    rows_loss,
)
from app.engine.synthesizers.swift.params import SwiftParams
from app.engine.synthesizers.swift.tuning import TUNING

# Cells of all pairs that are scored: counting them takes a few seconds.
MOST_SCORED_CELLS = 2**26

# A reference on its grid, what it was made of, and the message at both ends.
_BYTES_PER_TREE_CELL = 100
_BYTES_PER_COMPARED_CELL = 32

# Noisy counts, their copy through the pipe, and about forty vectors of the descent.
_BYTES_PER_MEASURED_CELL = 400


# By the cube of the columns, where these have two or three cells and most gains are above the
# noise: 2 s of one core for 50 columns, 10 to 13 s for 100, 76 to 126 s for 200 were measured.
_CHOOSING_SECONDS = 2e-5


# By the cells of the tree: 9 s of one core for 2 million, in some 500 steps of two fits.
_FITTING_SECONDS = 5e-6


def most_pair_cells(axes: Axes, *, has_public: bool = False) -> int:
    """Pairs of more merged cells are neither scored nor measured; with a public table fewer have
    as many, since each reference is then sent cell by cell."""
    return public_model.most_pair_cells(axes, *() if has_public else (MOST_SCORED_CELLS,))


def prior_cells(params: SwiftParams, noise: float = 1.0) -> int:
    """The most cells of the tree that public rows make, one at least, if the noise of a private
    cell is such a part of all rows."""
    most = MostCells.of(params, 0, has_public=True).tree // TUNING.prior_part
    is_useless = noise < TUNING.noise_of_no_prior
    part = 0.0 if is_useless else min(noise / TUNING.noise_of_whole_prior, 1.0)
    return max(1, int(most * part))


def marginal_needs(case: Case, plan: PreparationPlan, params: SwiftParams) -> Needs:
    axes, columns, has_public = plan.axes, len(plan.axes.names), case.public is not None
    pair_cells = _pair_cells(axes, params, has_public)
    most = MostCells.of(params, columns, has_public=has_public)
    measured = min(most.measured, sum(pair_cells))
    tree = sum(axes.shape) + most.tree
    memory = (sum(axes.shape) + measured) * _BYTES_PER_MEASURED_CELL + tree * _BYTES_PER_TREE_CELL
    if chooses_twice(columns, has_public=has_public):
        memory += compared_cells(axes) * _BYTES_PER_COMPARED_CELL
    # A child hands over its model, and with the scores each reference for every other column,
    # or of each pair.
    sent = 8 * sum(pair_cells) if has_public else 8 * (columns - 1) * sum(axes.shape)
    counting = Question(
        max(sum(pair_cells), sum(axes.shape)),
        "/params/columns",
        "choose fewer columns, or coarser `bins`",
    )
    needs = Needs(
        cells=measured,
        memory_bytes=memory + counting_bytes(sum(pair_cells), max(pair_cells, default=0)),
        draws=len(pair_cells) + drawn_cells(case, axes, params.public_entities, measured),
        message_bytes=max(8 * tree, sent),
        steps=(_choosing(columns, tree, has_public),),
        questions=(counting,),
    )
    if not columns:
        return needs
    return needs + _noise(case, plan, params, max(pair_cells, default=0))


def _noise(case: Case, plan: PreparationPlan, params: SwiftParams, most: int) -> Needs:
    """Under every split of the budget that a noisy number of rows can lead to; pairs have at most
    `most` cells."""
    axes, columns, has_public = plan.axes, len(plan.axes.names), case.public is not None
    is_counted = params.shares is None and columns > 1
    rows = (_rows_error(plan.budget),) if is_counted else ()
    errors, scores = list[float](), list[float]()
    loss = plan.budget.loss
    counting = loss - rows_loss(loss) if is_counted else loss
    for shares in (params.shares,) if params.shares else possible_shares(has_public=has_public):
        weights = budget_weights(shares, columns, is_named=has_public, is_read=has_public)
        budget = weights.split(counting)
        pairs = PairBudget.of(budget, columns, has_public=has_public)
        errors += _errors(axes, plan.contribution, most, case.unit, budget, pairs)
        if has_public:
            scores += prior_errors(case, axes, budget.prior, params.public_entities)
        else:
            scores += _score_errors(axes, case.unit, pairs)
    return plan.noise((*errors, *rows), scores)


def _pair_cells(axes: Axes, params: SwiftParams, is_public: bool) -> list[int]:
    measured = MostCells.of(params, len(axes.names), has_public=is_public).measured
    most = min(measured, most_pair_cells(axes, has_public=is_public))
    return [min(first * second, most) for first, second in combinations(axes.shape, 2)]


def _rows_error(budget: UnitBudget) -> float:
    """Noise in the number of rows, from which shares follow."""
    return expected_error(Contribution(), 1, UnitBudget(budget.unit, rows_loss(budget.loss)))


def _errors(
    axes: Axes,
    contribution: Contribution,
    most: int,
    unit: PrivacyUnit,
    budget: TableBudget,
    of_pairs: PairBudget,
) -> tuple[float, ...]:
    """Noise in a cell of a pair of `most` cells, were as many measured as there are columns, in
    equal parts; then of the columns, and of the pair that is given least."""
    errors = one_way_errors(axes, contribution, UnitBudget(unit, budget.one_way))
    pairs = list(combinations(axes.names, 2))
    if not pairs:
        return errors
    lowest = min(of_pairs.measured, key=lambda loss: loss.amount)
    usual, least = (
        expected_error(contribution, most, UnitBudget(unit, lowest.of_each(parts)))
        for parts in (min(len(pairs), len(axes.names)), len(pairs) * most)
    )
    return (usual, *errors, least)


def _score_errors(axes: Axes, unit: PrivacyUnit, budget: PairBudget) -> tuple[float, ...]:
    """Noise in the distance of a pair from independence, if pairs are scored."""
    if len(axes.names) <= 2:
        return ()
    counts = [Count(pair, axes.groupings) for pair in combinations(axes.names, 2)]
    lowest = min(budget.scored, key=lambda loss: loss.amount)
    return (max(expected_distance_errors(counts, [1.0] * len(counts), UnitBudget(unit, lowest))),)


def form_problems(axes: Axes, params: SwiftParams) -> tuple[Problem, ...]:
    named = {f"/params/column_weights/{escaped(name)}": name for name in params.column_weights}
    if params.target is not None:
        named["/params/target"] = params.target
    return not_chosen_problems(named.items(), axes)


def _choosing(columns: int, tree: int, has_public: bool) -> Step:
    """Choosing pairs, and fitting them in a tree of so many cells."""
    times = 2 if chooses_twice(columns, has_public=has_public) else 1
    return Step(
        times * (columns**3 * _CHOOSING_SECONDS + tree * _FITTING_SECONDS),
        f"choosing among the pairs of {columns} columns and fitting {tree} cells",
        "choose fewer columns, or a smaller `most_cells`",
    )

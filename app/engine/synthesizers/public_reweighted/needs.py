"""What `public_reweighted` can need at most, and what is wrong with its params."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from app.engine.columns.axes import Axes
from app.engine.columns.contribution import (
    contribution_problems,
    expected_error,
    expected_errors,
    noise_scale,
)
from app.engine.columns.private_bins import AxisPlan
from app.engine.method import Case, Needs, Problem, Question
from app.engine.method.needs import bounded, counting_bytes
from app.engine.prior.entities.fitting import fitting_bytes
from app.engine.prior.entities.params import PublicReweightedParams
from app.engine.privacy.queries import Count
from app.engine.privacy.scores import expected_distance_errors
from app.engine.public.rows import public_problems
from app.engine.synthesizers.public_reweighted.budget import StepBudgets
from app.engine.synthesizers.public_reweighted.questions import (
    candidates,
    cells_of,
    scored_rule,
    size_questions,
    watched,
)


def run_needs(case: Case, plan: AxisPlan, params: PublicReweightedParams) -> Needs:
    axes, rule = plan.axes, params.rule(plan.rest)
    counts, columns = candidates(axes, params, rule), watched(axes, params, rule)
    sizes = [cells_of(count) for count in (*counts, *columns)]
    cells, largest = bounded(sum(sizes)), max(sizes, default=1)
    rows = 0 if case.public is None else case.public.rows
    problems = (
        *plan.problems,
        *_named_problems(axes, params),
        *public_problems(case.schema, case.unit, case.public, axes.names, needs_entities=True),
        *contribution_problems(rule, plan.rest),
        *_candidate_problems(counts),
    )
    return (
        Needs.of_table(len(axes.names), case.limits)
        + Needs(
            cells=cells,
            memory_bytes=counting_bytes(cells, largest) + 8 * cells,
            draws=cells + plan.draws,
            # Scored candidates are sent with the public histogram that each is compared with.
            message_bytes=cells if params.measure is None else 0,
            header_cells=axes.header_cells,
            questions=(Question(cells, "/params/measure", "measure fewer histograms"),),
            problems=problems,
        )
        + Needs(memory_bytes=fitting_bytes(rows, len(axes.names), len(sizes)))
        + _noise(params, counts, columns, largest, StepBudgets.of(plan.rest, params))
    )


def _noise(
    params: PublicReweightedParams,
    counts: Sequence[Count],
    columns: Sequence[Count],
    largest: int,
    budgets: StepBudgets,
) -> Needs:
    """Noise if all candidates are chosen, in equal parts; the error of one alone is stated."""
    unit, rule = budgets.counts.unit, params.rule(budgets.counts)
    error = expected_error(rule, largest, budgets.counts)
    questions = size_questions(unit)
    errors = [error, *expected_errors(questions, (1.0,) * len(questions), budgets.size)]
    for together, budget in ((columns, budgets.one_way), (counts, budgets.counts)):
        if together:
            errors.append(expected_error(rule, largest, budget.of_each(len(together))))
    distances: tuple[float, ...] = ()
    if params.measure is None and counts:
        scored = [replace(count, contribution=scored_rule(unit)) for count in counts]
        distances = expected_distance_errors(scored, [1.0] * len(scored), budgets.scores)
    return Needs(noise_scale=noise_scale(errors, rule, distances), expected_error=error)


def _named_problems(axes: Axes, params: PublicReweightedParams) -> Iterator[Problem]:
    fields = {"watch": params.watch, "pool": params.pool, "keep": params.keep}
    fields |= {f"measure/{i}": names for i, names in enumerate(params.measure or ())}
    for field, names in fields.items():
        yield from _column_problems(f"/params/{field}", names or (), axes)


def _column_problems(pointer: str, names: Sequence[str], axes: Axes) -> Iterator[Problem]:
    for place, name in enumerate(names):
        if name not in axes.names:
            message = f"`{name}` is not among the chosen columns"
            yield Problem(f"{pointer}/{place}", message, "name columns that `columns` has")
    if len(set(names)) != len(names):
        yield Problem(pointer, "a column is named twice", "name each column once")


def _candidate_problems(counts: Sequence[Count]) -> tuple[Problem, ...]:
    if counts:
        return ()
    message = "there is no histogram to measure: every column has more cells than are allowed"
    return (Problem("/params/most_cells", message, "allow more cells, or give coarser `bins`"),)

"""The steps of `aim`, and their forecast from public facts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from app.engine.columns import one_way
from app.engine.columns.axes import Axes, escaped
from app.engine.columns.contribution import (
    expected_error,
    expected_score_error,
    noise_problems,
)
from app.engine.columns.estimates import rows_per_count
from app.engine.columns.private_bins import delta_for_values
from app.engine.columns.resources import (
    counting_bytes,
    message_problems,
    run_problems,
)
from app.engine.graphical import preparation
from app.engine.graphical.preparation import one_way_errors
from app.engine.graphical.table_model import TableModel
from app.engine.method.base import (
    ExpectedError,
    Limits,
    Preflight,
    Problem,
    Progress,
    PublicFacts,
    PublicUse,
    Session,
)
from app.engine.prior.drift import (
    DRIFT_SHARE,
    NearEntities,
    distance_errors,
    public_prior,
)
from app.engine.prior.entities.model import PublicReweightedModel
from app.engine.prior.entities.near_entities import (
    entity_bytes,
    entity_cells,
    entity_problems,
    load_either,
)
from app.engine.prior.public_model import (
    PublicModel,
    compared_cells,
    public_model_bytes,
    public_model_problems,
)
from app.engine.privacy.loss import PrivacyLoss
from app.engine.privacy.queries import Contribution, Count
from app.engine.privacy.scores import expected_distance_errors
from app.engine.public.rows import readable
from app.engine.schema import PrivacyUnit, Schema
from app.engine.synthesizers.aim import bounds
from app.engine.synthesizers.aim.candidates import (
    MOST_MEASURED_CELLS,
    MOST_OFFERED_CELLS,
    CandidatePool,
)
from app.engine.synthesizers.aim.entity_marginals import EntityMarginals
from app.engine.synthesizers.aim.model import BoundedModel
from app.engine.synthesizers.aim.params import AimParams, Shares
from app.engine.synthesizers.aim.rounds import Rounds
from app.engine.synthesizers.aim.schedule import Schedule, expected_winners
from app.engine.synthesizers.aim.workload import (
    MOST_CANDIDATES,
    Clique,
    Workload,
    candidates_of_degree,
    usual_degree,
)
from app.engine.table import PublicTable

_BOUNDS = 0.04
_SELECTION = 0.1
_USUAL_ERROR = 50.0
"""Noise in rows of a one-way cell, bought with a quarter of the budget, where a quarter is best."""
_ONE_WAY = (0.15, 0.55)
_MORE_FOR_TEN_TIMES = 0.3
_LESS_FOR_A_TENTH = 0.18

_PRIOR_PART = 4
"""The public tree has at most one part in so many of the most cells."""

_SECONDS_PER_LOOK = 2.5e-4
"""A candidate's share of a selection: its reference, its place in the tree, and its score."""

_BYTES_PER_OFFERED_CELL = 16
"""A reference on its grid, and the message at both ends."""
_BYTES_PER_EXPECTED_CELL = 32
"""Shares of one marginal, once more in the cells of the dictionary, and what they are made of."""
_BYTES_PER_TREE_CELL = 400
"""Shares and logarithms of a tree and of its successor, and what is carried between cliques."""
_BYTES_PER_MEASURED_CELL = 300
"""Values, the vectors of the descent with its memory, and the counts in the kernel."""


class Aim:
    name = "aim"
    title = "Marginals chosen adaptively for a workload, with bounds on every error"
    reference = "McKenna, Mullins, Sheldon and Miklau (2022), AIM"
    uses_public: PublicUse = "optional"
    Params = AimParams

    def check(
        self,
        schema: Schema,
        unit: PrivacyUnit,
        params: AimParams,
        loss: PrivacyLoss,
        public: PublicFacts | None,
        limits: Limits,
    ) -> Preflight:
        plan = preparation.forecast(schema, unit, params, loss, limits)
        axes, problems, contribution, loss = plan.axes, plan.problems, plan.contribution, plan.loss
        problems += _workload_problems(axes, params)
        problems += public_model_problems(schema, unit, public, axes.names, limits)
        problems += entity_problems(unit, public, params.public_entities)
        if problems:
            return Preflight(sum(axes.shape), 0, 0.0, problems)
        workload = _workload(axes, params)
        forecast = _Forecast.of(axes, workload, params.most_cells)
        memory = forecast.memory_bytes + plan.memory_bytes
        memory += public_model_bytes(public, len(axes.names), _prior_cells(params))
        memory += entity_bytes(unit, public, params.public_entities, axes)
        kept = entity_cells(unit, public, params.public_entities, axes)
        compared = 0 if public is None else compared_cells(axes)
        problems += message_problems(axes, 8 * max(params.most_cells, forecast.offered, compared))
        problems += run_problems(
            memory,
            max(forecast.drawn, sum(axes.shape) + kept) + plan.draws,
            limits,
            len(axes.names),
        )
        problems += _choosing_problems(axes, workload, limits)
        losses = _Losses.of(loss, axes, contribution, params, unit, workload, public is not None)
        errors = losses.errors(axes, contribution, unit, params.most_cells, workload)
        scores = losses.score_errors(axes, unit, workload)
        if public is not None and losses.prior.amount:
            scores += distance_errors(axes, unit, public, losses.prior, params.public_entities)
        problems += noise_problems(errors, contribution, scores)
        return plan.preflight(forecast.drawn, memory, errors[0], problems)

    def delta_for_values(self, params: AimParams, schema: Schema) -> float:
        return delta_for_values(schema, params)

    def fit(
        self,
        session: Session,
        params: AimParams,
        public: PublicTable | None,
        seed: int,
        progress: Progress,
    ) -> BoundedModel:
        prepared = preparation.start(session, params, progress)
        axes, contribution = prepared.axes, prepared.contribution
        workload = _workload(axes, params)
        public, rows = readable(public, session.schema, axes.names)
        losses = _Losses.of(
            prepared.loss, axes, contribution, params, session.unit, workload, public is not None
        )
        opened = preparation.measure_columns(
            session, prepared, params, losses.one_way, progress, rows
        )
        columns, measured = opened.columns, opened.measured

        def errors(model: bounds.MarginalSource) -> tuple[ExpectedError, ...]:
            if not losses.bounds.amount:
                return ()
            progress(0.92, "bounding errors")
            rows_error = bounds.rows_error(axes, contribution, session.unit, losses.one_way)
            bounded = bounds.bounded(axes, workload.closure)
            return bounds.measured_bounds(session, model, bounded, rows_error)

        prior: PublicModel | NearEntities | None = None
        if public is not None and rows is not None:
            progress(0.05, "learning from the public table")
            prior = public_prior(
                session,
                opened,
                rows,
                losses.prior,
                public=public,
                entity_use=params.public_entities,
                most_cells=_prior_cells(params),
                seed=seed,
            )
        if isinstance(prior, NearEntities):
            progress(0.4, "weighing public entities")
            left = session.remaining - losses.bounds
            weighted = prior.model(session, left, self.name, workload.weight)
            told = EntityMarginals(weighted, columns.axes, measured.size)
            return BoundedModel(weighted, errors(told))
        cliques = () if prior is None else prior.cliques
        rounds = Rounds(
            session,
            columns,
            CandidatePool(columns.merged, workload, columns.total, params.most_cells, cliques),
            contribution,
            rows_per_count(measured.answers[0], measured.size),
            losses.schedule,
            params.winners,
            reserve=losses.bounds if workload.candidates else session.remaining,
            base=None if prior is None else prior.factors,
        )
        model = opened.model(self.name, rounds.run(progress))
        return BoundedModel(model, errors(model))

    def load(
        self, schema: Schema, unit: PrivacyUnit, data: bytes
    ) -> TableModel | PublicReweightedModel:
        return load_either(self.name, schema, unit, data)


def _prior_cells(params: AimParams) -> int:
    """The most cells of the tree that public rows make: less than the first round leaves."""
    return params.most_cells // _PRIOR_PART


def _workload(axes: Axes, params: AimParams) -> Workload:
    if params.workload is None:
        degree = params.degree or usual_degree(len(axes.names))
        return Workload.of_degree(axes.names, degree, params.column_weights, params.target)
    return Workload.of(
        axes.names,
        [each.columns for each in params.workload],
        [each.weight for each in params.workload],
        params.column_weights,
        params.target,
    )


def _workload_problems(axes: Axes, params: AimParams) -> tuple[Problem, ...]:
    return (
        *_unknown("/params/target", [] if params.target is None else [params.target], axes),
        *(
            problem
            for name in params.column_weights
            for problem in _unknown(f"/params/column_weights/{escaped(name)}", [name], axes)
        ),
        *_marginal_problems(axes, params),
        *_size_problems(axes, params),
    )


def _unknown(pointer: str, names: Sequence[str], axes: Axes) -> tuple[Problem, ...]:
    return tuple(
        Problem(pointer, f"`{name}` is not among the chosen columns", "name a chosen column")
        for name in names
        if name not in axes.groupings
    )


def _marginal_problems(axes: Axes, params: AimParams) -> tuple[Problem, ...]:
    problems: list[Problem] = []
    for number, marginal in enumerate(params.workload or ()):
        pointer = f"/params/workload/{number}/columns"
        problems += _unknown(pointer, marginal.columns, axes)
        if len(set(marginal.columns)) != len(marginal.columns):
            problems.append(Problem(pointer, "a column is named twice", "name each column once"))
    if params.workload is not None and params.degree is not None:
        problems.append(
            Problem(
                "/params/degree",
                "a workload is named already",
                "leave out either `degree` or `workload`",
            )
        )
    return tuple(problems)


def _size_problems(axes: Axes, params: AimParams) -> tuple[Problem, ...]:
    """More candidates than are offered; of a named workload no more than this many are counted."""
    if params.workload is not None:
        candidates, pointer = sum(2 ** len(m.columns) for m in params.workload), "/params/workload"
        if candidates > MOST_CANDIDATES:
            candidates = len(_workload(axes, params).closure)
    else:
        degree = params.degree or usual_degree(len(axes.names))
        candidates = candidates_of_degree(len(axes.names), degree)
        pointer = "/params/columns" if params.degree is None else "/params/degree"
    if candidates <= MOST_CANDIDATES:
        return ()
    return (
        Problem(
            pointer,
            f"{candidates} marginals would be offered; {MOST_CANDIDATES} are the most",
            "choose fewer columns, a lower `degree`, or a smaller `workload`",
        ),
    )


def _choosing_problems(axes: Axes, workload: Workload, limits: Limits) -> tuple[Problem, ...]:
    looks = expected_winners(len(axes.names)) * len(workload.candidates)
    seconds = looks * _SECONDS_PER_LOOK
    if seconds <= limits.time_s / 2:
        return ()
    return (
        Problem(
            "/params",
            f"choosing among {len(workload.candidates)} marginals would take about "
            f"{round(seconds)} seconds",
            "choose fewer columns, a lower `degree`, or a smaller `workload`",
        ),
    )


@dataclass(frozen=True, slots=True)
class _Losses:
    """Parts of the budget; no step that is not taken is paid for."""

    one_way: PrivacyLoss
    bounds: PrivacyLoss
    schedule: Schedule
    prior: PrivacyLoss

    @classmethod
    def of(
        cls,
        loss: PrivacyLoss,
        axes: Axes,
        contribution: Contribution,
        params: AimParams,
        unit: PrivacyUnit,
        workload: Workload,
        is_public: bool,
    ) -> _Losses:
        shares = params.shares or _usual_shares(loss, axes, contribution, unit)
        is_choosing = bool(workload.candidates)
        guard = DRIFT_SHARE * shares.selection if is_public and is_choosing else 0.0
        selection = shares.selection - guard
        one_way_loss, rounds, reserve, prior = loss.split(
            (
                shares.one_way,
                selection + shares.marginals if is_choosing else 0.0,
                shares.bounds,
                guard,
            )
        )
        selection /= selection + shares.marginals
        schedule = Schedule.start(rounds, selection, len(axes.names))
        return cls(one_way_loss, reserve, schedule, prior)

    def errors(
        self,
        axes: Axes,
        contribution: Contribution,
        unit: PrivacyUnit,
        most_cells: int,
        workload: Workload,
    ) -> tuple[float, ...]:
        """Noise in a cell of a marginal of the first round, then of columns and choices."""
        found = one_way_errors(axes, contribution, unit, self.one_way)
        if workload.candidates:
            first = expected_error(contribution, unit, most_cells, self.schedule.measure)
            found = (first, *found)
        if len(workload.candidates) > 1:
            found = (*found, expected_score_error(unit, self.schedule.select))
        return found

    def score_errors(self, axes: Axes, unit: PrivacyUnit, workload: Workload) -> tuple[float, ...]:
        """Noise in the distance of a bounded marginal, if any is bounded."""
        if not self.bounds.amount:
            return ()
        groupings = axes.groupings
        counts = [
            Count(clique, {name: groupings[name] for name in clique})
            for clique in bounds.bounded(axes, workload.closure)
        ]
        errors = expected_distance_errors(counts, [1.0] * len(counts), unit, self.bounds)
        return (max(errors),)


def _usual_shares(
    loss: PrivacyLoss, axes: Axes, contribution: Contribution, unit: PrivacyUnit
) -> Shares:
    """Little noise leaves more for marginals: what it would be with a quarter decides."""
    quarter, _ = loss.split((1.0, 3.0))
    part, *_ = quarter.split(one_way.shares(axes, contribution, unit, quarter))
    error = expected_error(contribution, unit, max(axes.shape), part)
    tens = math.log10(max(error, 1e-3) / _USUAL_ERROR)
    one = 0.25 + tens * (_MORE_FOR_TEN_TIMES if tens > 0 else _LESS_FOR_A_TENTH)
    one = round(min(max(one, _ONE_WAY[0]), _ONE_WAY[1]), 3)
    rest = 1 - one - _BOUNDS
    return Shares(
        one_way=one,
        selection=_SELECTION * rest,
        marginals=(1 - _SELECTION) * rest,
        bounds=_BOUNDS,
    )


@dataclass(frozen=True, slots=True)
class _Forecast:
    """The most cells that are offered at once, held by the tree, and drawn with noise."""

    offered: int
    bounded: int
    drawn: int
    memory_bytes: int

    @classmethod
    def of(cls, axes: Axes, workload: Workload, most_cells: int) -> _Forecast:
        shape = dict(zip(axes.names, axes.shape, strict=True))
        sizes = sorted(_sizes(workload.candidates, shape))
        offered = min(sum(sizes), MOST_OFFERED_CELLS)
        most_measured = min(
            MOST_MEASURED_CELLS,
            expected_winners(len(axes.names))
            * max((size for size in sizes if size <= most_cells), default=0),
        )
        drawn = sum(axes.shape) + most_measured
        own = bounds.bounded(axes, workload.closure)
        at_once = min(sum(_sizes(own, shape)), MOST_OFFERED_CELLS)
        memory = (
            _BYTES_PER_OFFERED_CELL * max(offered, at_once)
            + _BYTES_PER_EXPECTED_CELL * max((*_sizes(own, shape), most_cells))
            + _BYTES_PER_TREE_CELL * most_cells
            + _BYTES_PER_MEASURED_CELL * drawn
            + counting_bytes(max(offered, at_once))
        )
        return cls(offered, at_once, drawn, memory)


def _sizes(cliques: Sequence[Clique], shape: Mapping[str, int]) -> list[int]:
    return [prod(shape[name] for name in clique) for clique in cliques]

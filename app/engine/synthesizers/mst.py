"""`mst`: noisy marginals along a privately chosen spanning tree of the columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from pydantic import Field

from app.engine.columns.axes import Axes
from app.engine.columns.contribution import (
    expected_distance,
    expected_error,
    expected_score_error,
    noise_problems,
)
from app.engine.columns.estimates import ColumnEstimates, in_rows
from app.engine.columns.private_bins import (
    delta_for_values,
)
from app.engine.columns.resources import (
    counting_bytes,
    message_problems,
    question_problems,
    run_problems,
    time_problems,
)
from app.engine.constraints.structural_zeros import structural_zeros
from app.engine.graphical import preparation
from app.engine.graphical.preparation import TableParams, one_way_errors
from app.engine.graphical.spanning_tree import (
    Pair,
    PriorTree,
    choose_tree,
    least_loss,
    selection_seconds,
)
from app.engine.graphical.table_model import TableModel
from app.engine.inference.estimation import fit
from app.engine.method.base import (
    Limits,
    Params,
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
    most_pair_cells,
    pairs_within,
    public_model_bytes,
    public_model_problems,
)
from app.engine.privacy.loss import PrivacyLoss
from app.engine.privacy.queries import Contribution, Count, Measurement
from app.engine.public.rows import readable
from app.engine.schema import PrivacyUnit, Schema
from app.engine.table import PublicTable

MOST_COLUMNS = 200
"""A selection offers every pair, and a question holds no more than it can."""

MOST_PRIOR_CELLS = 250_000
"""Cells of the tree that public rows make."""

_BYTES_PER_CELL = 160
"""Counts and their copy through the pipe, then about a dozen vectors of the descent."""


class Shares(Params):
    """How the budget is divided; only the proportions matter."""

    one_way: float = Field(1.0, gt=0, le=1e6, description="One-way histograms, and the size.")
    selection: float = Field(0.5, gt=0, le=1e6, description="Choosing the tree.")
    two_way: float = Field(1.5, gt=0, le=1e6, description="Histograms of the tree's edges.")


class MstParams(TableParams):
    shares: Shares = Field(
        default_factory=Shares, description="How the budget is divided, beside what is bought."
    )
    most_pair_cells: int = Field(
        1_000_000,
        ge=4,
        le=20_000_000,
        description="Pairs with more cells than this after merging are not measured.",
    )


class Mst:
    name = "mst"
    title = "Maximum spanning tree of noisy two-way marginals"
    reference = "McKenna, Miklau and Sheldon (2021), Winning the NIST Contest"
    uses_public: PublicUse = "optional"
    Params = MstParams

    def check(
        self,
        schema: Schema,
        unit: PrivacyUnit,
        params: MstParams,
        loss: PrivacyLoss,
        public: PublicFacts | None,
        limits: Limits,
    ) -> Preflight:
        plan = preparation.forecast(schema, unit, params, loss, limits)
        axes, problems, contribution, loss = plan.axes, plan.problems, plan.contribution, plan.loss
        problems += public_model_problems(schema, unit, public, axes.names, limits)
        problems += entity_problems(unit, public, params.public_entities)
        if len(axes.names) > MOST_COLUMNS:
            return Preflight(sum(axes.shape), 0, 0.0, (*problems, _too_many_columns(axes)))
        most = _most_pair_cells(params, axes, public is not None)
        pair_cells = _pair_cells(axes, most)
        cells = sum(axes.shape) + sum(pair_cells[: max(0, len(axes.names) - 1)])
        memory = cells * _BYTES_PER_CELL + plan.memory_bytes
        memory += public_model_bytes(public, len(axes.names), MOST_PRIOR_CELLS + most)
        memory += entity_bytes(unit, public, params.public_entities, axes)
        kept = entity_cells(unit, public, params.public_entities, axes)
        memory += counting_bytes(sum(pair_cells), max(pair_cells, default=0))
        # A child hands over its model, and in a round each reference for every other column, or
        # of each pair.
        prior = 0 if public is None else max(compared_cells(axes), MOST_PRIOR_CELLS + most)
        problems += time_problems(
            selection_seconds(len(axes.names)),
            f"choosing a tree over {len(axes.names)} columns",
            "choose fewer columns",
            limits,
        )
        problems += message_problems(
            axes, 8 * max(cells, (len(axes.names) - 1) * sum(axes.shape), prior)
        )
        drawn = max(cells, sum(axes.shape) + kept) + plan.draws
        problems += run_problems(memory, drawn, limits, len(axes.names)) + question_problems(
            max(sum(pair_cells), sum(axes.shape)),
            "/params/most_pair_cells",
            "lower it, choose fewer columns, or coarser `bins`",
        )
        if not axes.names:
            return Preflight(0, memory, 0.0, problems)
        losses = _losses(loss, params, len(axes.names), public is not None)
        errors = _errors(axes, contribution, unit, losses, most)
        scores: tuple[float, ...] = ()
        if public is not None:
            entity_use = params.public_entities
            scores = distance_errors(axes, unit, public, losses.prior, entity_use)
        problems += noise_problems(errors, contribution, scores)
        return plan.preflight(cells, memory, errors[0], problems)

    def delta_for_values(self, params: MstParams, schema: Schema) -> float:
        return delta_for_values(schema, params)

    def fit(
        self,
        session: Session,
        params: MstParams,
        public: PublicTable | None,
        seed: int,
        progress: Progress,
    ) -> TableModel | PublicReweightedModel:
        prepared = preparation.start(session, params, progress)
        public, rows = readable(public, session.schema, prepared.axes.names)
        losses = _losses(prepared.loss, params, len(prepared.axes.names), public is not None)
        opened = preparation.measure_columns(
            session, prepared, params, losses.one_way, progress, rows
        )
        columns = opened.columns
        prior: PublicModel | NearEntities | None = None
        if public is not None and rows is not None:
            progress(0.1, "learning from the public table")
            prior = public_prior(
                session,
                opened,
                rows,
                losses.prior,
                public=public,
                entity_use=params.public_entities,
                most_cells=MOST_PRIOR_CELLS,
                seed=seed,
            )
        if isinstance(prior, NearEntities):
            progress(0.2, "weighing public entities")
            return prior.model(session, session.remaining, self.name, lambda _: 1.0)
        cliques = () if prior is None else prior.cliques
        progress(0.2, "choosing the tree")
        most = _most_pair_cells(params, prepared.axes, public is not None)
        edges = choose_tree(
            session,
            columns.merged,
            columns.counts,
            losses.selection,
            most_cells=most,
            noise_per_cell=expected_distance(
                losses.edge_error(prepared.contribution, session.unit, most), prepared.loss
            ),
            start=None if prior is None else _known(prior, columns, most),
        )
        progress(0.6, "counting pairs")
        answers: tuple[Measurement, ...] = ()
        if len(columns.shape) > 1:
            answers = _measure(session, columns.merged, edges, prepared.contribution)
        progress(0.75, "fitting the tree")
        graph = fit(
            columns.shape,
            [*columns.marginals, *(in_rows(answer, columns.size) for answer in answers)],
            columns.total,
            base=None if prior is None else prior.factors,
            zeros=structural_zeros(session.schema, columns.merged.groupings, [*cliques, *edges]),
        )
        return opened.model(self.name, graph)

    def load(
        self, schema: Schema, unit: PrivacyUnit, data: bytes
    ) -> TableModel | PublicReweightedModel:
        return load_either(self.name, schema, unit, data)


@dataclass(frozen=True, slots=True)
class _Losses:
    """Parts of the budget; no step that is not taken is paid for."""

    one_way: PrivacyLoss
    selection: PrivacyLoss
    two_way: PrivacyLoss
    prior: PrivacyLoss
    edges: int

    def edge_error(self, contribution: Contribution, unit: PrivacyUnit, cells: int) -> float:
        """Standard deviation of the noise in a cell of a measured pair of `cells` cells."""
        return expected_error(contribution, unit, cells, self.two_way.of_each(self.edges))

    def choice_error(self, unit: PrivacyUnit) -> float:
        return expected_score_error(unit, least_loss(self.selection, self.edges + 1))


def _losses(loss: PrivacyLoss, params: MstParams, columns: int, is_public: bool) -> _Losses:
    weights = params.shares
    guard = DRIFT_SHARE * weights.selection if is_public and columns > 1 else 0.0
    one_way, selection, two_way, prior = loss.split(
        (
            weights.one_way,
            weights.selection - guard if columns > 2 else 0.0,
            weights.two_way if columns > 1 else 0.0,
            guard,
        )
    )
    return _Losses(one_way, selection, two_way, prior, edges=max(1, columns - 1))


def _known(prior: PublicModel, columns: ColumnEstimates, most: int) -> PriorTree:
    expected = prior.references(pairs_within(columns, most))
    return PriorTree(expected, prior.cliques, MOST_PRIOR_CELLS + most)


def _most_pair_cells(params: MstParams, axes: Axes, is_public: bool) -> int:
    """With a public table each pair's reference is sent cell by cell."""
    most = params.most_pair_cells
    return min(most, most_pair_cells(axes)) if is_public else most


def _too_many_columns(axes: Axes) -> Problem:
    return Problem(
        "/params/columns",
        f"a tree would be chosen over {len(axes.names)} columns; {MOST_COLUMNS} are the most",
        "name fewer columns",
    )


def _pair_cells(axes: Axes, most: int) -> list[int]:
    """The most cells that each pair can have, the largest first."""
    return sorted((min(a * b, most) for a, b in combinations(axes.shape, 2)), reverse=True)


def _errors(
    axes: Axes, contribution: Contribution, unit: PrivacyUnit, losses: _Losses, most_cells: int
) -> tuple[float, ...]:
    """Noise in a cell of the finest marginals, then of every other question."""
    errors = one_way_errors(axes, contribution, unit, losses.one_way)
    if len(axes.names) > 1:
        errors = (losses.edge_error(contribution, unit, most_cells), *errors)
    if len(axes.names) > 2:
        errors = (*errors, losses.choice_error(unit))
    return errors


def _measure(
    session: Session, axes: Axes, pairs: Sequence[Pair], contribution: Contribution
) -> tuple[Measurement, ...]:
    """Noisy histograms of the pairs, for all that is left of the allowance.

    Where no pair is worth measuring, the columns are measured once more.
    """
    asked: list[tuple[str, ...]] = [*pairs] or [(name,) for name in axes.names]
    questions = [
        Count(names, {name: axes.groupings[name] for name in names}, contribution)
        for names in asked
    ]
    left = session.remaining
    return session.count(questions, PrivacyLoss(left.kind, left.amount))

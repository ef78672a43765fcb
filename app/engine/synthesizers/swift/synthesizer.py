"""The steps of `swift`."""

from __future__ import annotations

from collections.abc import Sequence

from app.engine.columns.estimates import ColumnEstimates
from app.engine.columns.private_bins import delta_for_values
from app.engine.graphical import preparation
from app.engine.graphical.table_model import TableModel
from app.engine.method.base import Limits, Preflight, Progress, PublicFacts, PublicUse, Session
from app.engine.prior.drift import (
    NearEntities,
    compare,
    distance_rule,
    distances,
    near_entities,
    without_drifted_pairs,
)
from app.engine.prior.entities.model import PublicReweightedModel
from app.engine.prior.entities.near_entities import (
    WeightedEntities,
    load_either,
    weighted_entities,
)
from app.engine.prior.public_model import PublicModel, pairs_within
from app.engine.privacy.loss import PrivacyLoss
from app.engine.privacy.queries import Candidate, Contribution, Count
from app.engine.public.rows import readable
from app.engine.schema import PrivacyUnit, Schema
from app.engine.synthesizers.swift import forecast
from app.engine.synthesizers.swift.budget import Losses, MostCells, usual_shares, with_rows
from app.engine.synthesizers.swift.params import SwiftParams
from app.engine.synthesizers.swift.portfolio import Option, Pair
from app.engine.synthesizers.swift.rounds import Rounds, cell_noise
from app.engine.table import PublicTable


class Swift:
    name = "swift"
    title = "Junction tree over the pairs that are worth their noise"
    reference = (
        "After SWIFT (google/dpsynth, 2026); estimation after McKenna, Sheldon and Miklau (2019) "
        "and Dudik, Phillips and Schapire (2007)"
    )
    uses_public: PublicUse = "optional"
    Params = SwiftParams

    def check(
        self,
        schema: Schema,
        unit: PrivacyUnit,
        params: SwiftParams,
        loss: PrivacyLoss,
        public: PublicFacts | None,
        limits: Limits,
    ) -> Preflight:
        return forecast.preflight(schema, unit, params, loss, public, limits)

    def delta_for_values(self, params: SwiftParams, schema: Schema) -> float:
        return delta_for_values(schema, params)

    def fit(
        self,
        session: Session,
        params: SwiftParams,
        public: PublicTable | None,
        seed: int,
        progress: Progress,
    ) -> TableModel | PublicReweightedModel:
        prepared = with_rows(session, preparation.start(session, params, progress), params)
        axes, contribution = prepared.axes, prepared.contribution
        # What was forecast for a public table holds for one of which no row fits.
        is_public = public is not None
        cells = MostCells.of(params, len(axes.names), is_public)
        public, rows = readable(public, session.schema, axes.names)
        shares = params.shares or usual_shares(prepared, session.unit, is_public)
        losses = Losses.of(prepared.loss, shares, len(axes.names), is_public)
        opened = preparation.measure_columns(
            session, prepared, params, losses.one_way, progress, rows
        )
        columns = opened.columns
        most = min(cells.measured, forecast.most_pair_cells(axes, is_public))
        progress(0.1, "scoring pairs")
        prior: PublicModel | NearEntities | None = None
        if public is None or rows is None:
            options = _options(session, columns, params, losses.scores, most)
        else:
            rule = distance_rule(session.unit, public)
            noise = cell_noise(session, opened, contribution, most, losses.two_way)
            prior_cells = forecast.prior_cells(params, noise.deviation / columns.total)
            asked = PublicModel.of(rows, session.schema, columns, prior_cells, most)
            kept = weighted_entities(
                session,
                opened,
                rows,
                params.public_entities,
                public=public,
                seed=seed,
            )
            prior, options = _from_public(session, asked, params, rule, losses.scores, most, kept)
        if isinstance(prior, NearEntities):
            progress(0.4, "weighing public entities")
            return prior.model(session, session.remaining, self.name, params.weight)
        progress(0.4, "choosing and counting pairs")
        rounds = Rounds(session, opened, contribution, options, most, prior)
        if len(axes.names) > 1:
            rounds.count_all(cells, losses.first, losses.scores_again)
        progress(0.7, "fitting the model")
        return opened.model(self.name, rounds.fitted())

    def load(
        self, schema: Schema, unit: PrivacyUnit, data: bytes
    ) -> TableModel | PublicReweightedModel:
        return load_either(self.name, schema, unit, data)


def _options(
    session: Session,
    columns: ColumnEstimates,
    params: SwiftParams,
    loss: PrivacyLoss,
    most_cells: int,
) -> tuple[Option, ...]:
    """The pairs that can be measured, with their noisy distances from independence as gains.

    With two columns there is nothing to choose: no score is asked or paid, and the gain is 0.
    """
    pairs = pairs_within(columns, most_cells)
    are_scored = len(columns.shape) > 2 and pairs
    gains = _scores(session, columns, pairs, loss) if are_scored else [0.0] * len(pairs)
    return _as_options(columns, params, pairs, gains)


def _from_public(
    session: Session,
    asked: PublicModel,
    params: SwiftParams,
    rule: Contribution,
    loss: PrivacyLoss,
    most_cells: int,
    kept: WeightedEntities | None,
) -> tuple[PublicModel | NearEntities | None, tuple[Option, ...]]:
    """What is left of a public start, and the pairs with their noisy distances from that; or the
    entities, if they are nearer."""
    columns = asked.cells.columns
    pairs = pairs_within(columns, most_cells)
    if not pairs:
        return None, ()
    compared = compare(session, asked, pairs, rule, loss, kept)
    near = near_entities(kept, compared, params.public_entities)
    if near is not None:
        return near, ()
    prior = without_drifted_pairs(asked, compared)
    gains = distances(prior, asked, compared)
    return prior, _as_options(columns, params, pairs, [gains[pair] for pair in pairs])


def _as_options(
    columns: ColumnEstimates, params: SwiftParams, pairs: Sequence[Pair], gains: Sequence[float]
) -> tuple[Option, ...]:
    shape = columns.shape
    return tuple(
        Option(
            pair,
            gain,
            columns.counts[pair[0]],
            columns.counts[pair[1]],
            params.weight(pair),
            params.emphasis(min(shape[name] for name in pair)),
        )
        for pair, gain in zip(pairs, gains, strict=True)
    )


def _scores(
    session: Session, columns: ColumnEstimates, pairs: Sequence[Pair], loss: PrivacyLoss
) -> list[float]:
    """How far each pair's histogram is from the product of its columns' noisy shares, in rows."""
    candidates = [
        Candidate(
            Count(pair, {name: columns.merged.groupings[name] for name in pair}),
            (columns.counts[pair[0]], columns.shares[pair[1]]),
        )
        for pair in pairs
    ]
    return [float(gain) for gain in session.scores(candidates, loss).values]

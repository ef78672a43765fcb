"""The steps of `swift`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from app.engine.inference.estimation import fit
from app.engine.inference.measurements import NoisyMarginal
from app.engine.privacy.loss import PrivacyLoss
from app.engine.privacy.queries import Candidate, Contribution, Count, Measurement
from app.engine.schema import PrivacyUnit, Schema
from app.engine.synthesizers import opening
from app.engine.synthesizers.axes import Axes
from app.engine.synthesizers.base import (
    Limits,
    Preflight,
    Progress,
    PublicFacts,
    PublicTable,
    PublicUse,
    Session,
)
from app.engine.synthesizers.bought import delta_for_values
from app.engine.synthesizers.columns import Columns, in_rows, rows_per_count
from app.engine.synthesizers.contribution import expected_error
from app.engine.synthesizers.graphical import TableModel
from app.engine.synthesizers.one_way import OneWays
from app.engine.synthesizers.public import readable
from app.engine.synthesizers.public_drift import compare, distances, guarded, scored_by
from app.engine.synthesizers.public_start import PublicStart, small_pairs
from app.engine.synthesizers.swift import forecast
from app.engine.synthesizers.swift.budget import Losses, usual_shares, with_rows
from app.engine.synthesizers.swift.params import SwiftParams
from app.engine.synthesizers.swift.portfolio import Chosen, Noise, Option, Pair, choose, shared
from app.engine.synthesizers.zeros import structural_zeros

_PULL = 0.5
_LEAST_SHRINKAGE = 0.3
"""Weaker pulls leave the estimate as it is, and take several times as long."""

_TOLERANCE = 0.2
"""Tighter fits were no nearer to the truth."""

_LEAST_DEPENDENCE = 0.05
_LEAST_DEVIATION = 1e-3


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
        seed: int,  # noqa: ARG002
        progress: Progress,
    ) -> TableModel:
        begun = with_rows(session, opening.start(session, params, progress), params)
        axes, contribution = begun.axes, begun.contribution
        public, rows = readable(public, session.schema, axes.names)
        shares = params.shares or usual_shares(begun, session.unit, public is not None)
        losses = Losses.of(begun.loss, shares, len(axes.names), public is not None)
        opened = opening.open_columns(session, begun, params, losses.one_way, progress, rows)
        columns = opened.columns
        most = min(params.most_cells, forecast.most_pair_cells(axes, public is not None))
        progress(0.1, "scoring pairs")
        prior: PublicStart | None = None
        if public is None or rows is None:
            options = _options(session, columns, params, losses.scores, most)
        else:
            rule = scored_by(session.unit, public)
            asked = PublicStart.of(
                rows, session.schema, columns, forecast.prior_cells(params), most
            )
            prior, options = _from_public(session, asked, params, rule, losses.scores, most)
        cliques = () if prior is None else prior.cliques
        progress(0.4, "choosing pairs")
        noise = _noise(session, contribution, opened.measured, most)
        if len(columns.merged.names) > 2:
            chosen = choose(options, columns.shape, noise, params.most_cells, cliques=cliques)
        else:
            chosen = shared(options, noise)
        progress(0.5, "counting pairs")
        answers: tuple[Measurement, ...] = ()
        if len(axes.names) > 1:
            answers = _measure(session, columns.merged, chosen, contribution)
        progress(0.7, "fitting the model")
        marginals = [*columns.marginals, *(in_rows(answer, columns.size) for answer in answers)]
        gains = {option.pair: option.gain for option in options}
        graph = fit(
            columns.shape,
            marginals,
            columns.total,
            shrinkage=_shrinkage(
                marginals, [gains[each.pair] for each in chosen], answers, columns.total
            ),
            tolerance=_TOLERANCE,
            base=None if prior is None else prior.factors,
            zeros=structural_zeros(
                session.schema,
                columns.merged.groupings,
                [*cliques, *(each.axes for each in marginals)],
            ),
        )
        return opened.model(self.name, graph)

    def load(self, schema: Schema, unit: PrivacyUnit, data: bytes) -> TableModel:
        return TableModel.load(self.name, schema, unit, data)


def _options(
    session: Session, columns: Columns, params: SwiftParams, loss: PrivacyLoss, most_cells: int
) -> tuple[Option, ...]:
    """The pairs that can be measured, with their noisy distances from independence as gains.

    With two columns there is nothing to choose: no score is asked or paid, and the gain is 0.
    """
    pairs = small_pairs(columns, most_cells)
    are_scored = len(columns.shape) > 2 and pairs
    gains = _scores(session, columns, pairs, loss) if are_scored else [0.0] * len(pairs)
    return _as_options(columns, params, pairs, gains)


def _from_public(
    session: Session,
    asked: PublicStart,
    params: SwiftParams,
    rule: Contribution,
    loss: PrivacyLoss,
    most_cells: int,
) -> tuple[PublicStart | None, tuple[Option, ...]]:
    """What is left of a public start, and the pairs with their noisy distances from that."""
    columns = asked.cells.columns
    pairs = small_pairs(columns, most_cells)
    if not pairs:
        return None, ()
    compared = compare(session, asked, pairs, rule, loss)
    prior = guarded(asked, compared)
    gains = distances(prior, asked, compared)
    return prior, _as_options(columns, params, pairs, [gains[pair] for pair in pairs])


def _as_options(
    columns: Columns, params: SwiftParams, pairs: Sequence[Pair], gains: Sequence[float]
) -> tuple[Option, ...]:
    return tuple(
        Option(pair, gain, columns.counts[pair[0]], columns.counts[pair[1]], params.weight(pair))
        for pair, gain in zip(pairs, gains, strict=True)
    )


def _scores(
    session: Session, columns: Columns, pairs: Sequence[Pair], loss: PrivacyLoss
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


def _noise(
    session: Session, contribution: Contribution, measured: OneWays, most_cells: int
) -> Noise:
    """The noise of a cell for all that is left, in rows."""
    left = PrivacyLoss(session.remaining.kind, session.remaining.amount)
    deviation = expected_error(contribution, session.unit, most_cells, left)
    rows = float(np.mean([rows_per_count(answer, measured.size) for answer in measured.answers]))
    law: Literal["laplace", "gaussian"] = "laplace" if left.kind == "pure" else "gaussian"
    return Noise(law, max(deviation * rows, _LEAST_DEVIATION))


def _measure(
    session: Session, axes: Axes, chosen: Sequence[Chosen], contribution: Contribution
) -> tuple[Measurement, ...]:
    """Noisy histograms of the pairs, for all that is left of the allowance.

    Where no pair is worth its noise, the columns are measured once more.
    """
    asked: list[tuple[str, ...]] = [each.pair for each in chosen]
    asked = asked or [(name,) for name in axes.names]
    questions = [
        Count(names, {name: axes.groupings[name] for name in names}, contribution)
        for names in asked
    ]
    left = PrivacyLoss(session.remaining.kind, session.remaining.amount)
    return session.count(questions, left, [each.share for each in chosen] or None)


def _shrinkage(
    marginals: Sequence[NoisyMarginal],
    gains: Sequence[float],
    answers: Sequence[Measurement],
    total: float,
) -> float:
    """What the fit is pulled by, in the terms of `estimation.fit`.

    If the logarithm of a cell's count over its expectation mu varied by tau^2 from cell to cell,
    the best pull on the cell would be c mu = 1 / tau^2. The mean mu is total / cells in rows, the
    L1 distance of a pair from independence about tau times the total: so c is, up to a factor
    near 1, cells / distance^2, the distance as a share of the total. The factor was found on the
    bench's tables.
    """
    if not gains:
        return _LEAST_SHRINKAGE
    shares = np.clip(np.array(gains) / total, _LEAST_DEPENDENCE, 1.0)
    cells = sum(answer.values.size for answer in answers) / len(answers)
    pull = _PULL * cells / float(np.mean(shares**2))
    variances = [np.broadcast_to(each.variance, each.values.shape).ravel() for each in marginals]
    deviation = float(np.sqrt(np.concatenate(variances).mean()))
    return max(pull * deviation / total, _LEAST_SHRINKAGE)

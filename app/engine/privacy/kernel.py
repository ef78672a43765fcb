"""The kernel: the only code that reads private rows for a release.

It opens with an allowance, and answers questions with noise until the allowance is spent.
A question is first *admitted* from public facts alone (schema, unit, what was charged so
far); a refused question changes nothing. Then it is charged, and only then are rows read
and noise drawn. The filter is integer addition: sums of epsilon (pure), or of rho and of
delta (zCDP), are filters under full adaptivity (Rogers et al. 2016; Feldman and Zrnic 2021;
Whitehouse et al. 2022), so a question may depend on every earlier answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from app.engine.privacy import questions
from app.engine.privacy.contributions import counted_codes
from app.engine.privacy.discovery import exact_keys
from app.engine.privacy.exact import ExactHistograms
from app.engine.privacy.loss import PrivacyLoss
from app.engine.privacy.noise import add_noise, noisy_winners, standard_deviation
from app.engine.privacy.planning import (
    DiscoveryPlan,
    Plan,
    Planner,
    QuantilePlan,
    QueryPlan,
    ScorePlan,
    SelectionPlan,
    ValuesPlan,
)
from app.engine.privacy.quantiles import QUANTILE_STEPS, quantile_scores
from app.engine.privacy.queries import (
    SCORE_STEP,
    BudgetExhausted,
    Discovered,
    FoundValues,
    KernelFailure,
    Measurement,
    QuestionRefused,
    Scored,
)
from app.engine.privacy.selection import SCORE_UNIT
from app.engine.privacy.source import CodeSource
from app.engine.privacy.values import ResolvedCodes, exact_values, most_frequent
from app.engine.schema import PrivacyUnit, Schema
from app.engine.table import Table


@dataclass(frozen=True)
class Admitted:
    """A question that fits schema and allowance, and what it will cost."""

    loss: PrivacyLoss
    plan: Plan | questions.TrustedQuestion


class Kernel:
    """One session's side of the private rows.

    `trusted` opens `TrustedQuestion`, for a synthesizer that the admin has declared. After a
    `KernelFailure` every question fails.
    """

    def __init__(
        self, source: CodeSource, allowance: PrivacyLoss, *, trusted: bool = False
    ) -> None:
        self._declared = source
        self._source = source
        self._trusted = trusted
        self._exact = ExactHistograms(source)
        self._failed = False
        self._only_values_asked = True
        self.schema: Schema = source.schema
        self.unit: PrivacyUnit = source.unit
        self.allowance = allowance
        self.remaining = allowance
        self._planner = Planner(source.schema, source.unit, allowance.kind)

    def admit(self, question: questions.Question) -> Admitted:
        """Checks a question from public facts. Raises `QuestionRefused` or `BudgetExhausted`."""
        if self._failed:
            raise KernelFailure
        if question.loss.kind != self.allowance.kind:
            raise QuestionRefused(f"this session counts {self.allowance.kind} losses")
        if not isinstance(question, questions.TrustedQuestion):
            plan: Plan | questions.TrustedQuestion = self._planner.plan(question)
        elif self._trusted:
            plan = question
        else:
            raise QuestionRefused("trusted calls are for synthesizers the admin has declared")
        if isinstance(question, questions.ValuesQuestion) and not self._only_values_asked:
            raise QuestionRefused("values are found before anything else is asked")
        self._check_affordable(question.loss)
        self._only_values_asked &= isinstance(question, questions.ValuesQuestion)
        return Admitted(question.loss, plan)

    def answer(self, admitted: Admitted) -> questions.Answer:
        """Charges the question, then reads rows and draws noise."""
        if self._failed:
            raise KernelFailure
        # Charged before a row is read: whatever fails from here on has been paid for.
        self.recount(admitted.loss)
        try:
            match admitted.plan:
                case SelectionPlan():
                    return self._select(admitted.plan)
                case ScorePlan():
                    return self._score(admitted.plan)
                case QuantilePlan():
                    return self._quantile(admitted.plan)
                case DiscoveryPlan():
                    return self._discover(admitted.plan)
                case ValuesPlan():
                    return self._find_values(admitted.plan)
                case questions.TrustedQuestion():
                    return self._hand_over()
                case queries:
                    return self._count(queries)
        except Exception as error:
            # The cause may depend on the rows. All failures read the same and end the session,
            # so that a synthesizer learns one bit from them, once.
            self._failed = True
            raise KernelFailure from error

    def recount(self, loss: PrivacyLoss) -> None:
        """Charges a loss without drawing noise: of an answer replayed from the journal."""
        self._check_affordable(loss)
        self.remaining = self.remaining - loss

    def adopt(self, found: FoundValues) -> None:
        """Continues with a dictionary that lists the values found, and rows coded by it."""
        self.schema = self.schema.with_values(found.query.column, found.texts)
        self._source = ResolvedCodes(self._declared, self.schema)
        self._exact = ExactHistograms(self._source, self._exact.bounded)
        self._planner = Planner(self.schema, self.unit, self.allowance.kind)

    def _check_affordable(self, loss: PrivacyLoss) -> None:
        if not self.remaining.covers(loss):
            raise BudgetExhausted("the question costs more than the session has left")

    def _count(self, queries: Sequence[QueryPlan]) -> questions.Counted:
        exact = self._exact.each([query.histogram for query in queries])
        return questions.Counted(
            tuple(_measured(q, values) for q, values in zip(queries, exact, strict=True))
        )

    def _select(self, selection: SelectionPlan) -> questions.Selected:
        entered = selection.contenders
        exact = self._exact.each([each.distance.histogram for each in entered])
        scores = [each.score(values) for each, values in zip(entered, exact, strict=True)]
        kind = self.allowance.kind
        winners = noisy_winners(scores, kind, selection.scale, selection.winners)
        return questions.Selected(
            winners,
            self._mechanism,
            selection.scale / SCORE_UNIT,
            selection.sensitivity / SCORE_UNIT,
        )

    def _score(self, plan: ScorePlan) -> Scored:
        exact = self._exact.each([distance.histogram for distance in plan.distances])
        distances = np.array(
            [each.measured(values) for each, values in zip(plan.distances, exact, strict=True)],
            dtype=np.int64,
        )
        scales = np.array(plan.scales)
        noisy = np.empty_like(distances)
        error = np.empty_like(scales)
        # Equal scales are drawn together; weights were rounded so that there are few of them.
        for scale in sorted(set(plan.scales)):
            these = scales == scale
            noisy[these] = add_noise(distances[these], plan.noise, scale)
            error[these] = standard_deviation(plan.noise, scale)
        return Scored(
            counts=plan.counts,
            weights=np.array(plan.weights),
            reference_totals=np.array([each.reference.total for each in plan.distances]),
            values=noisy.astype(np.float64) * SCORE_STEP,
            noise=plan.noise,
            scale=scales * SCORE_STEP,
            standard_error=error * SCORE_STEP,
            l1_sensitivity=plan.l1,
            l2_sensitivity=plan.l2,
        )

    @property
    def _mechanism(self) -> questions.Mechanism:
        return "gumbel" if self.allowance.kind == "zcdp" else "permute-and-flip"

    def _quantile(self, plan: QuantilePlan) -> questions.Quantiled:
        scores = quantile_scores(self._source, self._exact.bounded, plan.query, plan.listed)
        (winner,) = noisy_winners(scores.tolist(), self.allowance.kind, plan.scale, 1)
        return questions.Quantiled(
            float(plan.query.grid[winner]),
            self._mechanism,
            plan.scale / QUANTILE_STEPS,
            plan.sensitivity / QUANTILE_STEPS,
        )

    def _discover(self, plan: DiscoveryPlan) -> Discovered:
        query = plan.query
        keys, counts = exact_keys(
            self._source, self._exact.bounded, query.columns, plan.groupings, query.limit
        )
        noisy = add_noise(counts, "gaussian", plan.scale)
        kept = noisy >= plan.threshold
        return Discovered(query, keys[kept], noisy[kept], *_discovery_noise(plan))

    def _find_values(self, plan: ValuesPlan) -> FoundValues:
        query = plan.query
        texts, counts = exact_values(self._declared, self._exact.bounded, query.column, query.limit)
        noisy = add_noise(counts, "gaussian", plan.scale)
        kept = np.flatnonzero(noisy >= plan.threshold)
        kept = kept[most_frequent(noisy[kept], plan.most)]
        named = tuple(texts[place] for place in kept)
        found = FoundValues(query, named, noisy[kept], *_discovery_noise(plan))
        self.adopt(found)
        return found

    def _hand_over(self) -> questions.HandedOver:
        names = [column.name for column in self.schema.columns]
        codes, entity = counted_codes(self._source, self._exact.bounded, names)
        return questions.HandedOver(Table(codes, len(codes[names[0]]), entity))


def _discovery_noise(plan: DiscoveryPlan | ValuesPlan) -> tuple[float, float, int, float, float]:
    """Scale, standard error, threshold, and the L1 and L2 sensitivity, in counts."""
    error = standard_deviation("gaussian", plan.scale)
    return plan.scale, error, plan.threshold, plan.unit.l1_counts, plan.unit.l2_counts


def _measured(query: QueryPlan, exact: NDArray[np.int64]) -> Measurement:
    grid = query.unit.grid
    noisy = add_noise(exact, query.noise, query.scale)
    error = standard_deviation(query.noise, query.scale) / grid
    if grid > 1:  # back to whole counts: post-processing, with the error of rounding
        noisy = (noisy + grid // 2) // grid
        error = float(np.hypot(error, np.sqrt(1 / 12)))
    return Measurement(
        count=query.query,
        values=noisy.reshape(query.histogram.shape),
        noise=query.noise,
        scale=query.scale / grid,
        standard_error=error,
        l1_sensitivity=query.unit.l1_counts,
        l2_sensitivity=query.unit.l2_counts,
        step=query.step,
    )

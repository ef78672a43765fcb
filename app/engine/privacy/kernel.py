"""The kernel: the only code that reads private rows for a release.

It opens with an allowance, and answers questions with noise until the allowance is spent.
A question is first *admitted* from public facts alone (schema, unit, what was charged so
far); a refused question changes nothing. Then it is charged, and only then are rows read
and noise drawn. The filter is integer addition: sums of epsilon (pure), or of rho and of
delta (zCDP), are filters under full adaptivity (Rogers et al. 2016; Feldman and Zrnic 2021;
Whitehouse et al. 2022), so what is asked may depend on every earlier answer.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from app.engine.grouping import Grouping
from app.engine.privacy.bounding import Bounded, bound_rows
from app.engine.privacy.contributions import Histogram, counted_codes, exact_histograms
from app.engine.privacy.limits import MOST_CELLS
from app.engine.privacy.loss import PrivacyLoss
from app.engine.privacy.noise import (
    ScaleTooLarge,
    add_noise,
    count_scale,
    noisy_winners,
    selection_scale,
    standard_deviation,
)
from app.engine.privacy.queries import (
    BudgetExhausted,
    Contribution,
    Count,
    KernelFailure,
    Measurement,
    Noise,
    QuestionRefused,
)
from app.engine.privacy.questions import (
    Answer,
    Counted,
    CountQuestion,
    HandedOver,
    Question,
    Selected,
    SelectQuestion,
    TrustedQuestion,
)
from app.engine.privacy.selection import (
    SCORE_UNIT,
    Contender,
    contenders,
    largest_sensitivity,
)
from app.engine.privacy.sensitivity import (
    GRID,
    LARGEST_CLIPPED,
    Sensitivity,
    clip_radius,
    sensitivity,
)
from app.engine.privacy.source import CodeSource
from app.engine.schema import PrivacyUnit, Schema
from app.engine.synthesizers.base import Table

_CELLS_AT_ONCE = 2**25
_CACHED_CELLS = 2**25


@dataclass(frozen=True)
class _Query:
    """A count, resolved against the schema: its histogram, sensitivity, noise and scale."""

    count: Count
    histogram: Histogram
    unit: Sensitivity
    noise: Noise
    scale: float


@dataclass(frozen=True)
class _Selection:
    contenders: tuple[Contender, ...]
    winners: int
    sensitivity: int
    scale: float


@dataclass(frozen=True)
class Admitted:
    """A question that fits schema and allowance, and what it will cost."""

    loss: PrivacyLoss
    plan: tuple[_Query, ...] | _Selection | TrustedQuestion


class Kernel:
    """One session's side of the private rows.

    `trusted` opens `TrustedQuestion`, for a synthesizer that the admin has declared. After a
    `KernelFailure` every question fails.
    """

    def __init__(
        self, source: CodeSource, allowance: PrivacyLoss, *, trusted: bool = False
    ) -> None:
        self._source = source
        self._trusted = trusted
        self._exact = _ExactHistograms(source)
        self._failed = False
        self.schema: Schema = source.schema
        self.unit: PrivacyUnit = source.unit
        self.allowance = allowance
        self.remaining = allowance

    def admit(self, question: Question) -> Admitted:
        """Checks a question from public facts. Raises `QuestionRefused` or `BudgetExhausted`."""
        if self._failed:
            raise KernelFailure
        if question.loss.kind != self.allowance.kind:
            raise QuestionRefused(f"this session counts {self.allowance.kind} losses")
        plan = self._planned(question)
        self._check_affordable(question.loss)
        return Admitted(question.loss, plan)

    def answer(self, admitted: Admitted) -> Answer:
        """Charges the question, then reads rows and draws noise."""
        if self._failed:
            raise KernelFailure
        self.recount(admitted.loss)
        try:
            match admitted.plan:
                case _Selection():
                    return self._select(admitted.plan, admitted.loss)
                case TrustedQuestion():
                    return self._hand_over()
                case queries:
                    return self._count(queries)
        except Exception as error:
            self._failed = True
            raise KernelFailure from error

    def recount(self, loss: PrivacyLoss) -> None:
        """Charges a loss without drawing noise: of an answer replayed from the journal."""
        self._check_affordable(loss)
        self.remaining = self.remaining - loss

    def _check_affordable(self, loss: PrivacyLoss) -> None:
        if not self.remaining.covers(loss):
            raise BudgetExhausted("the question costs more than the session has left")

    def _planned(self, question: Question) -> tuple[_Query, ...] | _Selection | TrustedQuestion:
        if isinstance(question, TrustedQuestion):
            if not self._trusted:
                raise QuestionRefused("trusted calls are for synthesizers the admin has declared")
            return question
        try:
            if isinstance(question, SelectQuestion):
                return self._planned_selection(question)
            return self._planned_queries(question)
        except ScaleTooLarge:
            raise QuestionRefused("the loss is too small for the noise the kernel draws") from None

    def _planned_queries(self, question: CountQuestion) -> tuple[_Query, ...]:
        histograms = self._resolved(question.queries)
        planned = []
        for count, histogram, loss in zip(
            question.queries, histograms, question.losses, strict=True
        ):
            unit = self._sensitivity(histogram)
            noise, scale = count_scale(loss, unit.l1, unit.l2_squared)
            planned.append(_Query(count, histogram, unit, noise, scale))
        return tuple(planned)

    def _planned_selection(self, question: SelectQuestion) -> _Selection:
        histograms = self._resolved([candidate.count for candidate in question.candidates])
        units = [self._sensitivity(histogram) for histogram in histograms]
        entered = contenders(question.candidates, histograms, units)
        delta = largest_sensitivity(entered)
        scale = selection_scale(question.loss_of_each, delta, SCORE_UNIT)
        return _Selection(entered, question.winners, delta, scale)

    def _sensitivity(self, histogram: Histogram) -> Sensitivity:
        return sensitivity(histogram.contribution, self.unit.max_rows, histogram.cells)

    def _resolved(self, counts: Sequence[Count]) -> list[Histogram]:
        # Equal groupings become one object, so that a column is looked up once for all.
        same: dict[Grouping, Grouping] = {}
        histograms = [self._histogram(count, same) for count in counts]
        if sum(histogram.cells for histogram in histograms) > MOST_CELLS:
            raise QuestionRefused(f"a question counts at most {MOST_CELLS} cells")
        return histograms

    def _histogram(self, count: Count, same: dict[Grouping, Grouping]) -> Histogram:
        if len(set(count.columns)) != len(count.columns):
            raise QuestionRefused("a query names each column once")
        if not set(count.groupings) <= set(count.columns):
            raise QuestionRefused("a grouping is for a column that the query names")
        groupings = tuple(self._grouping(name, count, same) for name in count.columns)
        self._check_rule(count.contribution)
        return Histogram(tuple(count.columns), groupings, count.contribution)

    def _grouping(self, name: str, count: Count, same: dict[Grouping, Grouping]) -> Grouping:
        try:
            column = self.schema.column(name)
        except KeyError:
            raise QuestionRefused("a query names a column that the dictionary does not") from None
        grouping = count.groupings.get(name)
        if grouping is None:
            return column.grouping
        if (grouping.regular, grouping.tail) != (column.grouping.regular, column.tail):
            raise QuestionRefused("a grouping does not fit the codes of its column")
        return same.setdefault(grouping, grouping)

    def _check_rule(self, contribution: Contribution) -> None:
        if contribution.rule != "clipped":
            return
        if self.allowance.kind == "pure":
            raise QuestionRefused("`clipped` bounds L2 alone; a pure session has no use for it")
        if self.unit.max_rows >= LARGEST_CLIPPED:
            raise QuestionRefused("`clipped` is for units of fewer than 2^21 rows")
        assert contribution.norm is not None
        if clip_radius(contribution.norm, 1) == 0:
            raise QuestionRefused(f"the norm of `clipped` is at least 1/{GRID}")

    def _count(self, queries: Sequence[_Query]) -> Counted:
        exact = self._exact.each([query.histogram for query in queries])
        return Counted(
            tuple(_measured(q, values) for q, values in zip(queries, exact, strict=True))
        )

    def _select(self, selection: _Selection, loss: PrivacyLoss) -> Selected:
        exact = self._exact.each([entered.histogram for entered in selection.contenders])
        scores = [
            entered.score(values)
            for entered, values in zip(selection.contenders, exact, strict=True)
        ]
        winners = noisy_winners(scores, loss.kind, selection.scale, selection.winners)
        return Selected(
            winners,
            "gumbel" if loss.kind == "zcdp" else "permute-and-flip",
            selection.scale / SCORE_UNIT,
            selection.sensitivity / SCORE_UNIT,
        )

    def _hand_over(self) -> HandedOver:
        names = [column.name for column in self.schema.columns]
        codes, entity = counted_codes(self._source, self._exact.bounded, names)
        return HandedOver(Table(codes, len(codes[names[0]]), entity))


def _measured(query: _Query, exact: NDArray[np.int64]) -> Measurement:
    grid = query.unit.grid
    noisy = add_noise(exact, query.noise, query.scale)
    error = standard_deviation(query.noise, query.scale) / grid
    if grid > 1:  # back to whole counts: post-processing, with the error of rounding
        noisy = (noisy + grid // 2) // grid
        error = float(np.hypot(error, np.sqrt(1 / 12)))
    return Measurement(
        count=query.count,
        values=noisy.reshape(query.histogram.shape),
        noise=query.noise,
        scale=query.scale / grid,
        standard_error=error,
        l1_sensitivity=query.unit.l1_counts,
        l2_sensitivity=query.unit.l2_counts,
    )


class _ExactHistograms:
    """Exact histograms of the session, computed in few passes and kept for a while.

    A rule that draws at random (`distinct`, `one`) keeps its draw as long as its histogram is
    kept; drawing anew is just as private, since the sensitivity holds for every draw.
    """

    def __init__(self, source: CodeSource) -> None:
        self._source = source
        self._bounded: Bounded | None = None
        self._kept: OrderedDict[Histogram, NDArray[np.int64]] = OrderedDict()
        self._kept_cells = 0

    @property
    def bounded(self) -> Bounded:
        """The rows that count, drawn when first needed and never again."""
        if self._bounded is None:
            self._bounded = bound_rows(self._source)
        return self._bounded

    def each(self, histograms: Sequence[Histogram]) -> Iterator[NDArray[np.int64]]:
        """Flat histograms in the order asked; no more than a bounded number is held at once."""
        for group in _groups(histograms, lambda histogram: histogram.cells):
            missing = [each for each in dict.fromkeys(group) if each not in self._kept]
            found = {each: self._kept[each] for each in group if each in self._kept}
            if missing:
                computed = exact_histograms(self._source, self.bounded, missing)
                found.update(zip(missing, computed, strict=True))
            for histogram in group:
                self._keep(histogram, found[histogram])
                yield found[histogram]

    def _keep(self, histogram: Histogram, values: NDArray[np.int64]) -> None:
        if histogram not in self._kept:
            self._kept_cells += histogram.cells
        self._kept[histogram] = values
        self._kept.move_to_end(histogram)
        while self._kept_cells > _CACHED_CELLS:
            oldest, _ = self._kept.popitem(last=False)
            self._kept_cells -= oldest.cells


def _groups(
    histograms: Sequence[Histogram], size: Callable[[Histogram], int]
) -> Iterator[list[Histogram]]:
    group: list[Histogram] = []
    cells = 0
    for histogram in histograms:
        if group and cells + size(histogram) > _CELLS_AT_ONCE:
            yield group
            group, cells = [], 0
        group.append(histogram)
        cells += size(histogram)
    if group:
        yield group

"""The door to private rows, as a synthesizer holds it, over anything that carries questions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from app.engine.privacy import questions
from app.engine.privacy.loss import PrivacyLoss
from app.engine.privacy.queries import (
    Candidate,
    Discovered,
    FoundValues,
    Keys,
    Measurement,
    Quantile,
    Query,
    Scored,
    Sum,
    TupleCount,
    Values,
)
from app.engine.schema import PrivacyUnit, Schema
from app.engine.table import Table


class Session(ABC):
    """The only way for a synthesizer to learn about private rows.

    `allowance` is the loss that the session was opened with, `remaining` what is left of it;
    `schema` lists discovered values as soon as they are found. All of these are public.

    Every method is charged `loss` before noise is drawn, and raises `BudgetExhausted` where the
    session has less left, and `QuestionRefused` for a question that is malformed or does not fit
    the dictionary. Both depend on public facts alone. `KernelFailure` ends the session.
    """

    schema: Schema
    unit: PrivacyUnit
    allowance: PrivacyLoss
    remaining: PrivacyLoss

    @abstractmethod
    def _answer_to(self, question: questions.Question) -> questions.Answer:
        """The answer of the kind that the question has."""

    def count(
        self, queries: Sequence[Query], loss: PrivacyLoss, shares: Sequence[float] | None = None
    ) -> tuple[Measurement, ...]:
        """Noisy histograms, in the order of `queries`, from one pass over the rows.

        `loss` is divided in proportion to `shares`, equally if None. Values are int64 of shape
        `Measurement.shape`, in counts, or for a sum in steps of its column. A unit adds to each
        what its contribution rule says (see `sensitivity`). Counts, sums and counts of tuples may
        be mixed: they are one joint measurement.
        """
        question = questions.CountQuestion(
            tuple(queries), loss, None if shares is None else tuple(shares)
        )
        answer = self._answer_to(question)
        assert isinstance(answer, questions.Counted)
        return answer.measurements

    def sum(
        self, queries: Sequence[Sum], loss: PrivacyLoss, shares: Sequence[float] | None = None
    ) -> tuple[Measurement, ...]:
        """Noisy sums of clipped numbers, in steps of their columns; the same as `count`."""
        return self.count(queries, loss, shares)

    def tuples(self, query: TupleCount, loss: PrivacyLoss) -> Measurement:
        """How many units hold each listed tuple, noisy, int64 of shape (tuples,)."""
        return self.count((query,), loss)[0]

    def select(
        self, candidates: Sequence[Candidate], loss: PrivacyLoss, winners: int = 1
    ) -> tuple[int, ...]:
        """Indices of the `winners` noisily largest scores, best first; `loss` pays for all."""
        answer = self._answer_to(questions.SelectQuestion(tuple(candidates), loss, winners))
        assert isinstance(answer, questions.Selected)
        return answer.winners

    def scores(self, candidates: Sequence[Candidate], loss: PrivacyLoss) -> Scored:
        """Noisy distances of all candidates from their references: arrays of shape
        (candidates,), float64, in counts. One joint measurement; `expected_distance_errors` of
        `scores` gives its standard errors beforehand."""
        answer = self._answer_to(questions.ScoreQuestion(tuple(candidates), loss))
        assert isinstance(answer, Scored)
        return answer

    def quantile(self, query: Quantile, loss: PrivacyLoss) -> float:
        """A point of the query's grid near the quantile (see `quantiles`)."""
        answer = self._answer_to(questions.QuantileQuestion(query, loss))
        assert isinstance(answer, questions.Quantiled)
        return answer.value

    def discover(self, query: Keys, loss: PrivacyLoss) -> Discovered:
        """Combinations of cells that many units have: keys, int64 of shape (n, columns), and
        their noisy counts, int64 of shape (n,).

        `loss` is in rho with a delta above 0 (see `discovery`); a pure session refuses.
        """
        answer = self._answer_to(questions.DiscoverQuestion(query, loss))
        assert isinstance(answer, Discovered)
        return answer

    def find_values(self, query: Values, loss: PrivacyLoss) -> FoundValues:
        """Values of a column that many units have, sorted, and their noisy counts, int64 of
        shape (values,). Costs what `discover` costs, and comes before any other question:
        afterwards `schema` lists the values and the column is coded by them.
        """
        answer = self._answer_to(questions.ValuesQuestion(query, loss))
        assert isinstance(answer, FoundValues)
        return answer

    def trusted_call(self, loss: PrivacyLoss) -> Table:
        """The bounded table itself as stored codes, private: only for a synthesizer that the
        admin has declared. Others are refused."""
        answer = self._answer_to(questions.TrustedQuestion(loss))
        assert isinstance(answer, questions.HandedOver)
        return answer.table

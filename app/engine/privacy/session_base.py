"""What a synthesizer may ask: the methods of `Session`, over whatever carries questions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

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
from app.engine.privacy.questions import (
    Answer,
    Counted,
    CountQuestion,
    DiscoverQuestion,
    HandedOver,
    Quantiled,
    QuantileQuestion,
    Question,
    ScoreQuestion,
    Selected,
    SelectQuestion,
    TrustedQuestion,
    ValuesQuestion,
)
from app.engine.table import Table


class Asking(ABC):
    """Turns the calls of the `Session` protocol into questions, and answers into results."""

    @abstractmethod
    def _ask(self, question: Question) -> Answer:
        """The answer of the kind that the question has."""

    def count(
        self, queries: Sequence[Query], loss: PrivacyLoss, shares: Sequence[float] | None = None
    ) -> tuple[Measurement, ...]:
        """Noisy histograms; see `Session.count`."""
        question = CountQuestion(tuple(queries), loss, None if shares is None else tuple(shares))
        answer = self._ask(question)
        assert isinstance(answer, Counted)
        return answer.measurements

    def sum(
        self, queries: Sequence[Sum], loss: PrivacyLoss, shares: Sequence[float] | None = None
    ) -> tuple[Measurement, ...]:
        """Noisy sums; see `Session.sum`."""
        return self.count(queries, loss, shares)

    def tuples(self, query: TupleCount, loss: PrivacyLoss) -> Measurement:
        """Noisy counts of tuples; see `Session.tuples`."""
        return self.count((query,), loss)[0]

    def select(
        self, candidates: Sequence[Candidate], loss: PrivacyLoss, winners: int = 1
    ) -> tuple[int, ...]:
        """Winners of a private selection; see `Session.select`."""
        answer = self._ask(SelectQuestion(tuple(candidates), loss, winners))
        assert isinstance(answer, Selected)
        return answer.winners

    def scores(self, candidates: Sequence[Candidate], loss: PrivacyLoss) -> Scored:
        """Noisy distances of all candidates; see `Session.scores`."""
        answer = self._ask(ScoreQuestion(tuple(candidates), loss))
        assert isinstance(answer, Scored)
        return answer

    def quantile(self, query: Quantile, loss: PrivacyLoss) -> float:
        """A noisy quantile; see `Session.quantile`."""
        answer = self._ask(QuantileQuestion(query, loss))
        assert isinstance(answer, Quantiled)
        return answer.value

    def discover(self, query: Keys, loss: PrivacyLoss) -> Discovered:
        """Frequent keys; see `Session.discover`."""
        answer = self._ask(DiscoverQuestion(query, loss))
        assert isinstance(answer, Discovered)
        return answer

    def find_values(self, query: Values, loss: PrivacyLoss) -> FoundValues:
        """Frequent values of a column; see `Session.find_values`."""
        answer = self._ask(ValuesQuestion(query, loss))
        assert isinstance(answer, FoundValues)
        return answer

    def trusted_call(self, loss: PrivacyLoss) -> Table:
        """The bounded table, where the admin has declared the synthesizer."""
        answer = self._ask(TrustedQuestion(loss))
        assert isinstance(answer, HandedOver)
        return answer.table

"""A synthesizer's requests put as questions, the same for every form of session."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from app.engine.privacy.loss import PrivacyLoss
from app.engine.privacy.queries import Candidate, Count, Measurement
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
from app.engine.synthesizers.base import Table


class Asking(ABC):
    """The asking half of the `Session` protocol; how an answer comes is left open."""

    @abstractmethod
    def _ask(self, question: Question) -> Answer:
        """An answer of the question's own kind. Raises `BudgetExhausted`, `QuestionRefused`."""

    def count(
        self, queries: Sequence[Count], loss: PrivacyLoss, shares: Sequence[float] | None = None
    ) -> tuple[Measurement, ...]:
        """Noisy histograms; see `Session.count`."""
        question = CountQuestion(tuple(queries), loss, None if shares is None else tuple(shares))
        answer = self._ask(question)
        assert isinstance(answer, Counted)
        return answer.measurements

    def select(
        self, candidates: Sequence[Candidate], loss: PrivacyLoss, winners: int = 1
    ) -> tuple[int, ...]:
        """Winners of a private selection; see `Session.select`."""
        answer = self._ask(SelectQuestion(tuple(candidates), loss, winners))
        assert isinstance(answer, Selected)
        return answer.winners

    def trusted_call(self, loss: PrivacyLoss) -> Table:
        """The bounded table, where the admin has declared the synthesizer."""
        answer = self._ask(TrustedQuestion(loss))
        assert isinstance(answer, HandedOver)
        return answer.table

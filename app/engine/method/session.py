"""The door to private rows, as a synthesizer holds it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

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


class Progress(Protocol):
    """Report a fraction in [0, 1] and the stage reached; public facts only."""

    def __call__(self, fraction: float, stage: str) -> None: ...


class Session(Protocol):
    """The door to private rows. Every method is charged before noise is drawn.

    All raise `BudgetExhausted` beyond the allowance and `QuestionRefused` for a malformed
    question; neither says anything about the rows.
    """

    @property
    def schema(self) -> Schema: ...
    @property
    def unit(self) -> PrivacyUnit: ...
    @property
    def allowance(self) -> PrivacyLoss: ...
    @property
    def remaining(self) -> PrivacyLoss: ...

    def count(
        self, queries: Sequence[Query], loss: PrivacyLoss, shares: Sequence[float] | None = None
    ) -> tuple[Measurement, ...]:
        """Noisy histograms, counted in one pass; `loss` is split by `shares`, or equally.

        Counts, sums and counts of tuples may be mixed: they are one joint release.
        """
        ...

    def sum(
        self, queries: Sequence[Sum], loss: PrivacyLoss, shares: Sequence[float] | None = None
    ) -> tuple[Measurement, ...]:
        """Noisy sums of clipped numbers; the same as `count` of them."""
        ...

    def tuples(self, query: TupleCount, loss: PrivacyLoss) -> Measurement:
        """Noisy counts of listed tuples, shape (tuples,); the same as `count` of it alone."""
        ...

    def quantile(self, query: Quantile, loss: PrivacyLoss) -> float:
        """A point of the grid near the quantile, drawn by the exponential mechanism."""
        ...

    def discover(self, query: Keys, loss: PrivacyLoss) -> Discovered:
        """Frequent combinations of cells, of a domain that need not be enumerable.

        Costs the rho of a count by `distinct`, and the delta of `loss`, which must have one.
        """
        ...

    def find_values(self, query: Values, loss: PrivacyLoss) -> FoundValues:
        """Frequent values of a column of which none is public, sorted. Costs as `discover` does.

        From then on `schema` lists them, and every question is about the column so coded; so
        values are found before any other question.
        """
        ...

    def select(
        self, candidates: Sequence[Candidate], loss: PrivacyLoss, winners: int = 1
    ) -> tuple[int, ...]:
        """Indices of the noisily largest scores, best first; `loss` pays for all winners."""
        ...

    def scores(self, candidates: Sequence[Candidate], loss: PrivacyLoss) -> Scored:
        """Noisy distances, in counts, of all candidates from their public references.

        One joint measurement, counted in bounded memory: `expected_distance_errors` of
        `app.engine.privacy.scores` gives its standard errors beforehand.
        """
        ...

    def trusted_call(self, loss: PrivacyLoss) -> Table:
        """The bounded, coded table itself, for declared third parties the admin enabled."""
        ...

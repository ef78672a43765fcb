"""Whole questions to a session and their answers, as both ends of the pipe see them.

A question is checked for form when it is made; whether it fits the schema and the
allowance is the kernel's to say. Every refusal is made from public facts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from app.engine.privacy.forms import Disallowed, Form, Items, Reader, Whole, in_frame, wired
from app.engine.privacy.loss import PrivacyLoss
from app.engine.privacy.queries import (
    Candidate,
    Discovered,
    FoundValues,
    Keys,
    Measurement,
    Quantile,
    QuantileForm,
    QueryForm,
    QuestionRefused,
    Scored,
    Values,
)
from app.engine.privacy.wire import FrameError
from app.engine.table import Table

MOST_QUERIES = 2**16
# Winners times candidates of a selection. Each winner is drawn among all candidates that remain,
# so this many draws take a few seconds.
MOST_PEELED = 2**20
MOST_GRID = 2**20
Mechanism = Literal["gumbel", "permute-and-flip"]
_LOSS = Reader[PrivacyLoss](PrivacyLoss)


def loss_to_json(loss: PrivacyLoss) -> dict[str, Any]:
    """A loss in its integer units, as JSON."""
    wire: dict[str, Any] = _LOSS.write(loss)
    return wire


def loss_from_json(value: Any) -> PrivacyLoss:
    """Raises `FrameError` for anything but a loss."""
    try:
        return _LOSS(value)
    except Disallowed:
        raise FrameError("this is not a valid privacy loss") from None


# A loss that is none ends the session, where other values that may not be refuse the question.
Loss = Annotated[PrivacyLoss, wired(dict[str, Any], loss_from_json, loss_to_json)]


@dataclass(frozen=True, slots=True)
class CountQuestion(Form):
    """Noisy histograms and sums; `loss` is divided among them by `shares`, equally if None."""

    queries: Items[QueryForm]
    loss: Loss
    shares: Items[float] | None = None

    def __post_init__(self) -> None:
        if not 1 <= len(self.queries) <= MOST_QUERIES:
            raise QuestionRefused(f"a question has 1 to {MOST_QUERIES} queries")
        if self.shares is None:
            return
        if len(self.shares) != len(self.queries):
            raise QuestionRefused("expected one share for each query")
        if not all(math.isfinite(share) and share > 0 for share in self.shares):
            raise QuestionRefused("shares are positive numbers")

    @property
    def losses(self) -> tuple[PrivacyLoss, ...]:
        """The part of the loss that each query costs; together at most the whole."""
        return self.loss.split(self.shares or (1.0,) * len(self.queries))


@dataclass(frozen=True, slots=True)
class SelectQuestion(Form):
    """A private selection of `winners` candidates; `loss` pays for all of them."""

    candidates: Items[Candidate]
    loss: Loss
    winners: Whole = 1

    def __post_init__(self) -> None:
        if not 1 <= len(self.candidates) <= MOST_QUERIES:
            raise QuestionRefused(f"a selection has 1 to {MOST_QUERIES} candidates")
        if not 1 <= self.winners <= len(self.candidates):
            raise QuestionRefused("there are at least as many candidates as winners")
        if self.winners * len(self.candidates) > MOST_PEELED:
            raise QuestionRefused(f"winners times candidates are at most {MOST_PEELED}")
        numbers = [value for each in self.candidates for value in (each.weight, each.bias)]
        if not all(math.isfinite(number) for number in numbers):
            raise QuestionRefused("weights and biases are finite numbers")
        if min(each.weight for each in self.candidates) < 0:
            raise QuestionRefused("weights are not negative")
        if max(each.weight for each in self.candidates) == 0:
            raise QuestionRefused("some candidate has a weight above 0")

    @property
    def loss_of_each(self) -> PrivacyLoss:
        """What one winner costs; the winners together cost at most the whole."""
        return PrivacyLoss(
            self.loss.kind, self.loss.amount // self.winners, self.loss.delta // self.winners
        )


@dataclass(frozen=True, slots=True)
class ScoreQuestion(Form):
    """Noisy distances of the candidates, all of them; `loss` pays for the whole vector."""

    candidates: Items[Candidate]
    loss: Loss

    def __post_init__(self) -> None:
        if not 1 <= len(self.candidates) <= MOST_QUERIES:
            raise QuestionRefused(f"a question scores 1 to {MOST_QUERIES} candidates")
        if not all(math.isfinite(each.weight) and each.weight > 0 for each in self.candidates):
            raise QuestionRefused("the weights of scores are positive numbers")
        if any(each.bias != 0 for each in self.candidates):
            raise QuestionRefused("scores have no bias")


@dataclass(frozen=True, slots=True)
class QuantileQuestion(Form):
    """One noisy quantile."""

    query: Annotated[Quantile, in_frame(QuantileForm, "quantile")]
    loss: Loss

    def __post_init__(self) -> None:
        if len(self.query.grid) > MOST_GRID:
            raise QuestionRefused(f"the grid of a quantile has at most {MOST_GRID} points")


@dataclass(frozen=True, slots=True)
class DiscoverQuestion(Form):
    """Discovery of keys; `loss` has the rho of their counts and a delta for the threshold."""

    query: Keys
    loss: Loss

    def __post_init__(self) -> None:
        if self.loss.kind != "zcdp" or not 0 < self.loss.delta < 10**18:
            raise QuestionRefused("key discovery needs a session in rho and some of its delta")


@dataclass(frozen=True, slots=True)
class ValuesQuestion(Form):
    """The values of a column; `loss` has the rho of their counts and a delta for the threshold."""

    _inline: ClassVar = ("query", ("column", "limit"))
    query: Values
    loss: Loss

    def __post_init__(self) -> None:
        if self.loss.kind != "zcdp" or not 0 < self.loss.delta < 10**18:
            raise QuestionRefused("values are found in a session in rho, with some of its delta")


@dataclass(frozen=True, slots=True)
class TrustedQuestion(Form):
    """The bounded table itself, for a synthesizer that the admin has declared."""

    loss: Loss


Question = (
    CountQuestion
    | SelectQuestion
    | ScoreQuestion
    | QuantileQuestion
    | DiscoverQuestion
    | ValuesQuestion
    | TrustedQuestion
)


@dataclass(frozen=True, slots=True)
class Selected(Form):
    """Indices of the winners, best first; scale and sensitivity in counts of the heaviest
    candidate. `gumbel` is the exponential mechanism, `permute-and-flip` its pure form."""

    winners: Items[Whole]
    mechanism: Mechanism
    scale: float
    sensitivity: float


@dataclass(frozen=True, slots=True)
class Counted(Form):
    """The measurements of a count, in the order of its queries."""

    measurements: Items[Measurement]


@dataclass(frozen=True, slots=True)
class Quantiled(Form):
    """The point of the grid that was drawn; scale and sensitivity in numbers below it."""

    value: float
    mechanism: Mechanism
    scale: float
    sensitivity: float


@dataclass(frozen=True, slots=True)
class AnsweredQuantile:
    """A point that was drawn, beside its question."""

    query: Quantile
    answer: Quantiled

    def rank_error(self, confidence: float = 0.95) -> float:
        """How far off the point is, in numbers between it and the quantile, beyond the best point
        of the grid; exceeded with a chance of 1 - `confidence` at most.

        Of n points with scores noised at scale s the exponential mechanism draws one that is
        worse than the best by s (ln n + t) with a chance of e^-t at most (McSherry and Talwar
        2007); permute-and-flip at the same scale is never worse (McKenna and Sheldon 2020).
        """
        return self.answer.scale * math.log(len(self.query.grid) / (1 - confidence))


@dataclass(frozen=True, slots=True)
class HandedOver:
    """The bounded table of a trusted call: private, never journaled, never published."""

    table: Table


# Answers that a journal keeps.
Kept = Counted | Selected | Scored | Quantiled | Discovered | FoundValues
Answer = Kept | HandedOver

"""The contract between Halftone and a synthesizer.

A synthesizer holds a `Session`, the only way to learn about private rows: it asks, the
kernel on the other side of the pipe answers with noise and counts the loss. `fit` is a
deterministic function of params, seed and answers, so that a lost run can be replayed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, model_validator

from app.engine.privacy.loss import PrivacyLoss
from app.engine.privacy.queries import (
    Candidate,
    Count,
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
from app.engine.table import PublicTable, Table


class Params(BaseModel):
    """Base of a synthesizer's form: unknown fields are refused, null means omitted."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, form: Any) -> Any:
        if not isinstance(form, dict):
            return form
        return {name: value for name, value in form.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong with a request, where (JSON pointer), and what to do about it."""

    pointer: str
    message: str
    remedy: str


@dataclass(frozen=True, slots=True)
class PublicFacts:
    """What `check` may know of the public dataset: its dictionary and its size."""

    schema: Schema
    rows: int


class PublicChunks(Protocol):
    """Rows of a public dataset as `check_public` reads them: a part at a time, and no further
    than it needs. Of a large one only so many rows are shown, evenly taken."""

    @property
    def schema(self) -> Schema:
        """The public dataset's own dictionary."""
        ...

    def chunks(self, columns: Sequence[str]) -> Iterator[Mapping[str, NDArray[Any]]]:
        """Stored codes of these columns of the public dictionary, arrays of equal length."""
        ...


@dataclass(frozen=True, slots=True)
class Limits:
    """Public limits of a run: declared rows, rows asked for (None: the noisy count), caps."""

    max_total_rows: int
    rows: int | None
    memory_bytes: int
    time_s: float


@dataclass(frozen=True, slots=True)
class Preflight:
    """What a run would need and give, from public facts only.

    `expected_error` is the standard deviation of the noise in one measured cell, in counts: where
    the run is yet to choose how much an entity may count, under the rule of the largest noise that
    it may choose, and `least_expected_error` under that of the smallest (None: it is the same).
    A run with `problems` is refused before anything is charged.
    """

    cells: int
    memory_bytes: int
    expected_error: float
    problems: tuple[Problem, ...] = ()
    least_expected_error: float | None = None


@dataclass(frozen=True, slots=True)
class CountsTable:
    """A post-processed histogram as the product: cells (C order) and their counts."""

    count: Count
    values: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class ExpectedError:
    """With probability `confidence`, the total variation distance between the model's marginal
    on `columns` and the exact one is at most `distance` (1 or more promises nothing).

    Made of the model alone, so that it is as public as the model.
    """

    columns: tuple[str, ...]
    distance: float
    confidence: float

    def __post_init__(self) -> None:
        if not self.columns or len(set(self.columns)) != len(self.columns):
            raise ValueError("an expected error is of some columns, each named once")
        if not (math.isfinite(self.distance) and self.distance >= 0):
            raise ValueError("a distance is a finite number, not negative")
        if not 0 < self.confidence < 1:
            raise ValueError("a confidence lies between 0 and 1")


@dataclass(frozen=True, slots=True)
class CombinationErrors:
    """How far reported combinations of one length are from those of the original table.

    suppressed: share of the original combinations that are not reported. fabricated: share of
    the reported ones that are not in the original. mean_error: mean absolute difference of
    the counts over the original combinations that are reported, and mean_count the mean of
    their original counts. Shares and means of nothing are 0.
    """

    length: int
    original: int
    reported: int
    suppressed: float
    fabricated: float
    mean_error: float
    mean_count: float

    @property
    def combination_error(self) -> float:
        """The mean error in proportion to the mean count."""
        return self.mean_error / self.mean_count if self.mean_count else 0.0


@dataclass(frozen=True, slots=True)
class ComparedCombinations:
    """The errors, by length from 1, of a model's counted combinations and of synthetic rows."""

    aggregates: tuple[CombinationErrors, ...]
    rows: tuple[CombinationErrors, ...]


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
        """Noisy histograms, counted in one pass; `loss` is divided by `shares`, else equally.

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
        values are found before anything else is asked.
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
        `app.engine.privacy.scores` tells its standard errors beforehand.
        """
        ...

    def trusted_call(self, loss: PrivacyLoss) -> Table:
        """The bounded, coded table itself, for declared third parties the admin enabled."""
        ...


class Model(Protocol):
    """What was fitted. Sampling is post-processing: repeatable for a seed, free of charge."""

    def sample(self, rows: int | None, rng: np.random.Generator) -> Table:
        """`rows` synthetic rows; None stands for the noisy count of rows."""
        ...

    def dump(self) -> bytes:
        """The model as JSON, npz or Arrow; never pickle."""
        ...


class CountsModel(Model, Protocol):
    """A model whose post-processed histogram is a product of its own."""

    def counts(self) -> CountsTable: ...


class SizedModel(Model, Protocol):
    """A model that knows how many rows it makes unasked; all built-in ones do."""

    @property
    def noisy_rows(self) -> int:
        """About as many rows as `sample(None, ...)` gives."""
        ...


def rows_to_ask(model: Model, rows: int | None, most: int) -> int | None:
    """What to ask a model for: a noisy count beyond `most` rows, a public bound, is that bound.

    Large noise on a small table would else make millions of rows that nobody foresaw.
    """
    noisy: int = getattr(model, "noisy_rows", 0)
    return most if rows is None and noisy > most else rows


class ExpectingModel(Model, Protocol):
    """A model that bounds its own errors. Any model may; it is asked once, when it is fitted."""

    def expected_errors(self) -> tuple[ExpectedError, ...]: ...


class CombinationsModel(Model, Protocol):
    """A built-in's model of counted combinations, which a custodian's report holds against the
    exact table. It is asked by the service's own code alone, never in a child's process, and
    nobody else's model is asked: exact rows are shown to no code of a third party."""

    def combination_errors(self, real: Table, synthetic: Table) -> ComparedCombinations:
        """Both tables have the model's columns; `entity` is set on an entity unit."""
        ...


PublicUse = Literal["no", "optional", "required"]
"""Whether a built-in is handed the rows of a public dataset that a request names; a third
party always is. With "required", `check` has a problem at `/public_dataset` without one."""


class Synthesizer(Protocol):
    """One method of making synthetic data. Instances hold no state.

    It may have more members: `uses_public: PublicUse`, read by `public_use`;
    `check_public(schema, unit, params, loss, public: PublicChunks) -> Sequence[Problem]`, read by
    `public_row_problems`: what only the public rows themselves tell, asked after a `check`
    without problems and before anything is charged; and `delta_share(params) -> float` and
    `delta_for_values(params, schema) -> float`, whose sum is read by `delta_share`.
    """

    name: str
    title: str
    reference: str
    Params: type[BaseModel]

    def check(
        self,
        schema: Schema,
        unit: PrivacyUnit,
        params: Any,
        loss: PrivacyLoss,
        public: PublicFacts | None,
        limits: Limits,
    ) -> Preflight: ...

    def fit(
        self,
        session: Session,
        params: Any,
        public: PublicTable | None,
        seed: int,
        progress: Progress,
    ) -> Model: ...

    def load(self, schema: Schema, unit: PrivacyUnit, data: bytes) -> Model: ...


def public_use(synthesizer: Synthesizer) -> PublicUse:
    """Its own word on public rows; "no" if it says nothing."""
    use: PublicUse = getattr(synthesizer, "uses_public", "no")
    return use


def looks_at_public_rows(synthesizer: Synthesizer) -> bool:
    """Whether it has more to say of a public dataset than its dictionary and size tell."""
    return hasattr(synthesizer, "check_public")


def public_row_problems(
    synthesizer: Synthesizer,
    schema: Schema,
    unit: PrivacyUnit,
    params: Any,
    loss: PrivacyLoss,
    public: PublicChunks,
) -> tuple[Problem, ...]:
    """Why a run could make nothing of these public rows; none if it says nothing."""
    check = getattr(synthesizer, "check_public", None)
    return () if check is None else tuple(check(schema, unit, params, loss, public))


def expected_errors(model: Model) -> tuple[ExpectedError, ...]:
    """What the model says of its own errors, nothing if it says none."""
    told = getattr(model, "expected_errors", None)
    return () if told is None else tuple(told())


def delta_share(synthesizer: Synthesizer, params: Any, schema: Schema) -> float:
    """The share in [0, 1) of a guarantee's delta that these params set aside for approximate
    steps (key discovery); 0 if it says nothing. Raises `ValueError` for another number."""
    told = getattr(synthesizer, "delta_share", None)
    share = 0.0 if told is None else float(told(params))
    for_values = getattr(synthesizer, "delta_for_values", None)
    share += 0.0 if for_values is None else float(for_values(params, schema))
    if not 0 <= share < 1:
        raise ValueError("the share of delta set aside lies between 0 and 1")
    return share

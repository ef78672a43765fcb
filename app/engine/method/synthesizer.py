"""One method of making synthetic data: what it must have, and what it may say besides."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Protocol

from pydantic import BaseModel

from app.engine.method import params as form
from app.engine.method.case import Case, Limits, PublicChunks, PublicFacts
from app.engine.method.model import Model
from app.engine.method.needs import Needs, Preflight, Problem
from app.engine.privacy.loss import PrivacyLoss
from app.engine.privacy.session_base import Session
from app.engine.schema import PrivacyUnit, Schema
from app.engine.table import PublicTable

# Whether a method gets the rows of the public dataset that a request names. If it requires them,
# its needs state a problem at `/public_dataset` when there are none.
PublicUse = Literal["no", "optional", "required"]

# What a sample of a release may hold: synthetic rows, or post-processed counts.
Output = Literal["rows", "counts"]


@dataclass(frozen=True, slots=True)
class Example:
    """A request of a release, as the API description shows it beside a method's form: `params` fit
    the form; `rows` None asks for the noisy count of rows."""

    params: Mapping[str, Any] = field(default_factory=dict)
    guarantee: Mapping[str, Any] = field(default_factory=lambda: {"epsilon": 1, "delta": 1e-6})
    rows: int | None = None

    def request(self, synthesizer: str, public_dataset: str | None = None) -> dict[str, Any]:
        """The body of the request, without what is left out."""
        body = {
            "synthesizer": synthesizer,
            "params": dict(self.params),
            "guarantee": dict(self.guarantee),
            "rows": self.rows,
            "public_dataset": public_dataset,
        }
        return {name: value for name, value in body.items() if value is not None}


class Progress(Protocol):
    """Report a fraction in [0, 1] and the stage reached; public facts only."""

    def __call__(self, fraction: float, stage: str) -> None: ...


class Synthesizer(ABC):
    """One method. Instances hold no state. A subclass gives `name`, `title`, `fit` and `load`."""

    name: ClassVar[str]
    title: ClassVar[str]
    reference: ClassVar[str] = ""
    Params: ClassVar[type[BaseModel]] = form.Params
    outputs: ClassVar[tuple[Output, ...]] = ("rows",)
    uses_public: ClassVar[PublicUse] = "no"
    example: ClassVar[Example] = Example(rows=10000)
    # Where `auto` tries it, the lowest first; None: never.
    auto_rank: ClassVar[int | None] = None

    @abstractmethod
    def fit(
        self,
        session: Session,
        params: Any,
        public: PublicTable | None,
        seed: int,
        progress: Progress,
    ) -> Model:
        """Runs in a process that sees no private row: all it learns, `session` answers."""

    @abstractmethod
    def load(self, schema: Schema, unit: PrivacyUnit, data: bytes) -> Model:
        """What `Model.dump` stored. Raises `ModelFormatError` for anything else."""

    def needs(self, case: Case, params: Any) -> Needs:  # noqa: ARG002
        """What a run can need at most. Here: a noisy count for every value of every column."""
        codes = sum(column.codes for column in case.schema.columns)
        return Needs.of_table(len(case.schema.columns), case.limits) + Needs(
            cells=codes, draws=codes
        )

    def check(
        self,
        schema: Schema,
        unit: PrivacyUnit,
        params: Any,
        loss: PrivacyLoss,
        public: PublicFacts | None,
        limits: Limits,
    ) -> Preflight:
        """Predicts a run from public facts only, before anything is charged."""
        case = Case(schema, unit, loss, public, limits)
        return self.needs(case, params).preflight(limits)

    def check_public(
        self,
        schema: Schema,
        unit: PrivacyUnit,
        params: Any,
        loss: PrivacyLoss,
        public: PublicChunks,
    ) -> Sequence[Problem]:
        """Problems that only the public rows show; called after a `check` without problems."""
        del schema, unit, params, loss, public
        return ()

    @property
    def looks_at_public_rows(self) -> bool:
        """Whether `check_public` has anything to say."""
        return type(self).check_public is not Synthesizer.check_public

    def delta_share(self, params: Any, schema: Schema) -> float:
        """The share in [0, 1) of a guarantee's delta that is set aside for approximate steps."""
        del params, schema
        return 0.0

    def delta_set_aside(self, params: Any, schema: Schema) -> float:
        """`delta_share`, checked. Raises `ValueError` for a number that is no such share."""
        share = float(self.delta_share(params, schema))
        if not 0 <= share < 1:
            raise ValueError("the share of delta set aside lies between 0 and 1")
        return share

    def auto_reason(
        self, columns: int, unit: PrivacyUnit, public: PublicFacts | None
    ) -> str | None:
        """Why `auto` would pick a method that has a rank; None where it would not, for this table
        of so many columns."""
        del columns, unit, public
        return f"`{self.name}`: {self.title}"

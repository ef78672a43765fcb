"""One method of making synthetic data, and what it can be asked."""

from __future__ import annotations

from typing import Any, Literal, Protocol

from pydantic import BaseModel

from app.engine.method.case import Limits, PublicChunks, PublicFacts
from app.engine.method.model import Model
from app.engine.method.preflight import Preflight, Problem
from app.engine.method.session import Progress, Session
from app.engine.privacy.loss import PrivacyLoss
from app.engine.schema import PrivacyUnit, Schema
from app.engine.table import PublicTable

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

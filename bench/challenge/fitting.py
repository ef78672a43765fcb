"""One release of one system, as the service would make it, in this process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.engine.catalog import registry
from app.engine.method import Limits, Model, PublicFacts
from app.engine.privacy.accounting import open_guarantee
from app.engine.privacy.library import open_session
from app.engine.privacy.loss import Accountant, Guarantee
from app.engine.schema import PrivacyUnit, Schema
from app.engine.table import PublicTable

LIMITS = Limits(max_total_rows=1_000_000, rows=None, memory_bytes=4 * 2**30, time_s=3600.0)


class Refused(Exception):
    """The system would not run, for reasons it gives."""


def fitted(
    name: str,
    form: Mapping[str, Any],
    codes: Mapping[str, NDArray[Any]],
    schema: Schema,
    unit: PrivacyUnit,
    guarantee: Guarantee,
    *,
    entities: NDArray[Any] | None = None,
    public: PublicTable | None = None,
    seed: int = 0,
) -> Model:
    """The model of a checked request. Raises `Refused` with the check's problems."""
    synthesizer = registry.builtin(name)
    params = synthesizer.Params.model_validate(dict(form))
    aside = int((guarantee.delta or 0) * synthesizer.delta_set_aside(params, schema))
    _, loss = open_guarantee(guarantee, Accountant.BASIC, aside)
    handed = public if synthesizer.uses_public != "no" else None
    facts = None if handed is None else PublicFacts(handed.schema, handed.table.rows)
    found = synthesizer.check(schema, unit, params, loss, facts, LIMITS)
    if found.problems:
        raise Refused("; ".join(f"{each.pointer}: {each.message}" for each in found.problems))
    session = open_session(codes, schema, unit, loss, entities=entities)
    model = synthesizer.fit(session, params, handed, seed, _silent)
    return synthesizer.load(schema, unit, model.dump())


def sampling(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def with_error(scores: Sequence[float], spelled: str = ".0f", error_spelled: str = ".1f") -> str:
    """The mean, and after two runs or more its standard error, in these formats."""
    mean = format(np.mean(scores), spelled)
    if len(scores) < 2:
        return mean
    error = np.std(scores, ddof=1) / len(scores) ** 0.5
    return f"{mean} ± {error:{error_spelled}}"


def _silent(fraction: float, stage: str) -> None:
    del fraction, stage

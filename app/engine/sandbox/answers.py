"""What a synthesizer in this process answers before a run: the same for its host and its child."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app.engine.method import Preflight, Problem, PublicChunks, Synthesizer
from app.engine.sandbox.protocol import Check, FormRead
from app.engine.schema import Schema


def form_read(synthesizer: Synthesizer, form: Mapping[str, Any], schema: Schema) -> FormRead:
    """Raises `ValidationError` for a form that is not the synthesizer's."""
    params = synthesizer.Params.model_validate(form)
    return FormRead(
        params.model_dump(mode="json", exclude_none=True),
        delta_share=synthesizer.delta_set_aside(params, schema),
        looks_at_public=synthesizer.looks_at_public_rows,
    )


def preflight(synthesizer: Synthesizer, check: Check) -> Preflight:
    """The forecast of a run, from public facts alone."""
    params = synthesizer.Params.model_validate(check.form)
    return synthesizer.check(
        check.schema, check.unit, params, check.loss, check.public, check.limits
    )


def public_problems(
    synthesizer: Synthesizer, check: Check, public: PublicChunks
) -> tuple[Problem, ...]:
    """What only the rows of the public dataset tell."""
    params = synthesizer.Params.model_validate(check.form)
    found = synthesizer.check_public(check.schema, check.unit, params, check.loss, public)
    return tuple(found)

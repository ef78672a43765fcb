"""The form of a synthesizer."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, model_validator


class Params(BaseModel):
    """Base of a synthesizer's form: unknown fields are refused, null means omitted."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, form: Any) -> Any:
        if not isinstance(form, dict):
            return form
        return {name: value for name, value in form.items() if value is not None}

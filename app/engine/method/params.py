"""The form of a synthesizer, with or without named presets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

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


class PresetParams(Params):
    """A form with a field `preset`, whose fields fill in what a request leaves out or null.

    `presets` holds the fields of each name. What a request gives takes a preset's place.
    """

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {}

    @model_validator(mode="before")
    @classmethod
    def _filled_in(cls, form: Any) -> Any:
        preset = form.get("preset") if isinstance(form, dict) else None
        if not isinstance(preset, str) or preset not in cls.presets:
            return form
        given = {name: value for name, value in form.items() if value is not None}
        return {**cls.presets[preset], **given}

"""Forms with named presets: published set-ups that a request may adopt and change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import model_validator

from app.engine.method import Params


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

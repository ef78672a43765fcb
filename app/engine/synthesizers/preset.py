"""Named settings of a form, which its other fields override."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def with_preset(form: Any, presets: Mapping[str, Mapping[str, Any]]) -> Any:
    """The raw form with what its `preset` sets and it does not; null is the same as omitted.

    A form that is none, or whose preset is unknown, is left for its own validation.
    """
    if not isinstance(form, Mapping):
        return form
    given = {name: value for name, value in form.items() if value is not None}
    name = given.get("preset")
    known = presets.get(name) if isinstance(name, str) else None
    return given if known is None else {**known, **given}

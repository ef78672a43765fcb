"""Where the libraries' virtualenvs are for tests, and a small table that two columns tell."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from app.engine.adapters.libraries import LIBRARIES
from app.engine.adapters.virtualenvs import is_installed
from app.engine.schema import Schema


def _folder() -> Path:
    """The folder that is named; else the first usual one with a virtualenv: that of the
    checkout, where `halftone adapters install` makes them, or one that checkouts share."""
    named = os.environ.get("HALFTONE_ADAPTERS")
    if named is not None:
        return Path(named)
    own = Path(__file__).parents[1] / "halftone-adapters"
    shared = Path.home() / ".cache" / "halftone-adapters"
    with_one = (
        folder
        for folder in (own, shared)
        if any(is_installed(folder, library) for library in LIBRARIES.values())
    )
    return next(with_one, own)


ADAPTERS = _folder()


def needs(library: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(
        not is_installed(ADAPTERS, LIBRARIES[library]),
        reason=f"no virtualenv: `halftone adapters install {library}`",
    )


def pairs_schema(entity: bool = False) -> Schema:
    """`a` and `b`, each 0 or 1."""
    whole = {"type": "integer", "constraints": {"minimum": 0, "maximum": 1, "required": True}}
    fields = [{"name": name, **whole} for name in ("a", "b")]
    if entity:
        fields.insert(0, {"name": "id", "type": "string", "role": "entity"})
    return Schema.parse({"fields": fields})


def pairs(rows: int) -> dict[str, NDArray[np.int64]]:
    """`b` is `a` in 9 of 10 rows."""
    number = np.arange(rows)
    return {"a": number % 2, "b": np.where(number % 10, number, number + 1) % 2}

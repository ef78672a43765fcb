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

ADAPTERS = Path(
    os.environ.get("HALFTONE_ADAPTERS", Path(__file__).parents[1] / "halftone-adapters")
)


asked_for = pytest.mark.skipif(
    "HALFTONE_ADAPTERS" not in os.environ,
    reason="takes half a minute: asked for by setting HALFTONE_ADAPTERS",
)


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

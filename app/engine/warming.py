"""Stores the machine code of the compiled loops: `python -m app.engine.warming`.

Run once at set-up. Every built-in synthesizer is fitted to a small invented table, also with a
public table if it can use one. So each loop is compiled for the argument types of a release.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel

from app.engine.catalog import registry
from app.engine.method import Limits, PublicFacts, Synthesizer
from app.engine.privacy.library import open_session
from app.engine.privacy.loss import Guarantee
from app.engine.schema import PrivacyUnit, Schema
from app.engine.table import PublicTable, Table, generator

ROWS = 400
# Practically no noise, so that a fit does not depend on chance.
_GUARANTEE = Guarantee(epsilon=10**13, delta=10**12)
_ROW = PrivacyUnit.parse({"kind": "row"})
_PERSON = PrivacyUnit.parse({"kind": "entity", "column": "person", "max_rows": 5})
_LIMITS = Limits(ROWS, None, memory_bytes=2**32, time_s=600.0)


def warm() -> list[str]:
    """The names of the synthesizers that ran, each on a row unit and on an entity unit."""
    return [name for name in registry.built_ins() if _runs(name)]


def _runs(name: str) -> bool:
    """Fits and samples it with default params; False if it does not accept the table."""
    synthesizer = registry.builtin(name)
    try:
        params = synthesizer.Params()
    except ValueError:
        return False
    fitted = [_fits(synthesizer, params, unit) for unit in (_ROW, _PERSON)]
    if synthesizer.uses_public == "optional":
        fitted.append(_fits(synthesizer, params, _ROW, has_public=True))
    return all(fitted)


def _fits(
    synthesizer: Synthesizer, params: BaseModel, unit: PrivacyUnit, *, has_public: bool = False
) -> bool:
    schema = _schema(unit)
    codes, people = _table()
    entities = people if unit.kind == "entity" else None
    public = PublicTable(schema, Table(codes, ROWS)) if has_public else None
    facts = PublicFacts(schema, ROWS) if has_public else None
    session = open_session(codes, schema, unit, _GUARANTEE, entities=entities)
    if synthesizer.check(schema, unit, params, session.allowance, facts, _LIMITS).problems:
        return False
    model = synthesizer.fit(session, params, public, 0, _silent)
    model.sample(ROWS, generator(0))
    return True


def _schema(unit: PrivacyUnit) -> Schema:
    most = {"age": 39, "region": 3, "children": 4, "tax": 1}
    columns: list[dict[str, Any]] = [
        {
            "name": name,
            "type": "integer",
            "constraints": {"minimum": 0, "maximum": value, "required": True},
        }
        for name, value in most.items()
    ]
    person = [{"name": "person", "type": "string", "role": "entity"}]
    return Schema.parse({"fields": [*(person if unit.kind == "entity" else []), *columns]})


def _table() -> tuple[dict[str, NDArray[np.int64]], NDArray[np.int64]]:
    rows = np.arange(ROWS, dtype=np.int64)
    age = rows * 7 % 40
    codes = {"age": age, "region": rows % 4, "children": age // 9, "tax": age // 20}
    return codes, rows // 4


def _silent(fraction: float, stage: str) -> None:
    del fraction, stage


if __name__ == "__main__":
    print("stored the compiled loops of", ", ".join(warm()))

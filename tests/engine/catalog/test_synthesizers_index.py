"""The index of synthesizers says of each what its `check` says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from app.engine.adapters.libraries import LIBRARIES
from app.engine.catalog import registry
from app.engine.method import Limits, PublicFacts
from app.engine.privacy.loss import PrivacyLoss
from app.engine.schema import PrivacyUnit, Schema

DOCS = Path(__file__).parents[3] / "docs" / "reference" / "synthesizers"
PAGE = (DOCS / "README.md").read_text()
_LINES = re.findall(r"^\| \[`(\S+)`\]\((\S+)\) \| (.+?) \| (.+?) \| (.+?) \| (.+?) \|$", PAGE, re.M)
LINES = {name: (page, unit, public, guarantee) for name, page, _, unit, public, guarantee in _LINES}
ADAPTED = ("dpmm:mst", "dpmm:aim", "smartnoise:aim")
LIMITS = Limits(100_000, None, 2**33, 3600)
UNITS = {"row": PrivacyUnit("row"), "entity": PrivacyUnit("entity", "id", 4)}
LOSSES = {"pure": PrivacyLoss.pure(10**12), "with delta": PrivacyLoss.zcdp(10**11)}
PARAMS: dict[str, dict[str, Any]] = {"archetypes": {"features": ["a", "b"]}}


def schema(unit: str) -> Schema:
    whole = {"type": "integer", "constraints": {"minimum": 0, "maximum": 5, "required": True}}
    fields: list[dict[str, Any]] = [{"name": name, **whole} for name in "abc"]
    if unit == "entity":
        fields.append({"name": "id", "type": "string", "role": "entity"})
    return Schema.parse({"fields": fields})


def runs(name: str, *, unit: str, guarantee: str, public: bool) -> bool:
    method, declared = registry.ours(name), schema(unit)
    params = method.Params.model_validate(PARAMS.get(name, {}))
    facts = PublicFacts(declared, 1000) if public else None
    loss = LOSSES[guarantee]
    return not method.check(declared, UNITS[unit], params, loss, facts, LIMITS).problems


def test_every_synthesizer_has_a_line_and_a_page() -> None:
    assert sorted(LINES) == sorted([*(entry.name for entry in registry.entries()), *ADAPTED])
    for page in (DOCS / page for page, *_ in LINES.values()):
        assert page.exists()
    for library in LIBRARIES.values():
        assert f"{library.distribution} {library.version}" in PAGE


@pytest.mark.parametrize("name", LINES)
def test_units_public_tables_and_guarantees_are_those_that_run(name: str) -> None:
    _, units, public, guarantees = LINES[name]
    for unit in UNITS:
        for guarantee in LOSSES:
            stated = unit in units.split(", ") and guarantee in guarantees.split(", ")
            assert runs(name, unit=unit, guarantee=guarantee, public=True) == stated
            assert runs(name, unit=unit, guarantee=guarantee, public=False) == (
                stated and public != "needed"
            )


def test_methods_that_the_page_names_for_open_columns_measure_them() -> None:
    (line,) = re.findall(r"^- Columns that the dictionary leaves open.*$", PAGE, re.M)
    named = set(re.findall(r"`(\w+)`", line))
    measuring = {
        entry.name
        for entry in registry.entries()
        if "values_share" in registry.ours(entry.name).Params.model_fields
    }
    assert named == measuring

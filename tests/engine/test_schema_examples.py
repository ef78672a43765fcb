"""Every dictionary that is shipped as an example is one that the service accepts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from app.engine.files import FileOptions
from app.engine.schema import PrivacyUnit, Schema

EXAMPLES = sorted((Path(__file__).parents[2] / "examples/dictionaries").glob("*.json"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_a_whole_and_valid_specification(path: Path) -> None:
    spec = json.loads(path.read_text())
    schema = Schema.parse(spec["schema"])
    schema.check_unit(PrivacyUnit.parse(spec["unit"]))
    FileOptions.parse(spec.get("file", {}))
    assert {"name", "visibility", "max_total_rows", "budget", "accountant"} <= spec.keys()
    assert Schema.parse(schema.to_wire()) == schema


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 8

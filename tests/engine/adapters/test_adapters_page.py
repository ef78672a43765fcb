"""The page says what each method keeps, and why each of the others is left out."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from app.engine.adapters.libraries import LEFT_OUT, LIBRARIES
from app.engine.catalog import registry
from app.releases.schemas import ReleaseIn

DOCS = Path(__file__).parents[3] / "docs"
PAGE = (DOCS / "reference/synthesizers/adapters.md").read_text()
ADAPTED = ("dpmm:aim", "dpmm:mst", "smartnoise:aim")


@pytest.mark.parametrize("name", LEFT_OUT)
def test_the_reason_that_a_request_is_told_stands_on_the_page(name: str) -> None:
    row = next(line for line in PAGE.splitlines() if line.startswith("|") and f"`{name}`" in line)
    assert LEFT_OUT[name] in row.replace(", and so the bounds, off the table", "")


@pytest.mark.parametrize("name", ADAPTED)
def test_every_param_is_on_the_page(name: str) -> None:
    assert f"`{name}`" in PAGE
    for field in registry.ours(name).Params.model_fields:
        assert f"`{field}`" in PAGE


@pytest.mark.parametrize("library", LIBRARIES.values(), ids=str)
def test_the_locked_versions_are_those_of_the_page(library) -> None:
    assert re.search(rf"{library.distribution}\]\S+ {re.escape(library.version)}", PAGE)


def test_the_example_is_a_request() -> None:
    (example,) = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    request = json.loads(example)
    request["guarantee"] = {name: str(value) for name, value in request["guarantee"].items()}
    form = ReleaseIn.model_validate(request)
    registry.ours(form.synthesizer).Params.model_validate(form.params)

"""Each method has a page short enough to read at once, which names every param of its form."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.engine.catalog import registry
from app.engine.catalog.auto import AutoParams
from app.engine.method import Params

PAGES = Path(__file__).parents[2] / "docs/reference/synthesizers"
MOST_WORDS = 900
ADAPTERS = ("dpmm:mst", "dpmm:aim", "smartnoise:aim")
FORMS: dict[str, list[type[Params]]] = {
    **{each.name: [registry.load(each.name).Params] for each in registry.entries() if each.builtin},
    "adapters": [registry.load(name).Params for name in ADAPTERS],
    "auto": [AutoParams],
}


@pytest.mark.parametrize("page", sorted(PAGES.glob("*.md")), ids=lambda page: page.name)
def test_a_page_is_short(page: Path) -> None:
    assert len(page.read_text().split()) <= MOST_WORDS


@pytest.mark.parametrize("name", FORMS)
def test_a_method_has_a_page_that_names_its_params(name: str) -> None:
    page = (PAGES / f"{name}.md").read_text()
    missing = [
        each for form in FORMS[name] for each in form.model_fields if f"`{each}`" not in page
    ]
    assert not missing

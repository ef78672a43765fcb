"""Links between the pages lead to files and headings that are there, and so do named files."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
HISTORY = ROOT / "CHANGELOG.md"
PAGES = [
    *sorted(ROOT.glob("*.md")),
    ROOT / "client/README.md",
    *sorted(ROOT.glob("docs/**/*.md")),
    *sorted(ROOT.glob("examples/**/README.md")),
]
_FENCED = re.compile(r"^```.*?^```", re.DOTALL | re.M)


def headings(page: Path) -> set[str]:
    """The anchors that GitHub makes of a page's headings."""
    lines = re.findall(r"^#+ (.+)$", _FENCED.sub("", page.read_text()), re.M)
    return {re.sub(r"[^\w\- ]", "", line.lower()).strip().replace(" ", "-") for line in lines}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", _FENCED.sub("", page.read_text())):
        path, _, heading = target.partition("#")
        if "://" in path:
            continue
        found = (page.parent / path).resolve() if path else page
        assert found.exists(), target
        if heading:
            assert heading in headings(found), target


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if page != HISTORY],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_files_of_the_repository_that_a_page_names_are_there(page: Path) -> None:
    folders = "app|bench|client|docs|examples|migrations|scripts|tests"
    named = re.findall(rf"`((?:{folders})/(?!out/|_build)[\w/.-]+)`", page.read_text())
    assert not [name for name in named if not (ROOT / name).exists()]


def test_functions_of_the_walks_are_in_the_files_that_these_name() -> None:
    walks = (ROOT / "docs/explanation/architecture.md").read_text()
    named = re.findall(r"`(\w[\w.]*)`(?:,| in| of)\s`(app/[\w/]+\.py)`", walks)
    assert len(named) > 20
    for name, path in named:
        defined = rf"^ *(?:def|async def|class) {name.split('.')[-1]}\b"
        assert re.search(defined, (ROOT / path).read_text(), re.M), f"{name} in {path}"


def test_the_index_leads_to_every_page() -> None:
    linked = {
        (page.parent / target).resolve()
        for page in (ROOT / "docs/index.md", ROOT / "docs/reference/synthesizers/README.md")
        for target in re.findall(r"\]\(([^)#\s]+)", page.read_text())
    }
    pages = {page for page in PAGES if page.is_relative_to(ROOT / "docs")}
    assert pages - linked == {ROOT / "docs/index.md"}

"""Every setting is documented where an operator looks."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.settings import Settings

PAGE = (Path(__file__).parent.parent / "docs" / "reference" / "settings.md").read_text()


@pytest.mark.parametrize("name", sorted(Settings.model_fields))
def test_a_setting_is_described_in_code_and_on_the_page(name: str) -> None:
    assert Settings.model_fields[name].description
    assert f"`HALFTONE_{name.upper()}`" in PAGE


def test_the_page_names_no_setting_that_does_not_exist() -> None:
    named = {word.split("`")[0] for word in PAGE.split("`HALFTONE_")[1:]}
    assert named == {name.upper() for name in Settings.model_fields}


def test_lists_are_written_with_commas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HALFTONE_DECLARED", "one, two")
    assert Settings().declared == ("one", "two")

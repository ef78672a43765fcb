from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.engine.catalog import registry
from app.engine.catalog.registry import UnknownSynthesizer

BUILT_INS = [entry.name for entry in registry.entries() if entry.builtin]


class Installed:
    """A folder on the import path in which distributions can be put."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def distribution(self, name: str, points: str, module: str = "") -> None:
        info = self.folder / f"{name.replace('-', '_')}-2.5.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 2.5\n")
        (info / "entry_points.txt").write_text(f"[halftone.synthesizers]\n{points}\n")
        if module:
            (self.folder / f"{name.replace('-', '_')}.py").write_text(module)


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Installed]:
    monkeypatch.syspath_prepend(str(tmp_path))
    yield Installed(tmp_path)
    for name in [name for name, module in sys.modules.items() if _lies_in(module, tmp_path)]:
        del sys.modules[name]


def _lies_in(module: object, folder: Path) -> bool:
    return str(getattr(module, "__file__", None)).startswith(str(folder))


def names() -> list[str]:
    return [entry.name for entry in registry.entries()]


@pytest.mark.parametrize("name", BUILT_INS)
def test_a_built_in_is_halftones_own_and_enforced(name: str) -> None:
    entry = registry.entry(name, declared={name})
    assert (entry.builtin, entry.distribution, entry.assurance) == (True, "halftone", "enforced")
    assert registry.builtin(name).name == name
    assert registry.load(name).title


def test_the_built_ins_come_first(installed: Installed) -> None:
    installed.distribution("other-maker", "aa = other_maker:Other", "raise SystemExit(1)")
    assert {"class_resampling", "histogram", "independent", "mst"} <= set(BUILT_INS)
    assert names()[: len(BUILT_INS) + 1] == [*BUILT_INS, "aa"]


def test_a_third_party_is_listed_without_being_imported(installed: Installed) -> None:
    installed.distribution("other-maker", "other = other_maker:Other", "raise SystemExit(1)")
    entry = registry.entry("other")
    assert (entry.distribution, entry.version, entry.builtin) == ("other-maker", "2.5", False)
    assert "other_maker" not in sys.modules


def test_only_the_admin_makes_a_third_party_declared(installed: Installed) -> None:
    installed.distribution(
        "claimer", "claimer = claimer:Claimer", "class Claimer:\n    assurance = 'enforced'\n"
    )
    assert registry.entry("claimer").assurance == "enforced"
    assert registry.entry("claimer", declared={"claimer"}).assurance == "declared"
    assert registry.entry("claimer", declared={"another"}).assurance == "enforced"


def test_a_third_party_is_made_by_loading_it(installed: Installed) -> None:
    installed.distribution("maker", "made = maker:Made", made("check", "fit", "load"))
    assert registry.load("made").title == "Seven"
    with pytest.raises(UnknownSynthesizer):
        registry.builtin("made")


@pytest.mark.parametrize("missing", ["check", "fit", "load"])
def test_a_third_party_without_a_required_method_is_refused(
    missing: str, installed: Installed
) -> None:
    methods = {"check", "fit", "load"} - {missing}
    installed.distribution("maker", "made = maker:Made", made(*methods))
    with pytest.raises(TypeError, match=f"missing here: {missing}"):
        registry.load("made")


@pytest.mark.parametrize("code", ["Made = 5\n", "def Made(): pass\n"], ids=["number", "function"])
def test_what_is_no_synthesizer_is_refused(code: str, installed: Installed) -> None:
    installed.distribution("maker", "made = maker:Made", code)
    with pytest.raises(TypeError, match="a synthesizer has a `name`"):
        registry.load("made")


def made(*methods: str) -> str:
    """The code of a class with these methods."""
    lines = ["class Made:", "    name = 'made'", "    title = 'Seven'"]
    return "\n".join([*lines, *(f"    def {each}(self, *_): pass" for each in methods)]) + "\n"


def test_a_built_in_keeps_its_name(installed: Installed, caplog: pytest.LogCaptureFixture) -> None:
    installed.distribution("usurper", "mst = usurper:Mst", "class Mst:\n    title = 'false'\n")
    with caplog.at_level(logging.WARNING):
        assert names().count("mst") == 1
    assert "belongs to Halftone" in caplog.text
    assert registry.load("mst").title != "false"


def test_a_name_that_two_claim_is_nobodys(installed: Installed) -> None:
    installed.distribution("one-maker", "twin = one_maker:Twin")
    installed.distribution("two-maker", "twin = two_maker:Twin")
    assert "twin" not in names()
    with pytest.raises(UnknownSynthesizer):
        registry.load("twin")


@pytest.mark.parametrize("name", ["../etc", "Upper", "1st", "x" * 65, "mst v2", "auto"])
def test_a_name_that_would_not_fit_a_path_or_is_reserved_is_refused(
    installed: Installed, name: str
) -> None:
    installed.distribution("odd", f"{name} = odd:Odd")
    assert name not in names()


def test_an_unknown_name_says_so() -> None:
    with pytest.raises(UnknownSynthesizer, match="no synthesizer `nothing`"):
        registry.entry("nothing")

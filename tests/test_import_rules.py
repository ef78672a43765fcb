"""The rules that import-linter checks name all that they are about."""

from __future__ import annotations

import pkgutil
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import app
import app.engine

PROJECT = Path(__file__).parent.parent / "pyproject.toml"


def rule(name: str) -> dict[str, Any]:
    contracts = tomllib.loads(PROJECT.read_text())["tool"]["importlinter"]["contracts"]
    return next(contract for contract in contracts if contract["name"].startswith(name))


def test_private_codes_are_opened_by_a_releases_run_and_a_custodians_report_alone() -> None:
    opened = rule("stored private codes are opened")
    assert opened["allowed_importers"] == [
        "app.datasets.public_rows",  # which refuses a private dataset
        "app.jobs.fit",
        "app.reports.exact",
    ]
    compared = rule("exact rows are compared")
    assert set(compared["protected_modules"]) == {
        "app.reports.exact",
        "app.reports.comparison",
        "app.reports.evaluation.evaluating",
    }
    assert compared["allowed_importers"] == ["app.jobs.report"]


def modules_of(package: ModuleType) -> set[str]:
    """Packages and modules right below a package."""
    return {module.name for module in pkgutil.iter_modules(package.__path__)}


def named_in(layers: list[str]) -> set[str]:
    return {name.strip() for layer in layers for name in layer.split("|")}


@pytest.mark.parametrize(
    ("name", "package"), [("packages of the service", app), ("rooms of the engine", app.engine)]
)
def test_every_package_has_its_layer(name: str, package: ModuleType) -> None:
    contract = rule(name)
    assert contract["type"] == "layers"
    assert contract["containers"] == [package.__name__]
    assert contract["exhaustive"] is True
    assert "ignore_imports" not in contract
    assert named_in(contract["layers"]) == modules_of(package)


def test_the_engine_imports_nothing_else_of_the_service() -> None:
    others = {f"app.{name}" for name in modules_of(app) - {"engine"}}
    assert set(rule("the engine is a library")["forbidden_modules"]) == others


def test_no_room_of_the_engine_but_privacy_reaches_noise_kernel_or_storage() -> None:
    contract = rule("no room of the engine but privacy")
    # `warming` compiles the kernel's loops when the service is set up, and runs no request.
    rooms = {f"app.engine.{name}" for name in modules_of(app.engine) - {"privacy", "warming"}}
    assert set(contract["source_modules"]) == rooms

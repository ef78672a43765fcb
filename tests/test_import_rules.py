"""The rules that import-linter checks name all that they are about."""

from __future__ import annotations

import pkgutil
import tomllib
from pathlib import Path
from typing import Any

import app

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
    assert set(compared["protected_modules"]) == {"app.reports.exact", "app.reports.comparison"}
    assert compared["allowed_importers"] == ["app.jobs.report"]


def test_the_engine_may_import_no_other_room_of_the_house() -> None:
    rooms = {f"app.{module.name}" for module in pkgutil.iter_modules(app.__path__)}
    assert set(rule("the engine is a library")["forbidden_modules"]) == rooms - {"app.engine"}

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


def test_the_engine_may_import_no_other_room_of_the_house() -> None:
    rooms = {f"app.{module.name}" for module in pkgutil.iter_modules(app.__path__)}
    assert set(rule("the engine is a library")["forbidden_modules"]) == rooms - {"app.engine"}

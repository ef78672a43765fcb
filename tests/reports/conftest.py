from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from release_world import World, world

from app.sandbox.child import ChildHost


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    with world(tmp_path, monkeypatch) as made:
        yield made


@pytest.fixture
def host(service: World) -> ChildHost:
    return ChildHost(service.settings)

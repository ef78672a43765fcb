from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from release_world import World, world


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    with world(tmp_path, monkeypatch, public_catalogue=True) as made:
        yield made

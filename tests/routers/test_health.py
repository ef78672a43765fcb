"""Whether the service is ready depends on the store that it was started on."""

from __future__ import annotations

from pathlib import Path

import pytest
from front_desk import front_desk

from app.routers import health


def test_a_store_that_was_moved_away_is_not_ready_and_takes_no_writes(tmp_path: Path) -> None:
    body = {"name": "Ada", "roles": ["analyst"]}
    with front_desk(tmp_path) as desk:
        path = desk.database.path
        moved = path.rename(path.with_name("elsewhere.sqlite"))
        for replacement in (None, b""):
            if replacement is not None:
                path.write_bytes(replacement)
            ready = desk.admin.call("GET", "/../readyz")
            assert (ready.status_code, ready.headers["Retry-After"]) == (503, "60")
            assert "moved" in ready.json()["detail"]
            assert desk.admin.post("/principals", body).status_code == 503
        moved.replace(path)
        assert desk.admin.call("GET", "/../readyz").status_code == 200
        assert desk.admin.post("/principals", body).status_code == 201


class Troubled:
    """Chores of which one keeps failing."""

    def in_trouble(self) -> list[str]:
        return ["checkpoint"]

    def failures(self) -> dict[str, int]:
        return {"checkpoint": 7, "leases": 0}


def test_a_chore_that_keeps_failing_is_told_by_readiness_and_metrics(tmp_path: Path) -> None:
    with front_desk(tmp_path) as desk:
        assert desk.admin.call("GET", "/../readyz").status_code == 200
        desk.app.state.supervised = Troubled()
        ready = desk.admin.call("GET", "/../readyz")
        assert (ready.status_code, ready.json()["type"]) == (503, "/problems/unavailable")
        assert "checkpoint" in ready.json()["detail"]
        metrics = desk.admin.call("GET", "/../metrics").text
        assert 'halftone_chore_failures{chore="checkpoint"} 7.0' in metrics
        assert 'halftone_chore_in_trouble{chore="checkpoint"} 1.0' in metrics
        assert 'halftone_chore_in_trouble{chore="leases"} 0.0' in metrics


def test_a_disk_without_room_is_not_ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with front_desk(tmp_path) as desk:
        monkeypatch.setattr(health, "LEAST_ROOM_BYTES", 2**62)
        ready = desk.admin.call("GET", "/../readyz")
        assert (ready.status_code, ready.json()["type"]) == (507, "/problems/storage-full")
        assert int(ready.headers["Retry-After"]) > 0

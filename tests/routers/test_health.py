"""Whether the service is ready depends on the store that it was started on."""

from __future__ import annotations

from pathlib import Path

from front_desk import front_desk


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

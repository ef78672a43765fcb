"""What the store is asked for does not grow with the datasets, releases and samples in it."""

from __future__ import annotations

import json
from typing import Any

from release_world import BY_ROW, World, colours, wanted
from sqlalchemy import text
from statements import Statement, statements

MORE = 300
SPEC = {
    "name": "one more",
    "visibility": "private",
    "schema": {"fields": BY_ROW["fields"][:2]},
    "unit": {"kind": "row"},
    "budget": {"epsilon": 1, "delta": 0},
}


def published(service: World) -> tuple[str, str, str]:
    """Ids of a dataset, a release of it that has succeeded, and its first sample."""
    dataset = service.add_dataset()
    service.custodian.release(dataset)
    release = service.run_fit(colours(100))
    (sample,) = service.custodian.get(f"/v1/releases/{release}").json()["samples"]
    return dataset, release, sample["id"]


def copy_rows(service: World, table: str, original: str) -> None:
    """`MORE` further rows of a table, equal to one but for their ids."""
    with service.database.write() as session:
        names = [row[1] for row in session.execute(text(f"PRAGMA table_info({table})"))]
        values = [f"old.{name}" if name != "id" else "old.id || '_' || n.i" for name in names]
        session.execute(
            text(
                f"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {MORE})"
                f" INSERT INTO {table} ({', '.join(names)})"
                f" SELECT {', '.join(values)} FROM {table} AS old, n WHERE old.id = :original"
            ),
            {"original": original},
        )


def asked(service: World, dataset: str, release: str) -> dict[str, list[Statement]]:
    """The statements of each of the requests that people make again and again."""
    form = {
        "spec": (None, json.dumps(SPEC), "application/json"),
        "file": ("upload.csv", b"colour,size\nred,1\n", "text/csv"),
    }
    guarantee = wanted(guarantee={"epsilon": "0.001"})
    requests: list[tuple[str, str, dict[str, Any]]] = [
        ("POST", "/v1/datasets", {"files": form}),
        ("POST", f"/v1/datasets/{dataset}/releases", {"json": guarantee}),
        ("POST", f"/v1/datasets/{dataset}/releases/preflight", {"json": guarantee}),
        ("POST", f"/v1/releases/{release}/samples", {"json": {"rows": 5}}),
        ("GET", f"/v1/releases/{release}", {}),
        *(
            ("GET", f"/v1/{path}?limit=5", {})
            for path in (
                "datasets",
                "releases",
                "audit",
                f"releases/{release}/samples",
                f"datasets/{dataset}/ledger",
                f"datasets/{dataset}/grants",
            )
        ),
        ("GET", f"/v1/datasets/{dataset}/budget", {}),
        ("GET", f"/v1/datasets/{dataset}/ledger/verification", {}),
        ("GET", "/readyz", {}),
        ("GET", "/metrics", {}),
    ]
    found = {}
    for method, path, options in requests:
        with statements(service.database) as seen:
            answer = service.custodian.request(method, path, **options)
        assert answer.is_success, (path, answer.text)
        found[f"{method} {path}"] = seen
    return found


def test_no_request_asks_more_of_the_store_as_its_history_grows(service: World) -> None:
    dataset, release, sample = published(service)
    for _ in range(5):
        asked(service, dataset, release)
    before = asked(service, dataset, release)
    for table, original in (("datasets", dataset), ("releases", release), ("samples", sample)):
        copy_rows(service, table, original)
    after = asked(service, dataset, release)
    for request, first in before.items():
        assert [one.text for one in after[request]] == [one.text for one in first], request
        assert max(one.variables for one in after[request]) <= 40, request


def test_a_release_shows_its_first_samples_and_lists_them_all(service: World) -> None:
    _, release, sample = published(service)
    copy_rows(service, "samples", sample)
    shown = service.custodian.get(f"/v1/releases/{release}").json()["samples"]
    assert len(shown) == 100
    listed = service.custodian.get("/v1/releases?limit=1").json()["items"][0]["samples"]
    assert listed == shown
    ids, cursor = [], ""
    while cursor is not None:
        path = f"/v1/releases/{release}/samples?limit=200{cursor}"
        page = service.custodian.get(path).json()
        ids += [each["id"] for each in page["items"]]
        cursor = page["next"] and f"&cursor={page['next']}"
    assert len(ids) >= MORE + 1
    assert ids[:100] == [each["id"] for each in shown]


def test_erasing_with_many_releases_and_samples_takes_few_statements(service: World) -> None:
    dataset, release, sample = published(service)
    copy_rows(service, "samples", sample)
    copy_rows(service, "releases", release)
    with statements(service.database) as seen:
        path = f"/v1/datasets/{dataset}?releases=true"
        assert service.custodian.request("DELETE", path).is_success
    changes = [one for one in seen if one.text.startswith(("UPDATE releases", "UPDATE samples"))]
    assert len(changes) == 2
    assert service.custodian.get(f"/v1/samples/{sample}").status_code == 404

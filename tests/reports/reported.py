"""Builders for tests of reports: uploaded tables, published releases and their reports."""

from __future__ import annotations

from typing import Any

from release_world import BY_ROW, COLOURS, World, colours, wanted

from app.engine.privacy.source import ArraySource
from app.sandbox.child import ChildHost

NOTICE = "not private: do not publish"
LARGE = {"epsilon": "200000"}
"""A budget and a guarantee whose noise is 0 but for a chance of e^-10000."""
UNIT = {"kind": "entity", "column": "id", "max_rows": 2}


def uploaded(
    service: World,
    host: ChildHost,
    table: str,
    *,
    schema: dict[str, Any] = BY_ROW,
    unit: dict[str, Any] | None = None,
    **changes: Any,
) -> str:
    """A ready dataset of the custodian's with these rows (CSV)."""
    spec = {
        "name": "colours",
        "visibility": "private",
        "schema": schema,
        "unit": unit or {"kind": "row"},
        "max_total_rows": 10_000,
        "budget": {"epsilon": "2000000", "delta": "0.0001"},
        **changes,
    }
    made = service.custodian.post("/v1/datasets", spec)
    assert made.status_code == 201, made.text
    at = f"/v1/datasets/{made.json()['id']}"
    headers = {"Content-Type": "text/csv"}
    sent = service.custodian.request("PUT", f"{at}/data", content=table.encode(), headers=headers)
    assert sent.status_code == 202, sent.text
    service.work(host)
    found = service.custodian.get(at).json()
    assert found["state"] == "ready", service.custodian.get(f"{at}/ingest-report").text
    return str(found["id"])


def people(service: World, host: ChildHost, rows: str) -> str:
    """A dataset of `COLOURS`, of persons with at most two rows each."""
    return uploaded(service, host, rows, schema=COLOURS, unit=UNIT)


def released(
    service: World, host: ChildHost, dataset: str, who: str = "custodian", **changes: Any
) -> str:
    """A release that has succeeded, with next to no noise unless told otherwise."""
    body = wanted(**{"guarantee": LARGE, **changes})
    asked = service.client(who).post(f"/v1/datasets/{dataset}/releases", body)
    assert asked.status_code == 202, asked.text
    service.work(host)
    at = f"/v1/releases/{asked.json()['id']}"
    found = service.custodian.get(at).json()
    assert found["state"] == "succeeded", found
    return at


def reported(service: World, host: ChildHost, release: str) -> dict[str, Any]:
    """The custodian's report of a release (its path), made now."""
    asked = service.custodian.post(f"{release}/report")
    assert asked.status_code == 202, asked.text
    service.work(host)
    found: dict[str, Any] = service.custodian.get(f"{release}/report").json()
    assert found["state"] == "succeeded", found
    return found


def published(
    service: World,
    dataset: str,
    who: str = "custodian",
    *,
    rows: ArraySource | None = None,
    **changes: Any,
) -> str:
    """A release of a dataset of `BY_ROW`, fitted in this process on `rows`, by default others
    than the stored ones."""
    asked = service.client(who).release(dataset, **{"guarantee": {"epsilon": "1"}, **changes})
    assert asked.status_code == 202, asked.text
    service.run_fit(rows or colours(40))
    return f"/v1/releases/{asked.json()['id']}"

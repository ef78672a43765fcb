"""From a release to a publication, person by person, with nothing but httpx.

    python publication_httpx.py http://127.0.0.1:8000 hk_...

The key needs the admin and custodian roles; that of a fresh store has both. The service has to run
with HALFTONE_PUBLIC_CATALOGUE=true. Everything is written to the folder in which it is run.
"""

from __future__ import annotations

import hashlib
import json
import random
import sys
import time
from pathlib import Path
from typing import Any

import httpx

REGIONS = ["north", "south", "west"]
SPEC = {
    "name": "survey",
    "visibility": "private",
    "schema": {
        "fields": [
            {
                "name": "age",
                "type": "integer",
                "constraints": {"minimum": 18, "maximum": 90, "required": True},
                "bins": 12,
            },
            {
                "name": "region",
                "type": "string",
                "constraints": {"enum": REGIONS, "required": True},
            },
        ]
    },
    "unit": {"kind": "row"},
    "budget": {"epsilon": "2", "delta": "1e-6"},
}
WAIT_S = 120


def main(url: str, key: str) -> None:
    with person(url, key) as office:
        dataset, release = office_makes_a_release(office)
        analyst = key_of_somebody(office, dataset, "analyst")
        auditor = key_of_somebody(office, dataset, "auditor")
        made = custodian_publishes(office, release)
    with httpx.Client(base_url=url, timeout=60) as stranger:
        stranger_finds_downloads_and_checks(stranger, made)
    with person(url, analyst) as http:
        analyst_samples_what_is_shared(http, dataset, release)
    with person(url, auditor) as http:
        auditor_prints_the_statement(http, dataset)


def person(url: str, key: str) -> httpx.Client:
    return httpx.Client(base_url=url, headers={"Authorization": f"Bearer {key}"}, timeout=60)


def office_makes_a_release(office: httpx.Client) -> tuple[str, str]:
    rows = (f"{random.randint(18, 90)},{random.choice(REGIONS)}" for _ in range(2000))
    files = {
        "spec": (None, json.dumps(SPEC), "application/json"),
        "file": ("survey.csv", "age,region\n" + "\n".join(rows) + "\n", "text/csv"),
    }
    dataset = answered(office.post("/v1/datasets", files=files))["id"]
    until(office, f"/v1/datasets/{dataset}", "ready")
    asked = {
        "synthesizer": "mst",
        "guarantee": {"epsilon": "1", "delta": "1e-6"},
        "rows": 2000,
    }
    release = answered(office.post(f"/v1/datasets/{dataset}/releases", json=asked))["id"]
    until(office, f"/v1/releases/{release}", "succeeded")
    return dataset, release


def key_of_somebody(office: httpx.Client, dataset: str, role: str) -> str:
    new = {"name": f"A certain {role}", "roles": [role]}
    somebody = answered(office.post("/v1/principals", json=new))["id"]
    grant = {"principal_id": somebody, "role": role}
    answered(office.post(f"/v1/datasets/{dataset}/grants", json=grant))
    return str(answered(office.post(f"/v1/principals/{somebody}/keys", json={}))["key"])


def custodian_publishes(office: httpx.Client, release: str) -> dict[str, Any]:
    """Looks at the report first, as everybody should."""
    page = office.get(f"/v1/releases/{release}/report", params={"format": "html"})
    Path("report.html").write_bytes(page.raise_for_status().content)
    publication = {
        "release": release,
        "title": "Survey of commuting, synthetic",
        "abstract": "Synthetic answers, made with differential privacy.",
        "license": "CC-BY-4.0",
        "creators": [{"name": "City statistics office"}],
        "keywords": ["survey"],
    }
    made = answered(office.post("/v1/publications", json=publication))
    print(f"custodian: published {made['id']}, version {made['version']}")
    return made


def stranger_finds_downloads_and_checks(stranger: httpx.Client, made: dict[str, Any]) -> None:
    """Has no key, and needs none."""
    found = answered(stranger.get("/v1/publications", params={"q": "commuting"}))["items"]
    (one,) = (each for each in found if each["id"] == made["id"])
    archive = stranger.get(one["bundle"]).raise_for_status().content
    assert hashlib.sha256(archive).hexdigest() == one["bundle_sha256"]
    first = stranger.get(one["bundle"], headers={"Range": "bytes=0-3"})
    assert (first.status_code, first.content) == (206, archive[:4])
    for file in one["files"]:
        content = stranger.get(file["path"]).raise_for_status().content
        assert hashlib.sha256(content).hexdigest() == file["sha256"], file["name"]
    linked = stranger.get("/v1/publications", headers={"Accept": "application/ld+json"})
    assert linked.raise_for_status().json()["@type"] == "dcat:Catalog"
    print(f"stranger: {one['title']}, {len(one['files'])} files with the hashes that are stated")


def analyst_samples_what_is_shared(http: httpx.Client, dataset: str, release: str) -> None:
    (shared,) = answered(http.get("/v1/releases", params={"dataset": dataset}))["items"]
    assert shared["id"] == release
    asked = {"rows": 500, "seed": 7}
    sample = answered(http.post(f"/v1/releases/{release}/samples", json=asked))["id"]
    until(http, f"/v1/samples/{sample}", "succeeded")
    rows = http.get(f"/v1/samples/{sample}/data").raise_for_status().text
    assert len(rows.splitlines()) == 501
    spent = answered(http.get(f"/v1/datasets/{dataset}/budget"))["allowance"]["spent"]
    assert spent == {"epsilon": "0", "delta": "0"}, spent
    print("analyst: 500 rows of a shared release, at no charge")


def auditor_prints_the_statement(http: httpx.Client, dataset: str) -> None:
    at = f"/v1/datasets/{dataset}/ledger/statement"
    Path("statement.html").write_bytes(http.get(at).raise_for_status().content)
    statement = answered(http.get(at, params={"format": "json"}))
    assert statement["verification"]["ok"]
    print("auditor: the statement is in statement.html, and the ledger adds up")


def answered(response: httpx.Response) -> dict[str, Any]:
    if response.is_error:
        raise SystemExit(f"{response.request.method} {response.url}: {response.text}")
    body: dict[str, Any] = response.json()
    return body


def until(http: httpx.Client, path: str, state: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        found = answered(http.get(path))["state"]
        if found == state:
            return
        if found in ("failed", "rejected", "cancelled"):
            raise SystemExit(f"{path} is {found}")
        time.sleep(0.1)
    raise SystemExit(f"{path} is not {state} after {WAIT_S} s")


if __name__ == "__main__":
    main(*sys.argv[1:])

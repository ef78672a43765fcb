"""A tour of Halftone with nothing but httpx: each call is written out, each answer is checked.

    python tour_httpx.py http://127.0.0.1:8000 hk_...

or with HALFTONE_URL and HALFTONE_KEY in the environment. The key needs the custodian role; that
of a fresh store has it. Takes a made-up survey from upload to synthetic rows and to a refusal.
"""

from __future__ import annotations

import csv
import io
import json
import os
import random
import sys
import time
import uuid
from typing import Any

import httpx

AGES, REGIONS = range(18, 91), ["north", "south", "west"]
SPEC = {
    "name": "survey",
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
            {"name": "smokes", "type": "boolean"},
        ]
    },
    "unit": {"kind": "row"},
    "max_total_rows": 10000,
    "budget": {"epsilon": "2", "delta": "1e-6"},
}
WAIT_S = 120


def main() -> None:
    url, key = where()
    with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {key}"}, timeout=60) as http:
        dataset = upload(http)
        preflight(http, dataset)
        release = ask_for_a_release(http, dataset)
        download(http, release["samples"][0]["id"], rows=3000)
        draw_another_sample(http, release["id"])
        read_what_is_published(http, release["id"])
        compare_with_the_real_table(http, release["id"])
        be_refused(http, dataset)
        read_the_ledger(http, dataset)
    print("The tour is over; all answers were as they should be.")


def where() -> tuple[str, str]:
    """Base URL and key, from the command line or the environment."""
    given = sys.argv[1:] or [os.environ.get("HALFTONE_URL", ""), os.environ.get("HALFTONE_KEY", "")]
    if len(given) != 2 or not all(given):
        raise SystemExit(__doc__)
    return str(given[0]), str(given[1])


def survey() -> bytes:
    """5,000 made-up answers as CSV, others each time: the same ones are recognised and refused."""
    chance = random.Random()
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(["age", "region", "smokes"])
    for _ in range(5000):
        smokes = chance.choice(["true", "false", "false", ""])
        writer.writerow([chance.choice(AGES), chance.choice(REGIONS), smokes])
    return text.getvalue().encode()


def expect(response: httpx.Response, *statuses: int) -> Any:
    """The decoded body, if the status is one of those expected."""
    if response.status_code not in statuses:
        raise SystemExit(f"{response.request.method} {response.url}: {response.text}")
    return response.json()


def made(http: httpx.Client, path: str, body: dict[str, Any]) -> httpx.Response:
    """POST with a key of its own: sent again with the same key, it does nothing twice."""
    return http.post(path, json=body, headers={"Idempotency-Key": str(uuid.uuid4())})


def wait_for(http: httpx.Client, path: str, state: str) -> Any:
    """Ask until the resource has reached `state`."""
    deadline = time.monotonic() + WAIT_S
    while True:
        resource = expect(http.get(path), 200)
        if resource["state"] == state:
            return resource
        if resource["state"] in {"failed", "rejected", "cancelled"} or time.monotonic() > deadline:
            raise SystemExit(f"{path} is {resource['state']}, not {state}: {why(http, path)}")
        time.sleep(0.2)


def why(http: httpx.Client, path: str) -> Any:
    """What an upload was rejected for, or the resource itself."""
    report = http.get(f"{path}/ingest-report")
    return report.json()["problems"] if report.is_success else http.get(path).json()


def upload(http: httpx.Client) -> str:
    parts = {
        "spec": (None, json.dumps(SPEC).encode(), "application/json"),
        "file": ("survey.csv", survey(), "text/csv"),
    }
    headers = {"Idempotency-Key": str(uuid.uuid4())}
    dataset = expect(http.post("/v1/datasets", files=parts, headers=headers), 201, 202)
    ready = wait_for(http, f"/v1/datasets/{dataset['id']}", "ready")
    print(f"Uploaded {ready['name']} as {ready['id']}.")
    return str(ready["id"])


def preflight(http: httpx.Client, dataset: str) -> None:
    body = {"synthesizer": "mst", "guarantee": {"epsilon": 1}}
    found = expect(http.post(f"/v1/datasets/{dataset}/releases/preflight", json=body), 200)
    assert found["fits"] is True
    assert found["problems"] == []
    print(f"An mst release at epsilon 1 fits; expected error {found['expected_error']:.3g} counts.")


def ask_for_a_release(http: httpx.Client, dataset: str) -> Any:
    path = f"/v1/datasets/{dataset}/releases"
    body = {"synthesizer": "mst", "guarantee": {"epsilon": 1, "delta": 0}, "rows": 3000}
    headers = {"Idempotency-Key": str(uuid.uuid4())}
    first = http.post(path, json=body, headers=headers)
    accepted = expect(first, 202)
    again = http.post(path, json=body, headers=headers)
    assert expect(again, 202)["id"] == accepted["id"]
    assert again.headers["Idempotent-Replayed"] == "true"
    assert accepted["charge"]["epsilon"] == "1"
    print(f"Release {accepted['id']} costs {accepted['charge']}; asked twice, charged once.")
    return wait_for(http, first.headers["Location"], "succeeded")


def download(http: httpx.Client, sample: str, rows: int) -> None:
    wait_for(http, f"/v1/samples/{sample}", "succeeded")
    response = http.get(f"/v1/samples/{sample}/data", params={"format": "csv"})
    response.raise_for_status()
    table = list(csv.DictReader(io.StringIO(response.text)))
    assert len(table) == rows
    assert all(18 <= int(row["age"]) <= 90 and row["region"] in REGIONS for row in table)
    tag = response.headers["ETag"]
    assert http.get(str(response.url), headers={"If-None-Match": tag}).status_code == 304
    print(f"Downloaded {rows} synthetic rows, such as {table[0]}.")


def draw_another_sample(http: httpx.Client, release: str) -> None:
    sample = expect(made(http, f"/v1/releases/{release}/samples", {"rows": 500, "seed": 7}), 202)
    download(http, sample["id"], rows=500)
    print("The second sample was free: it is made from what was measured.")


def read_what_is_published(http: httpx.Client, release: str) -> None:
    measurements = expect(http.get(f"/v1/releases/{release}/measurements"), 200)
    certificate = expect(http.get(f"/v1/releases/{release}/certificate"), 200)
    assert measurements
    assert certificate
    print("Read the noisy tables and the certificate.")


def compare_with_the_real_table(http: httpx.Client, release: str) -> None:
    accepted = http.post(f"/v1/releases/{release}/report")
    expect(accepted, 202)
    exact = wait_for(http, accepted.headers["Location"], "succeeded")["exact"]
    assert exact["notice"] == "not private: do not publish"
    print(f"For the custodian's eyes: pairs of columns are off by {exact['pairs']['mean']:.3f}.")


def be_refused(http: httpx.Client, dataset: str) -> None:
    body = {"synthesizer": "histogram", "guarantee": {"epsilon": "1.5"}}
    refusal = expect(made(http, f"/v1/datasets/{dataset}/releases", body), 409)
    assert refusal["type"] == "/problems/budget-exceeded"
    assert (refusal["scope"], refusal["limited_by"]) == ("account", "epsilon")
    assert (refusal["remaining"]["epsilon"], refusal["largest_epsilon"]) == ("1", "1")
    print(f"Refused: {refusal['detail']} The most that fits is {refusal['largest_epsilon']}.")
    wrong = {"synthesizer": "histogram", "guarantee": {"epsilon": -1}}
    problem = expect(made(http, f"/v1/datasets/{dataset}/releases", wrong), 422)
    first = problem["errors"][0]
    print(f"Wrong: {first['pointer']}: {first['message']}. {first['remedy']}")


def read_the_ledger(http: httpx.Client, dataset: str) -> None:
    budget = expect(http.get(f"/v1/datasets/{dataset}/budget"), 200)
    assert budget["remaining"]["epsilon"] == "1"
    lines = expect(http.get(f"/v1/datasets/{dataset}/ledger"), 200)["items"]
    assert lines
    expect(http.get(f"/v1/datasets/{dataset}/ledger/verification"), 200)
    print(f"The ledger has {len(lines)} lines; spent {budget['spent']} of {budget['budget']}.")


if __name__ == "__main__":
    main()

"""Many clients at once against one running server: exactly what fits is admitted."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from serving import ADMIN_KEY, LiveServer, serving

CLIENTS = 64
REQUESTS_OF_EACH = 4
SCHEMA = {
    "fields": [
        {"name": "size", "type": "integer", "constraints": {"minimum": 0, "maximum": 4}},
    ]
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Any:
    # What was admitted need not run to its end.
    with serving(tmp_path_factory.mktemp("race"), {"HALFTONE_DRAIN_S": "0"}) as live:
        yield live


def dataset(server: LiveServer, **account: Any) -> str:
    spec = {"name": "race", "visibility": "private", "schema": SCHEMA, "unit": {"kind": "row"}}
    with server.client() as client:
        made = client.post("/v1/datasets", json={**spec, **account})
        assert made.status_code in (201, 202), made.text
        dataset_id = str(made.json()["id"])
        sent = client.put(
            f"/v1/datasets/{dataset_id}/data",
            content=f"size\n3\n{len(account)}\n".encode(),
            headers={"Content-Type": "text/csv", "Prefer": "wait=30"},
        )
        assert sent.json()["state"] == "ready", sent.text
    return dataset_id


def race(
    server: LiveServer, dataset_id: str, guarantee: dict[str, Any], times: int, clients: int
) -> list[httpx.Response]:
    """`clients` at once, each sending `times` requests one after the other."""
    body = {"synthesizer": "histogram", "params": {}, "guarantee": guarantee, "rows": 1}

    def run(_: int) -> list[httpx.Response]:
        with server.client(ADMIN_KEY, timeout_s=120) as client:
            path = f"/v1/datasets/{dataset_id}/releases"
            return [client.post(path, json=body) for _ in range(times)]

    with ThreadPoolExecutor(clients) as pool:
        return [answer for answers in pool.map(run, range(clients)) for answer in answers]


def statuses(answers: list[httpx.Response]) -> Counter[int]:
    return Counter(answer.status_code for answer in answers)


def test_a_basic_budget_admits_exactly_ten_of_256(server: LiveServer) -> None:
    dataset_id = dataset(server, budget={"epsilon": "1.0"})
    answers = race(server, dataset_id, {"epsilon": "0.1"}, REQUESTS_OF_EACH, CLIENTS)
    assert statuses(answers) == {202: 10, 409: 246}
    for refusal in (answer.json() for answer in answers if answer.status_code == 409):
        assert refusal["type"] == "/problems/budget-exceeded"
        assert refusal["requested"] == {"epsilon": "0.1", "delta": "0"}
        assert refusal["spent"] == {"epsilon": "1", "delta": "0"}
        assert refusal["remaining"] == {"epsilon": "0", "delta": "0"}
        assert refusal["largest_epsilon"] is None


def test_a_zcdp_budget_admits_exactly_63_of_100(server: LiveServer) -> None:
    dataset_id = dataset(server, budget={"epsilon": "10", "delta": "0.000001"}, accountant="zcdp")
    answers = race(server, dataset_id, {"epsilon": "1", "delta": "1e-6"}, 10, 10)
    assert statuses(answers) == {202: 63, 409: 37}
    refusal = next(answer.json() for answer in answers if answer.status_code == 409)
    assert refusal["limited_by"] == "rho"
    with server.client() as client:
        budget = client.get(f"/v1/datasets/{dataset_id}/budget").json()
        assert refusal["remaining"] == budget["remaining"]
        assert refusal["largest_epsilon"] is not None
        check = client.get(f"/v1/datasets/{dataset_id}/ledger/verification").json()
    assert check["ok"] is True

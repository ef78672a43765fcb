"""An adapter goes all the way: its library runs inside what confines a release's process."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from adapter_tables import ADAPTERS, needs, pairs
from forge import Served, eventually, forge

SPEC = {
    "name": "pairs",
    "schema": {
        "fields": [
            {"name": name, "type": "integer", "constraints": {"minimum": 0, "maximum": 1}}
            for name in ("a", "b")
        ]
    },
    "unit": {"kind": "row"},
    "budget": {"epsilon": 100, "delta": 1e-6},
    "accountant": "zcdp",
}


def add_pairs(served: Served) -> str:
    table = "a,b\n" + "".join(f"{a},{b}\n" for a, b in zip(*pairs(600).values(), strict=True))
    answer = served.http.post(
        "/v1/datasets",
        files={
            "spec": (None, json.dumps(SPEC), "application/json"),
            "file": ("pairs.csv", table, "text/csv"),
        },
    )
    dataset = str(answer.json()["id"])
    eventually(lambda: served.get(f"/datasets/{dataset}")["state"] == "ready", "the upload")
    return dataset


@pytest.mark.parametrize(
    ("name", "params"),
    [
        pytest.param("dpmm:aim", {"iterations": 20}, marks=needs("dpmm")),
        pytest.param("smartnoise:aim", {}, marks=needs("smartnoise")),
    ],
)
def test_a_library_makes_a_release_and_more_samples_of_it(
    tmp_path: Path, name: str, params: dict[str, int]
) -> None:
    with forge(tmp_path, adapters=ADAPTERS.resolve(), declared=name) as made:
        served, worker = made.serve(), made.work()
        dataset = add_pairs(served)
        release = served.release(
            dataset,
            synthesizer=name,
            params=params,
            guarantee={"rho": "1"},
            rows=300,
        )
        shown = served.ended(release)
        assert shown["state"] == "succeeded", shown["private_detail"]
        assert shown["assurance"] == "declared"
        certificate = served.get(f"/releases/{release}/certificate")
        assert certificate["assurance"] == "declared"
        (mechanism,) = certificate["mechanisms"]
        assert (mechanism["mechanism"], mechanism["loss"]) == ("trusted call", {"rho": "1"})
        assert served.get(f"/datasets/{dataset}/budget")["spent"]["rho"] == "1"
        sample = served.http.post(
            f"/v1/releases/{release}/samples", json={"rows": 1000, "seed": 4}
        ).json()["id"]
        eventually(lambda: served.get(f"/samples/{sample}")["state"] == "succeeded", "the sample")
        rows = served.http.get(f"/v1/samples/{sample}/data?format=csv").text.splitlines()[1:]
        assert len(rows) == 1000
        assert sum(row in ("0,0", "1,1") for row in rows) > 700
        worker.stop()
        served.process.stop()

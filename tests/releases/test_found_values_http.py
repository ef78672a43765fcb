"""A column whose values nobody lists, over HTTP: stored, found, sampled, compared, erased."""

from __future__ import annotations

import csv
import io
import logging
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from release_world import World, world

from app.datasets import blocks
from app.datasets.codes import StoredCodes
from app.engine.privacy.loss import Accountant
from app.sandbox.child import ChildHost
from app.storage.blobs import stored_bytes
from app.storage.encryption import Keyring

SPEC: dict[str, Any] = {
    "name": "towns",
    "visibility": "private",
    "schema": {
        "fields": [
            {"name": "town", "type": "string", "values": {"discover": 50}, "other": "Other"},
            {"name": "sex", "type": "string", "constraints": {"enum": ["f", "m"]}},
        ]
    },
    "unit": {"kind": "row"},
    "max_total_rows": 5000,
    "budget": {"epsilon": 20, "delta": "0.00001"},
}
SECRET = "Zzyzx-the-only-one"
ASKED = {"synthesizer": "mst", "guarantee": {"epsilon": "5", "delta": "1e-6"}, "rows": 500}


def table(secret: str | None = SECRET) -> bytes:
    rows = [f"{town},{'fm'[i % 2]}" for town in ("Ur", "Kish") for i in range(400)]
    rows += [",f"] * 100 + ([] if secret is None else [f"{secret},m"])
    return "\n".join(["town,sex", *rows, ""]).encode()


@pytest.fixture
def host(service: World) -> ChildHost:
    return ChildHost(service.settings)


def upload(service: World, host: ChildHost, content: bytes) -> str:
    made = service.custodian.post("/v1/datasets", SPEC)
    assert made.status_code in (201, 202), made.text
    dataset = str(made.json()["id"])
    headers = {"Content-Type": "text/csv"}
    at = f"/v1/datasets/{dataset}/data"
    service.custodian.request("PUT", at, content=content, headers=headers)
    service.work(host)
    assert service.custodian.get(f"/v1/datasets/{dataset}").json()["state"] == "ready"
    return dataset


def test_a_release_tells_frequent_values_and_gives_no_sign_of_a_single_one(
    service: World, host: ChildHost, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    me = service.custodian
    dataset = upload(service, host, table())
    seen = [me.get(f"/v1/datasets/{dataset}{part}").text for part in ("", "/schema", "/ledger")]
    seen.append(me.get(f"/v1/datasets/{dataset}/ingest-report").text)
    made = me.post(f"/v1/datasets/{dataset}/releases", ASKED)
    assert made.status_code == 202, made.text
    service.work(host)
    release = me.get(f"/v1/releases/{made.json()['id']}").json()
    assert release["state"] == "succeeded", release
    at = f"/v1/releases/{release['id']}"
    certificate, measured = me.get(f"{at}/certificate"), me.get(f"{at}/measurements")
    more = me.post(f"{at}/samples", {"rows": 300, "seed": 4}).json()["id"]
    report = me.post(f"{at}/report")
    assert report.status_code == 202
    service.work(host)
    samples = [
        me.get(f"/v1/samples/{name}/data?format=csv").text
        for name in (release["samples"][0]["id"], more)
    ]
    for text in samples:
        towns = [row["town"] for row in csv.DictReader(io.StringIO(text))]
        assert {"Ur", "Kish"} <= set(towns) <= {"Ur", "Kish", "Other", ""}
    exact = me.get(f"{at}/report").json()
    assert exact["state"] == "succeeded", exact
    assert exact["exact"] is not None
    found = measured.json()["measurements"][0]
    assert found["listed"] == [{"town": "Kish"}, {"town": "Ur"}]
    first = certificate.json()["mechanisms"][0]
    assert first["mechanism"].startswith("discovery of values with threshold")
    assert Decimal(first["loss"]["delta"]) == Decimal("0.0000001")
    spelled = me.get(f"{at}/measurements?format=csv").text
    seen += [certificate.text, measured.text, spelled, *samples, str(exact), str(release)]
    assert not [text for text in seen if SECRET in text]
    assert SECRET not in caplog.text


def test_two_tables_that_differ_by_one_new_value_cost_and_show_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before any release: schema, state, preflight and refusals."""
    seen = []
    for name, secret in (("with", SECRET), ("without", None)):
        with world(tmp_path / name, monkeypatch) as service:
            dataset = upload(service, ChildHost(service.settings), table(secret))
            path = f"/v1/datasets/{dataset}/releases/preflight"
            answers = [
                service.custodian.post(path, ASKED | {"synthesizer": name}).content
                for name in ("independent", "mst", "histogram", "aggregate_seeded")
            ]
            answers.append(service.custodian.get(f"/v1/datasets/{dataset}/schema").content)
            seen.append(answers)
    assert seen[0] == seen[1]


def test_texts_are_sealed_with_the_dataset_and_go_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with world(tmp_path, monkeypatch) as service:
        dataset = upload(service, ChildHost(service.settings), table())
        source = StoredCodes(service.database, Keyring(service.settings), dataset)
        assert tuple(source.texts("town")) == ("Ur", "Kish", SECRET)
        with service.database.read() as session:
            assert stored_bytes(session, dataset) > 0
        assert blocks.number_parts(source.schema) == {"town": "numbers-0"}
        assert service.custodian.request("DELETE", f"/v1/datasets/{dataset}").status_code < 300
        service.work(host)
        state = service.custodian.get(f"/v1/datasets/{dataset}").json()["state"]
        assert state == "erased"
        with service.database.read() as session:
            assert stored_bytes(session, dataset) == 0


@pytest.mark.parametrize("synthesizer", ["independent", "mst", "histogram"])
def test_finding_values_needs_some_delta(service: World, synthesizer: str) -> None:
    dataset = service.add_dataset(schema=SPEC["schema"])
    path = f"/v1/datasets/{dataset}/releases"
    pure = {"synthesizer": synthesizer, "guarantee": {"epsilon": "1"}}
    preview = service.custodian.post(f"{path}/preflight", pure).json()
    assert [each["pointer"] for each in preview["problems"]] == ["/guarantee"]
    refused = service.custodian.post(path, pure)
    assert refused.status_code == 422
    assert "delta" in refused.json()["errors"][0]["message"]
    without = pure | {"params": {"columns": ["sex"]}}
    assert service.custodian.post(f"{path}/preflight", without).json()["fits"]


def test_an_account_that_sets_no_delta_aside_is_told_so(service: World) -> None:
    for aside, pointers in (("0", ["/guarantee"]), ("0.000001", [])):
        dataset = service.add_dataset(
            schema=SPEC["schema"],
            accountant=Accountant.ZCDP,
            delta="0.00001",
            delta_for_approximate=aside,
        )
        path = f"/v1/datasets/{dataset}/releases"
        preview = service.custodian.post(f"{path}/preflight", ASKED).json()
        assert [each["pointer"] for each in preview["problems"]] == pointers
        assert service.custodian.post(path, ASKED).status_code == (422 if pointers else 202)


def test_a_public_dataset_has_nothing_to_be_found(service: World) -> None:
    spec = {key: SPEC[key] for key in ("name", "schema", "max_total_rows")}
    refused = service.custodian.post("/v1/datasets", spec | {"visibility": "public"})
    assert refused.status_code == 422
    assert [each["pointer"] for each in refused.json()["errors"]] == ["/schema/fields/0/values"]


def test_who_does_not_find_values_says_so(service: World) -> None:
    dataset = service.add_dataset(schema=SPEC["schema"])
    body = ASKED | {"synthesizer": "aggregate_seeded"}
    path = f"/v1/datasets/{dataset}/releases/preflight"
    problems = service.custodian.post(path, body).json()["problems"]
    assert [each["pointer"] for each in problems] == ["/params/columns"]

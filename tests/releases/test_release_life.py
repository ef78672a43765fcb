"""A release from request to download, over HTTP."""

from __future__ import annotations

import csv
import io
import json

import pyarrow.parquet as pq
from release_world import COLOURS, World, colours, wanted


def test_an_admitted_release_is_charged_queued_and_located(service: World) -> None:
    dataset = service.add_dataset()
    answer = service.custodian.release(dataset)
    assert answer.status_code == 202, answer.text
    body = answer.json()
    assert answer.headers["location"] == f"/v1/releases/{body['id']}"
    assert body["state"] == "queued"
    assert body["charge"] == {"epsilon": "1", "delta": "0"}
    assert body["samples"] == []


def test_a_release_that_succeeded_can_be_downloaded_in_every_format(service: World) -> None:
    dataset = service.add_dataset()
    me = service.custodian
    me.release(dataset, rows=300)
    release = me.get(f"/v1/releases/{service.run_fit(colours(2000))}").json()
    assert (release["state"], release["progress"], release["stage"]) == ("succeeded", 1.0, "done")
    (sample,) = release["samples"]
    assert sample["rows"] == 300

    path = f"/v1/samples/{sample['id']}/data"
    rows = list(csv.reader(io.StringIO(me.get(path, params={"format": "csv"}).text)))
    assert rows[0] == ["colour", "size"]
    assert len(rows) == 301
    assert {row[0] for row in rows[1:]} <= {"red", "=green", "b,lue", "NA"}
    parquet = pq.read_table(io.BytesIO(me.get(path, params={"format": "parquet"}).content))
    assert parquet.num_rows == 300
    lines = me.get(path, params={"format": "jsonl"}).text.splitlines()
    assert [json.loads(line) for line in lines] == parquet.to_pylist()


def test_entity_ids_are_synthetic(service: World) -> None:
    dataset = service.add_dataset(
        schema=COLOURS, unit={"kind": "entity", "column": "id", "max_rows": 3}
    )
    service.custodian.release(dataset, rows=50, guarantee={"epsilon": 5})
    release_id = service.run_fit(colours(500, entities=200))
    sample = service.custodian.get(f"/v1/releases/{release_id}").json()["samples"][0]["id"]
    rows = list(
        csv.DictReader(io.StringIO(service.custodian.get(f"/v1/samples/{sample}/data").text))
    )
    assert len(rows) == 50
    assert list(rows[0]) == ["id", "colour", "size"]
    assert all(row["id"].startswith("e0") for row in rows)


def test_a_refusal_tells_what_is_left(service: World) -> None:
    dataset = service.add_dataset(epsilon="1.5")
    assert service.custodian.release(dataset).status_code == 202
    refusal = service.custodian.release(dataset)
    assert refusal.status_code == 409
    problem = refusal.json()
    assert problem["type"] == "/problems/budget-exceeded"
    assert problem["remaining"] == {"epsilon": "0.5", "delta": "0.000001"}
    assert (problem["scope"], problem["limited_by"]) == ("account", "epsilon")
    assert problem["largest_epsilon"] == "0.5"


def test_measurements_come_as_json_and_long_form(service: World) -> None:
    dataset = service.add_dataset()
    service.custodian.release(dataset)
    release = service.run_fit(colours(2000))
    found = service.custodian.get(f"/v1/releases/{release}/measurements").json()
    histogram = found["measurements"][0]
    assert [column["name"] for column in histogram["columns"]] == ["colour", "size"]
    assert histogram["standard_error"] > 0
    answer = service.custodian.get(f"/v1/releases/{release}/measurements", params={"format": "csv"})
    lines = list(csv.DictReader(io.StringIO(answer.text)))
    cells = sum(len(each["values"]) for each in found["measurements"])
    assert len(lines) == cells
    assert json.loads(lines[0]["columns"]) == ["colour", "size"]


def test_measurements_can_be_asked_for_conditionally_and_by_head(service: World) -> None:
    tags = set()
    for _ in range(2):
        service.custodian.release(service.add_dataset())
        path = f"/v1/releases/{service.run_fit(colours(2000))}/measurements"
        full = service.custodian.get(path)
        head = service.custodian.request("HEAD", path)
        assert (head.status_code, head.content) == (200, b"")
        for name in ("etag", "content-type", "content-disposition"):
            assert head.headers[name] == full.headers[name]
        known = {"If-None-Match": full.headers["etag"]}
        assert service.custodian.get(path, headers=known).status_code == 304
        assert (
            service.custodian.get(path, params={"format": "csv"}, headers=known).status_code == 200
        )
        tags.add(full.headers["etag"])
    assert len(tags) == 2


def test_nothing_is_published_before_the_release_succeeded(service: World) -> None:
    dataset = service.add_dataset()
    release = service.custodian.release(dataset).json()["id"]
    for part in ("measurements", "certificate", "statement"):
        answer = service.custodian.get(f"/v1/releases/{release}/{part}")
        assert answer.status_code == 409
        assert answer.headers["retry-after"]
    assert service.custodian.post(f"/v1/releases/{release}/samples", {}).status_code == 409


def test_a_repeated_key_gives_the_first_answer_and_one_charge(service: World) -> None:
    dataset = service.add_dataset()
    headers = {"Idempotency-Key": "once"}
    path = f"/v1/datasets/{dataset}/releases"
    first = service.custodian.post(path, wanted(), headers=headers)
    again = service.custodian.post(path, wanted(), headers=headers)
    assert again.status_code == first.status_code == 202
    assert again.headers["location"] == first.headers["location"]
    assert again.headers["idempotent-replayed"] == "true"
    assert again.json() == first.json()
    other = service.custodian.post(path, wanted(rows=5), headers=headers)
    assert other.status_code == 422
    assert len(service.custodian.get("/v1/releases").json()["items"]) == 1


def test_a_release_of_before_there_were_statements_has_none(service: World) -> None:
    service.custodian.release(service.add_dataset())
    # This world's runs store no statement.
    release = service.run_fit(colours(200))
    assert service.custodian.get(f"/v1/releases/{release}/certificate").status_code == 200
    assert service.custodian.get(f"/v1/releases/{release}/statement").status_code == 404

"""Datasets over HTTP: states, faults, who sees what, idempotency."""

from __future__ import annotations

import gzip
import json
import sqlite3
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import MappingProxyType
from typing import Any

import anyio
import pytest
from office import (
    CSV,
    ENTITY,
    ENTITY_SCHEMA,
    Office,
    form,
    open_office,
    public_spec,
    spec,
    upload_form,
)
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from app.routers import uploads


@pytest.fixture(scope="module")
def office(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Office]:
    folder: Path = tmp_path_factory.mktemp("office")
    with open_office(folder, max_body_bytes=4096, max_upload_bytes=100_000) as opened:
        yield opened


def pointers(answer: Any) -> set[str]:
    return {error["pointer"] for error in answer.json()["errors"]}


def test_a_declared_dataset_waits_for_its_data_and_is_ready_after_the_upload(
    office: Office,
) -> None:
    person = office.custodian
    declared = person.declare()
    assert declared.status_code == 201
    dataset_id = declared.json()["id"]
    assert declared.headers["Location"] == f"/v1/datasets/{dataset_id}"
    assert declared.json()["state"] == "awaiting_data"
    assert person.get(f"/datasets/{dataset_id}/ingest-report").status_code == 404

    sent = person.put(dataset_id)
    assert (sent.status_code, sent.json()["state"]) == (202, "ingesting")
    waiting = person.get(f"/datasets/{dataset_id}/ingest-report")
    assert (waiting.status_code, waiting.headers["Retry-After"]) == (409, "1")
    assert person.put(dataset_id).status_code == 409

    office.work()
    ready = person.dataset(dataset_id)
    assert ready["state"] == "ready"
    assert ready["custodian"]["rows"] == 3
    assert office.staged_files() == []
    assert person.put(dataset_id).status_code == 409
    report = person.report(dataset_id)
    assert (report["rows"], report["rows_read"], report["problem_count"]) == (3, 3, 0)
    assert report["file"]["format"] == "csv"


def test_a_form_uploads_in_one_request(office: Office) -> None:
    person = office.custodian
    sent = person.send_form(upload_form(CSV + "1,Cash\n"))
    assert (sent.status_code, sent.json()["state"]) == (202, "ingesting")
    assert sent.headers["Location"] == f"/v1/datasets/{sent.json()['id']}"
    office.work()
    assert person.dataset(sent.json()["id"])["custodian"]["rows"] == 4


@pytest.mark.parametrize("by", ["form", "put"])
def test_prefer_wait_holds_the_answer_until_the_ingest_is_over(office: Office, by: str) -> None:
    person = office.custodian
    content = CSV + ("2,Cash\n" if by == "form" else "2,Card\n")
    answers = []
    dataset_id = "" if by == "form" else person.declare().json()["id"]

    def send() -> None:
        if by == "form":
            answers.append(person.send_form(upload_form(content), Prefer="wait=30"))
        else:
            answers.append(person.put(dataset_id, content, headers={"Prefer": "wait=30"}))

    sender = threading.Thread(target=send)
    sender.start()
    while sender.is_alive():
        office.work()
    sender.join()
    assert answers[0].status_code == (201 if by == "form" else 200)
    assert answers[0].json()["state"] == "ready"


def test_waiting_ends_with_the_time_that_was_asked_for(office: Office) -> None:
    sent = office.custodian.send_form(upload_form(CSV + "9,Cash\n"), Prefer="wait=1")
    assert (sent.status_code, sent.json()["state"]) == (202, "ingesting")
    office.work()


def test_everything_wrong_with_a_declaration_is_told_in_one_answer(office: Office) -> None:
    bad = spec(
        name="",
        schema={"fields": [{"name": "a", "type": "integer"}, {"name": "b", "type": "nothing"}]},
        unit={"kind": "group"},
        max_total_rows=0,
        budget={"epsilon": "much"},
        file={"format": "xlsx"},
        colour="blue",
    )
    answer = office.custodian.declare(bad)
    assert answer.status_code == 422
    assert pointers(answer) >= {
        "/name",
        "/schema/fields/0/constraints/minimum",
        "/schema/fields/1/type",
        "/unit/kind",
        "/max_total_rows",
        "/budget/epsilon",
        "/file/format",
        "/colour",
    }
    assert all(error["remedy"] for error in answer.json()["errors"])


@pytest.mark.parametrize(
    ("declaration", "pointer"),
    [
        (spec(budget=None), "/budget"),
        (spec(unit=None), "/unit"),
        (spec(visibility="public"), "/budget"),
        (public_spec(accountant="basic"), "/accountant"),
        (public_spec(delta_for_approximate=0), "/delta_for_approximate"),
        (public_spec(shares_budget_with="ds_a"), "/shares_budget_with"),
        (spec(shares_budget_with="ds_a"), "/budget"),
        (spec(budget=None, shares_budget_with="ds_a"), "/shares_budget_with"),
        (spec(unit=ENTITY), "/schema/fields"),
        (spec(schema=ENTITY_SCHEMA), "/schema/fields/0/role"),
        (spec(delta_for_approximate="1e-6"), "/delta_for_approximate"),
        (spec(max_total_rows=True), "/max_total_rows"),
        (spec(max_total_rows=1.5), "/max_total_rows"),
        (spec(name="a\u0000b"), "/name"),
        (spec(new_population={"reason": ""}), "/new_population/reason"),
        (spec(accountant="pld"), "/accountant"),
        ([], ""),
        ({}, "/name"),
    ],
)
def test_a_faulty_declaration_is_refused_at_the_field(
    office: Office, declaration: Any, pointer: str
) -> None:
    answer = office.custodian.call("POST", "/datasets", json=declaration)
    assert answer.status_code == 422, answer.text
    assert pointer in pointers(answer)


def test_null_is_the_same_as_omitted(office: Office) -> None:
    field = {**spec()["schema"]["fields"][0], "bins": None, "special": None, "title": None}
    answer = office.custodian.call(
        "POST",
        "/datasets",
        json={
            **spec(schema={"fields": [field], "missingValues": None}),
            "max_total_rows": None,
            "accountant": None,
            "shares_budget_with": None,
        },
    )
    assert answer.status_code == 201, answer.text
    assert answer.json()["max_total_rows"] == office.settings.max_total_rows


def test_a_field_that_was_only_proposed_must_be_confirmed(office: Office) -> None:
    field = spec()["schema"]["fields"][0]
    refused = office.custodian.declare(spec(schema={"fields": [{**field, "proposed": True}]}))
    assert pointers(refused) == {"/schema/fields/0/proposed"}
    taken = office.custodian.declare(spec(schema={"fields": [{**field, "proposed": False}]}))
    assert taken.status_code == 201
    assert "proposed" not in json.dumps(taken.json()["schema"])


@pytest.mark.parametrize(
    ("body", "status", "pointer"),
    [
        (form(("file", CSV), ("spec", json.dumps(spec()))), 422, "/file"),
        (form(("spec", json.dumps(spec()))), 422, "/file"),
        (form(("file", CSV)), 422, "/file"),
        (form(("spec", json.dumps(spec())), ("file", CSV), ("file", CSV)), 422, "/file"),
        (form(("spec", json.dumps(spec())), ("spec", "{}"), ("file", CSV)), 422, "/spec"),
        (form(("spec", json.dumps(spec())), ("file", "")), 422, "/file"),
        (form(("extra", "1"), ("spec", json.dumps(spec())), ("file", CSV)), 422, "/extra"),
        (form(("spec", json.dumps(spec(name=""))), ("file", CSV)), 422, "/name"),
        (form(("spec", "{"), ("file", CSV)), 400, None),
        (form(("spec", '{"budget": NaN}'), ("file", CSV)), 400, None),
        (form(("spec", " " * 5000), ("file", CSV)), 413, None),
        (upload_form(CSV + "1,Cash\n" * 20_000), 413, None),
        (upload_form()[:-20], 400, None),
        (b"", 400, None),
        (b"--other\r\n\r\n", 400, None),
        (b"--edge\r\nContent-Disposition: form-data\r\n\r\nx\r\n--edge--\r\n", 400, None),
        (b"--edge\r\n" + b"A: b\r\n" * 50 + b"\r\nx\r\n--edge--\r\n", 400, None),
        (b"--edge\r\nA: " + b"b" * 9000 + b"\r\n\r\nx\r\n--edge--\r\n", 400, None),
    ],
)
def test_a_faulty_form_is_refused_and_leaves_nothing(
    office: Office, body: bytes, status: int, pointer: str | None
) -> None:
    before = len(office.custodian.get("/datasets?limit=200").json()["items"])
    answer = office.custodian.send_form(body)
    assert answer.status_code == status, answer.text
    assert answer.headers["Content-Type"] == "application/problem+json"
    if pointer is not None:
        assert pointers(answer) == {pointer}
    assert len(office.custodian.get("/datasets?limit=200").json()["items"]) == before
    assert office.staged_files() == []


@pytest.mark.parametrize(
    ("content_type", "status"),
    [
        ("text/csv", 415),
        ("multipart/mixed; boundary=edge", 415),
        ("multipart/form-data", 400),
        ("multipart/form-data; boundary=" + "b" * 300, 400),
    ],
)
def test_other_media_types_are_refused(office: Office, content_type: str, status: int) -> None:
    answer = office.custodian.send_form(upload_form(), **{"Content-Type": content_type})
    assert answer.status_code == status


def test_raw_uploads_are_limited_and_not_forms(office: Office) -> None:
    dataset_id = office.custodian.declare().json()["id"]
    assert office.custodian.put(dataset_id, b"x" * 100_001).status_code == 413

    async def unsized() -> AsyncIterator[bytes]:
        for _ in range(110):
            yield b"x" * 1000

    assert office.custodian.put(dataset_id, unsized()).status_code == 413  # type: ignore[arg-type]
    assert office.custodian.put(dataset_id, b"").status_code == 422
    form_type = {"Content-Type": "multipart/form-data; boundary=edge"}
    assert office.custodian.put(dataset_id, upload_form(), headers=form_type).status_code == 415
    assert office.custodian.put(dataset_id, CSV, params={"format": "xlsx"}).status_code == 422
    assert office.custodian.dataset(dataset_id)["state"] == "awaiting_data"
    assert office.staged_files() == []


@pytest.mark.parametrize("shape", ["bom", "gzip", "semicolons"])
def test_the_file_is_found_out_and_reported(office: Office, shape: str) -> None:
    content = {
        "bom": b"\xef\xbb\xbf" + CSV.encode() + b"5,Cash\n",
        "gzip": gzip.compress(CSV.encode() + b"6,Cash\n"),
        "semicolons": CSV.replace(",", ";").encode() + b"7;Cash\n",
    }[shape]
    made = office.uploaded(content)
    assert made["state"] == "ready"
    found = office.custodian.report(made["id"])["file"]
    assert found["byte_order_mark"] is (shape == "bom")
    assert found["compression"] == ("gzip" if shape == "gzip" else None) or shape != "gzip"
    assert found["delimiter"] == (";" if shape == "semicolons" else ",")


def test_the_same_key_gives_the_same_dataset(office: Office) -> None:
    person = office.custodian
    key = {"Idempotency-Key": "once"}
    first = person.declare(spec(), **key)
    again = person.declare(spec(), **key)
    assert (first.status_code, again.status_code) == (201, 201)
    assert again.json() == first.json()
    assert again.headers["Location"] == first.headers["Location"]
    assert again.headers["Idempotent-Replayed"] == "true"
    assert "Idempotent-Replayed" not in first.headers
    assert person.declare(spec(name="other"), **key).status_code == 422


def test_a_repeated_form_counts_its_file_as_part_of_the_body(office: Office) -> None:
    person = office.custodian
    key = {"Idempotency-Key": "form"}
    first = person.send_form(upload_form(CSV + "10,Cash\n"), **key)
    again = person.send_form(upload_form(CSV + "10,Cash\n"), **key)
    assert (first.status_code, again.status_code) == (202, 202)
    assert again.json()["id"] == first.json()["id"]
    assert person.send_form(upload_form(CSV + "11,Cash\n"), **key).status_code == 422
    assert len(office.staged_files()) == 1
    office.work()


@pytest.mark.parametrize("by", ["json", "form", "put"])
def test_a_commit_that_fails_is_told_and_leaves_nothing(
    office: Office, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    person = office.custodian
    dataset_id = person.declare().json()["id"]
    before = person.get("/datasets?limit=200").json()

    def fails(_: Session) -> None:
        raise OperationalError("COMMIT", {}, sqlite3.OperationalError("disk I/O error"))

    with monkeypatch.context() as broken:
        broken.setattr(Session, "commit", fails)
        answer = {
            "json": person.declare,
            "form": lambda: person.send_form(upload_form(CSV + "15,Cash\n")),
            "put": lambda: person.put(dataset_id),
        }[by]()
    assert answer.status_code == 503
    assert "Retry-After" in answer.headers
    assert person.get("/datasets?limit=200").json() == before
    assert office.staged_files() == []


def test_only_custodians_create_and_others_see_no_dataset_before_it_is_ready(
    office: Office,
) -> None:
    analyst, stranger = office.person(is_analyst=True), office.person(is_custodian=True)
    admin = office.person(is_admin=True)
    assert analyst.declare().status_code == 403
    dataset_id = office.custodian.declare().json()["id"]
    office.grant(dataset_id, analyst)
    for person in (analyst, stranger, admin):
        assert person.get(f"/datasets/{dataset_id}").status_code == 404
        assert person.put(dataset_id).status_code == 404
    office.custodian.put(dataset_id, CSV + "12,Cash\n")
    office.work()
    seen = analyst.dataset(dataset_id)
    assert (seen["role"], seen["custodian"]) == ("analyst", None)
    assert seen["grant"]["show_budget"] is False
    assert analyst.get(f"/datasets/{dataset_id}/schema").json() == seen["schema"]
    assert analyst.get(f"/datasets/{dataset_id}/ingest-report").status_code == 403
    assert analyst.call("DELETE", f"/datasets/{dataset_id}").status_code == 403
    renamed = {"name": "mine"}
    assert analyst.call("PATCH", f"/datasets/{dataset_id}", json=renamed).status_code == 403
    assert stranger.get(f"/datasets/{dataset_id}").status_code == 404
    assert [item["id"] for item in analyst.get("/datasets").json()["items"]] == [dataset_id]


def test_what_an_analyst_sees_does_not_depend_on_the_rows(office: Office) -> None:
    analyst = office.person(is_analyst=True)
    answers = []
    for rows in (5, 6):
        made = office.uploaded(CSV + "13,Cash\n" * rows, name="neighbour")
        office.grant(made["id"], analyst)
        answer = analyst.get(f"/datasets/{made['id']}")
        body = {**answer.json(), "id": "", "created_at": "", "grant": None}
        answers.append((body, answer.headers["Content-Length"]))
    assert answers[0] == answers[1]


def test_a_public_dataset_is_readable_by_all_once_ready(office: Office) -> None:
    reader = office.person(is_analyst=True)
    answer = office.custodian.declare(public_spec())
    dataset_id = answer.json()["id"]
    assert answer.json()["custodian"]["account_id"] is None
    assert reader.get(f"/datasets/{dataset_id}").status_code == 404
    office.custodian.put(dataset_id, CSV + "14,Cash\n" * 3)
    office.work()
    seen = reader.dataset(dataset_id)
    assert (seen["role"], seen["grant"], seen["custodian"]) == ("reader", None, None)


def test_lists_page_through_newest_first(office: Office) -> None:
    person = office.person(is_custodian=True)
    made = [person.declare().json()["id"] for _ in range(3)]
    first = person.get("/datasets?limit=2").json()
    second = person.get(f"/datasets?limit=2&cursor={first['next']}").json()
    found = [item["id"] for item in first["items"] + second["items"]]
    public = [item for item in found if item not in made]
    assert [item for item in found if item in made] + public == found or public
    assert [item for item in found if item in made][:2] == made[:0:-1]


def test_a_dataset_can_be_renamed(office: Office) -> None:
    dataset_id = office.custodian.declare().json()["id"]
    answer = office.custodian.call("PATCH", f"/datasets/{dataset_id}", json={"name": " trips "})
    assert (answer.status_code, answer.json()["name"]) == (200, "trips")
    bad = office.custodian.call("PATCH", f"/datasets/{dataset_id}", json={"state": "ready"})
    assert pointers(bad) == {"/name", "/state"}


@pytest.mark.parametrize("path", ["/v1/datasets", "/v1/datasets/ds_a/data"])
def test_a_bad_key_is_refused_before_a_byte_of_the_body_is_read(office: Office, path: str) -> None:
    """The body never comes: whoever reads it first waits for ever."""
    sent: list[dict[str, Any]] = []
    asked: list[bool] = []

    async def receive() -> dict[str, Any]:
        asked.append(True)
        await anyio.sleep_forever()
        raise AssertionError

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "PUT" if path.endswith("data") else "POST",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "scheme": "http",
        "server": ("test", 80),
        "client": ("127.0.0.1", 1),
        "headers": [
            (b"authorization", b"Bearer hk_" + b"x" * 40),
            (b"content-type", b"multipart/form-data; boundary=edge"),
            (b"content-length", b"1000000"),
        ],
        "state": {},
    }

    async def ask() -> None:
        with anyio.fail_after(5):
            await office.http.app(scope, receive, send)  # type: ignore[arg-type]

    anyio.run(ask)
    assert sent[0]["status"] == 401
    assert asked == []


def test_an_early_refusal_takes_in_only_a_little_of_what_still_comes() -> None:
    taken = []

    class Request:
        headers = MappingProxyType({"host": "test"})

        async def stream(self) -> Any:
            while True:
                taken.append(1)
                yield b"x" * 2**20

    async def refuse() -> None:
        async with uploads.draining_before_refusal(Request()):  # type: ignore[arg-type]
            raise uploads.TooLarge("too large")

    with pytest.raises(uploads.TooLarge):
        anyio.run(refuse)
    assert 1 <= len(taken) <= uploads.DRAINED_BYTES / 2**20 + 1


def test_the_api_page_describes_both_ways_to_create(office: Office) -> None:
    page = office.http.request("GET", "/openapi.json").json()
    body = page["paths"]["/v1/datasets"]["post"]["requestBody"]["content"]
    assert set(body) == {"application/json", "multipart/form-data"}
    fields = body["application/json"]["schema"]["properties"]
    assert all("description" in field for name, field in fields.items() if name != "name")
    assert "$ref" not in json.dumps(body)
    data = page["paths"]["/v1/datasets/{dataset_id}/data"]["put"]["requestBody"]["content"]
    assert "text/csv" in data


FOUND = {"fields": [{"name": "town", "type": "string", "values": "discover", "other": "Other"}]}


def delta_notes(made: dict[str, Any]) -> list[dict[str, str]]:
    """Without what is said of earlier datasets of the same columns."""
    return [note for note in made["custodian"]["notes"] if note["pointer"] != "/budget"]


@pytest.mark.parametrize(
    ("terms", "refused"),
    [
        ({"budget": {"epsilon": 1, "delta": 0}}, True),
        ({"budget": {"epsilon": 1, "delta": 1e-6}}, False),
        ({"budget": {"epsilon": 1, "delta": 1e-6}, "accountant": "zcdp"}, True),
        (
            {
                "budget": {"epsilon": 1, "delta": 1e-6},
                "accountant": "zcdp",
                "delta_for_approximate": 2e-7,
            },
            False,
        ),
    ],
    ids=["pure", "approximate", "zcdp", "zcdp with delta set aside"],
)
def test_values_to_discover_without_delta_are_noted_at_upload_with_the_call_that_mends_it(
    office: Office, terms: dict[str, Any], refused: bool
) -> None:
    made = office.custodian.send_form(upload_form("town\nBern\n", schema=FOUND, **terms)).json()
    notes = delta_notes(made)
    assert [note["pointer"] for note in notes] == ["/schema/fields/0/values"] * refused
    joined = office.custodian.declare(
        spec(schema=FOUND, budget=None, shares_budget_with=made["id"])
    ).json()
    assert len(delta_notes(joined)) == refused
    for note in notes:
        path = note["remedy"].split("PUT /v1")[1].split(" ")[0]
        body = json.loads(note["remedy"].split("with ")[1].split(" and If-Match")[0])
        tag = office.custodian.get(path).headers["ETag"]
        answer = office.custodian.call("PUT", path, json=body, headers={"If-Match": tag})
        assert answer.status_code == 200, answer.text
    assert delta_notes(office.custodian.dataset(made["id"])) == []


def test_a_delta_that_protects_little_is_questioned_with_the_call_that_lowers_it(
    office: Office,
) -> None:
    made = office.custodian.declare(spec(budget={"epsilon": 1, "delta": 0.5})).json()
    (note,) = delta_notes(made)
    assert (note["pointer"], "0.5" in note["message"]) == ("/budget/delta", True)
    path = f"/datasets/{made['id']}/budget"
    body = json.loads(note["remedy"].split("with ")[1].split(" and If-Match")[0])
    tag = office.custodian.get(path).headers["ETag"]
    answer = office.custodian.call("PUT", path, json=body, headers={"If-Match": tag})
    assert answer.status_code == 200, answer.text
    assert delta_notes(office.custodian.dataset(made["id"])) == []


def test_a_dictionary_with_declared_values_alone_needs_no_delta(office: Office) -> None:
    assert delta_notes(office.custodian.declare().json()) == []

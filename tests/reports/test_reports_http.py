"""Reports over HTTP: who reads which part, and when."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from release_world import BY_ROW, Client, World
from reported import NOTICE, people, published, released, reported, uploaded
from sqlalchemy import select

from app.engine.privacy.source import ArraySource
from app.engine.schema import PrivacyUnit, Schema
from app.queue.models import JobRow
from app.reports.models import ReportRow
from app.sandbox.child import ChildHost
from app.security.models import PrincipalRow
from app.storage.models import ChunkRow
from app.storage.reclaim import reclaim

ROWS = "colour,size,day\n" + "red,1,2024-01-01\n" * 6 + "=green,2,2024-01-02\n" * 4


@pytest.fixture
def release(service: World, host: ChildHost) -> str:
    """Of Ana, who may use the custodian's dataset."""
    service.add_analyst("ana")
    dataset = uploaded(service, host, ROWS)
    service.grant(dataset, "ana")
    return published(service, dataset, "ana")


def dataset_of(service: World, release: str) -> str:
    return f"/v1/datasets/{service.custodian.get(release).json()['dataset_id']}"


def with_roles(service: World, name: str, **roles: bool) -> Client:
    client = service.add_analyst(name)
    with service.database.write() as session:
        person = session.scalars(select(PrincipalRow).filter_by(name=name)).one()
        for role, held in roles.items():
            setattr(person, role, held)
    return client


def kept(service: World, kind: type[Any]) -> list[Any]:
    with service.database.read() as session:
        return list(session.scalars(select(kind)))


def test_the_public_part_is_there_with_the_release(service: World, release: str) -> None:
    for who in ("ana", "custodian"):
        found = service.client(who).get(f"{release}/report")
        assert found.status_code == 200
        assert found.json() == {
            "release_id": release.rpartition("/")[2],
            "dataset_id": dataset_of(service, release).rpartition("/")[2],
            "state": "succeeded",
            "public": {"expected_errors": [], "repairs": None},
            "exact": None,
            "failure": None,
            "private_detail": None,
            "created_at": None,
            "finished_at": None,
        }


def test_the_custodian_asks_for_the_exact_part_and_reads_it(
    service: World, host: ChildHost, release: str
) -> None:
    asked = service.custodian.post(f"{release}/report")
    assert asked.status_code == 202
    assert asked.headers["Location"] == f"{release}/report"
    assert (asked.json()["state"], asked.json()["exact"]) == ("queued", None)
    service.work(host)
    found = service.custodian.get(asked.headers["Location"]).json()
    assert found["state"] == "succeeded"
    assert found["created_at"] < found["finished_at"]
    assert found["exact"]["notice"] == NOTICE
    assert found["exact"]["rows"]["real"] == 10
    assert [each["columns"] for each in found["exact"]["measured"]] == [["colour", "size"]]
    assert 0 < found["exact"]["measured"][0]["distance"] <= 1
    (audited,) = [
        entry
        for entry in service.custodian.get("/v1/audit").json()["items"]
        if entry["action"].startswith("report")
    ]
    assert (audited["action"], audited["detail"]) == ("report.request", {})


# Words, since a short number occurs in hashes and times by chance.
PLANTED = "the planted 4711th row"


def fails(*_: Any) -> None:
    raise RuntimeError(f"{PLANTED} has no colour")


def test_nobody_but_the_custodian_can_tell_whether_there_is_an_exact_part(
    service: World, host: ChildHost, release: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Never asked for, queued, running, made, failed and dropped: the same bytes."""
    ana = service.client("ana")
    never = ana.get(f"{release}/report")

    def unchanged() -> bool:
        now_seen = ana.get(f"{release}/report")
        ids = {"X-Request-Id", "Date"}
        headers = [
            {name: value for name, value in answer.headers.items() if name not in ids}
            for answer in (never, now_seen)
        ]
        return (now_seen.status_code, now_seen.content, headers[1]) == (
            200,
            never.content,
            headers[0],
        )

    service.custodian.post(f"{release}/report")
    assert unchanged()
    seen_while_running = []

    def looked_at(_: Any) -> list[int]:
        seen_while_running.append(unchanged())
        return [10]

    monkeypatch.setattr("app.reports.exact.ExactRows._lengths", looked_at)
    service.work(host)
    assert seen_while_running == [True]
    assert service.custodian.get(f"{release}/report").json()["exact"] is not None
    assert unchanged()
    monkeypatch.setattr("app.reports.exact.ExactRows._lengths", fails)
    service.custodian.post(f"{release}/report")
    service.work(host)
    assert service.custodian.get(f"{release}/report").json()["state"] == "failed"
    assert unchanged()
    assert service.custodian.request("DELETE", f"{release}/report").status_code == 204
    assert unchanged()


def test_a_failure_tells_its_cause_to_the_custodian_alone(
    service: World,
    host: ChildHost,
    release: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    caplog.set_level("DEBUG")
    monkeypatch.setattr("app.reports.exact.ExactRows._lengths", fails)
    service.custodian.post(f"{release}/report")
    service.work(host)
    found = service.custodian.get(f"{release}/report").json()
    assert (found["state"], found["exact"]) == ("failed", None)
    assert PLANTED in found["private_detail"]
    assert found["failure"].startswith("The exact part could not be made.")
    ana, dataset = service.client("ana"), dataset_of(service, release)
    for path in (release, f"{release}/report", f"{release}/events", dataset, f"{dataset}/ledger"):
        assert PLANTED.encode() not in ana.get(path).content
    assert PLANTED.encode() not in service.http.get("/metrics").content
    assert PLANTED.encode() not in service.custodian.get("/v1/audit").content
    written = capfd.readouterr()
    assert PLANTED not in caplog.text + written.out + written.err
    assert any("report" in record.getMessage() for record in caplog.records)


def test_a_planted_value_in_the_figures_reaches_no_log(
    service: World, host: ChildHost, caplog: pytest.LogCaptureFixture
) -> None:
    """4711 rows: the number is in the exact part and in nothing else that is kept of the job."""
    caplog.set_level("DEBUG")
    dataset = uploaded(service, host, "colour,size,day\n" + "red,1,2024-01-01\n" * 4711)
    caplog.clear()
    release = published(service, dataset)
    assert reported(service, host, release)["exact"]["rows"]["real"] == 4711
    assert "4711" not in caplog.text
    with service.database.read() as session:
        jobs = session.execute(select(JobRow.__table__).where(JobRow.kind == "report")).all()
    assert len(jobs) == 1
    assert "4711" not in str(jobs)


def test_everyone_else_is_kept_from_the_exact_part(
    service: World, host: ChildHost, release: str
) -> None:
    reported(service, host, release)
    admin = with_roles(service, "admin-only", is_admin=True, is_analyst=False)
    other = with_roles(service, "other-custodian", is_custodian=True)
    service.grant(dataset_of(service, release).rpartition("/")[2], "other-custodian")
    for stranger in (admin, other):
        assert stranger.get(f"{release}/report").status_code == 404
        assert stranger.post(f"{release}/report").status_code == 404
        assert stranger.request("DELETE", f"{release}/report").status_code == 404
    ana = service.client("ana")
    assert ana.post(f"{release}/report").status_code == 403
    assert ana.request("DELETE", f"{release}/report").status_code == 403
    theirs = published(service, dataset_of(service, release).rpartition("/")[2], "other-custodian")
    reported(service, host, theirs)
    assert other.get(f"{theirs}/report").json()["exact"] is None
    assert other.post(f"{theirs}/report").status_code == 403
    assert service.http.get(f"{release}/report").status_code == 401


def test_the_owner_of_a_dataset_who_is_no_custodian_any_more_reads_nothing_exact(
    service: World, host: ChildHost, release: str
) -> None:
    own = published(service, dataset_of(service, release).rpartition("/")[2])
    reported(service, host, own)
    with service.database.write() as session:
        session.scalars(select(PrincipalRow).filter_by(name="admin")).one().is_custodian = False
    found = service.custodian.get(f"{own}/report").json()
    assert (found["state"], found["exact"], found["created_at"]) == ("succeeded", None, None)
    assert service.custodian.get(f"{release}/report").status_code == 404


def test_a_repeated_request_makes_nothing_twice(
    service: World, host: ChildHost, release: str
) -> None:
    at, key = f"{release}/report", {"Idempotency-Key": "once"}
    first = service.custodian.post(at, headers=key)
    again = service.custodian.post(at, headers=key)
    assert (first.status_code, again.status_code) == (202, 202)
    assert again.headers["Idempotent-Replayed"] == "true"
    assert again.headers["Location"] == first.headers["Location"]
    assert len(kept(service, ReportRow)) == 1
    waiting = service.custodian.post(at)
    assert (waiting.status_code, waiting.json()["type"]) == (409, "/problems/not-ready")
    assert "Retry-After" in waiting.headers
    service.work(host)
    done = service.custodian.post(at, headers=key)
    assert (done.status_code, done.json()["state"]) == (202, "succeeded")
    assert done.json()["exact"]["notice"] == NOTICE


def test_a_new_report_takes_the_place_of_the_one_before(
    service: World, host: ChildHost, release: str
) -> None:
    reported(service, host, release)
    (before,) = kept(service, ReportRow)
    asked = service.custodian.post(f"{release}/report").json()
    assert (asked["state"], asked["exact"]) == ("queued", None)
    service.work(host)
    (after,) = kept(service, ReportRow)
    assert before.id != after.id
    collections = {chunk.collection for chunk in kept(service, ChunkRow)}
    assert after.id in collections
    assert before.id not in collections


def test_the_exact_part_can_be_dropped(service: World, host: ChildHost, release: str) -> None:
    reported(service, host, release)
    for _ in range(2):
        assert service.custodian.request("DELETE", f"{release}/report").status_code == 204
        assert kept(service, ReportRow) == []
        assert not any(each.part == "exact" for each in kept(service, ChunkRow))
    found = service.custodian.get(f"{release}/report").json()
    assert (found["state"], found["exact"]) == ("succeeded", None)


def test_a_dropped_report_that_waits_is_never_made(
    service: World, host: ChildHost, release: str
) -> None:
    service.custodian.post(f"{release}/report")
    service.custodian.request("DELETE", f"{release}/report")
    service.work(host)
    assert [job.state for job in kept(service, JobRow) if job.kind == "report"] == ["cancelled"]
    assert kept(service, ReportRow) == []


def drop(service: World, release: str) -> None:
    assert service.custodian.request("DELETE", f"{release}/report").status_code == 204


def erase(service: World, release: str) -> None:
    answer = service.custodian.request("DELETE", dataset_of(service, release))
    assert answer.json()["state"] == "erased"


@pytest.mark.parametrize("stop", [drop, erase])
def test_a_running_comparison_stops_and_stores_nothing(
    service: World,
    host: ChildHost,
    release: str,
    stop: Callable[[World, str], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupted(*_: Any) -> list[int]:
        stop(service, release)
        return [10]

    monkeypatch.setattr("app.reports.exact.ExactRows._lengths", interrupted)
    service.custodian.post(f"{release}/report")
    service.work(host)
    assert [job.state for job in kept(service, JobRow) if job.kind == "report"] == ["cancelled"]
    assert kept(service, ReportRow) == []
    assert not any(each.part == "exact" for each in kept(service, ChunkRow))


@pytest.mark.parametrize("end", [drop, erase])
def test_what_was_erased_is_in_no_file_any_more(
    service: World, host: ChildHost, end: Callable[[World, str], None]
) -> None:
    dataset = uploaded(service, host, "colour,size,day\n" + "red,1,2024-01-01\n" * 4711)
    release = published(service, dataset)
    reported(service, host, release)

    def holders() -> list[str]:
        files = [path for path in service.settings.data.rglob("*") if path.is_file()]
        return [path.name for path in files if b'{"real":4711' in path.read_bytes()]

    assert holders() != []
    end(service, release)
    assert holders() == []


def ask_again(service: World, release: str) -> None:
    assert service.custodian.post(f"{release}/report").status_code == 202
    reclaim(service.database)


@pytest.mark.parametrize("end", [drop, erase, ask_again])
def test_why_an_erased_comparison_failed_is_in_no_file_any_more(
    service: World,
    host: ChildHost,
    release: str,
    end: Callable[[World, str], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The trace of a failure may quote what was compared."""
    monkeypatch.setattr("app.reports.exact.ExactRows._lengths", fails)
    service.custodian.post(f"{release}/report")
    service.work(host)

    def holders() -> list[str]:
        service.database.checkpoint()
        files = [path for path in service.settings.data.rglob("*") if path.is_file()]
        return [path.name for path in files if PLANTED.encode() in path.read_bytes()]

    assert holders() != []
    end(service, release)
    assert holders() == []
    assert service.custodian.get(f"{release}/report").json()["private_detail"] is None


def test_damaged_figures_are_told_of_and_can_be_made_again(
    service: World, host: ChildHost, release: str
) -> None:
    reported(service, host, release)
    with service.database.write() as session:
        (chunk,) = session.scalars(select(ChunkRow).filter_by(part="exact"))
        chunk.data = bytes([chunk.data[0] ^ 1]) + chunk.data[1:]
    refused = service.custodian.get(f"{release}/report")
    assert refused.status_code == 409
    assert "damaged" in refused.json()["detail"]
    assert service.client("ana").get(f"{release}/report").status_code == 200
    assert reported(service, host, release)["exact"]["notice"] == NOTICE


@pytest.mark.parametrize("body", [b'{"seed": 1}', b"{}", b"x" * 100_000])
def test_what_takes_no_body_refuses_one(service: World, release: str, body: bytes) -> None:
    refused = service.custodian.request("POST", f"{release}/cancel", content=body)
    assert (refused.status_code, refused.json()["type"]) == (422, "/problems/invalid")
    assert "takes no body" in refused.json()["detail"]
    plain = service.custodian.request("POST", f"{release}/cancel", content=b"")
    assert plain.status_code == 409


@pytest.mark.parametrize("body", [b"", b"{}", b"null", b'{"target": null}'])
def test_a_report_needs_no_choice(service: World, release: str, body: bytes) -> None:
    headers = {"Content-Type": "application/json"}
    asked = service.custodian.request("POST", f"{release}/report", content=body, headers=headers)
    assert asked.status_code == 202, asked.text


def test_a_report_is_erased_with_its_dataset_and_cannot_be_made_any_more(
    service: World, host: ChildHost, release: str
) -> None:
    reported(service, host, release)
    before = service.client("ana").get(f"{release}/report").content
    erase(service, release)
    assert kept(service, ReportRow) == []
    assert not any(each.part == "exact" for each in kept(service, ChunkRow))
    found = service.custodian.get(f"{release}/report").json()
    assert (found["state"], found["exact"], found["private_detail"]) == ("succeeded", None, None)
    assert service.client("ana").get(f"{release}/report").content == before
    refused = service.custodian.post(f"{release}/report")
    assert refused.status_code == 409
    assert "erased" in refused.json()["detail"]


def test_a_withdrawn_release_has_no_report(service: World, release: str) -> None:
    path = dataset_of(service, release)
    service.custodian.request("DELETE", f"{path}?releases=true")
    for who in ("ana", "custodian"):
        assert service.client(who).get(f"{release}/report").status_code == 409


def test_only_a_release_that_succeeded_has_a_report(service: World, release: str) -> None:
    dataset = dataset_of(service, release).rpartition("/")[2]
    queued = f"/v1/releases/{service.custodian.release(dataset).json()['id']}"
    for ask in (service.custodian.get, service.custodian.post):
        waiting = ask(f"{queued}/report")
        assert (waiting.status_code, waiting.json()["type"]) == (409, "/problems/not-ready")
        assert "Retry-After" in waiting.headers
    service.custodian.post(f"{queued}/cancel")
    for ask in (service.custodian.get, service.custodian.post):
        ended = ask(f"{queued}/report")
        assert (ended.status_code, ended.json()["type"]) == (409, "/problems/conflict")
    assert service.custodian.get("/v1/releases/rl_none/report").status_code == 404
    assert service.custodian.post("/v1/releases/rl_none/report").status_code == 404


def test_a_report_costs_nothing(service: World, host: ChildHost, release: str) -> None:
    path = dataset_of(service, release)
    before = service.custodian.get(f"{path}/budget").json(), kept_ledger(service, path)
    reported(service, host, release)
    assert (service.custodian.get(f"{path}/budget").json(), kept_ledger(service, path)) == before


def kept_ledger(service: World, path: str) -> Any:
    return service.custodian.get(f"{path}/ledger").json()


def test_a_whole_run_with_next_to_no_noise_has_next_to_no_error(
    service: World, host: ChildHost
) -> None:
    rows = "id,colour,size,day\n" + "".join(
        f"p{person},{colour},{person % 5},2024-01-{1 + person:02d}\n"
        for person in range(20)
        for colour in ("red", "=green")
    )
    release = released(service, host, people(service, host, rows), params={"columns": ["size"]})
    exact = reported(service, host, release)["exact"]
    assert exact["rows"] == {"real": 40, "synthetic": 40}
    assert exact["columns"] == [{"columns": ["size"], "cells": 6, "distance": 0.0}]
    assert (exact["entities"]["real"], exact["entities"]["synthetic"]) == (20, 20)
    assert exact["left_out"] == ["columns that the release does not model: colour, day"]


def arrays(codes: dict[str, list[int]]) -> dict[str, np.ndarray[Any, Any]]:
    return {name: np.array(column) for name, column in codes.items()}


def test_aggregate_seeded_tells_of_its_combinations(service: World, host: ChildHost) -> None:
    codes = {"colour": [0] * 6 + [1] * 4, "size": [1] * 6 + [2] * 4, "day": [0] * 10}
    release = published(
        service,
        uploaded(service, host, ROWS),
        rows=ArraySource(Schema.parse(BY_ROW), PrivacyUnit("row"), arrays(codes)),
        synthesizer="aggregate_seeded",
        params={"columns": ["colour", "size"], "reporting_length": 2},
        guarantee={"epsilon": "100000", "delta": "0.00001"},
    )
    found = reported(service, host, release)["exact"]["combinations"]
    exactly = {"suppressed": 0.0, "fabricated": 0.0, "mean_error": 0.0, "combination_error": 0.0}
    assert (
        found["aggregates"]
        == found["rows"]
        == [
            {"length": 1, "original": 4, "reported": 4, "mean_count": 5.0, **exactly},
            {"length": 2, "original": 2, "reported": 2, "mean_count": 5.0, **exactly},
        ]
    )


def test_a_deletion_leaves_reports_of_others_alone(service: World, host: ChildHost) -> None:
    first, second = (
        published(service, uploaded(service, host, ROWS + f"red,{extra},2024-01-09\n"))
        for extra in (3, 4)
    )
    for release in (first, second):
        reported(service, host, release)
    erase(service, first)
    assert service.custodian.get(f"{second}/report").json()["exact"] is not None


CHOICES = {
    "target": "colour",
    "regression": {"outcome": "size", "predictors": ["colour"]},
    "subgroups": ["colour"],
}


def test_the_custodian_chooses_what_to_evaluate(service: World, host: ChildHost) -> None:
    rows = "".join(
        f"{colour},{size % 5},2024-01-{1 + size:02d}\n"
        for size in range(30)
        for colour in ("red", "=green")
    )
    release = released(service, host, uploaded(service, host, "colour,size,day\n" + rows))
    asked = service.custodian.post(f"{release}/report", CHOICES)
    assert asked.status_code == 202, asked.text
    service.work(host)
    exact = service.custodian.get(f"{release}/report").json()["exact"]
    assert exact["notice"] == NOTICE
    found = exact["evaluation"]
    assert found["not_made"] == []
    assert found["propensity"]["used"] == {"real": 60, "synthetic": 60}
    assert found["prediction"]["target"] == "colour"
    assert found["regression"]["outcome"] == "size"
    # There is next to no noise, so both fits are the same.
    assert found["regression"]["mean_overlap"] > 0.99
    assert found["regression"]["dropped"] == ["colour = b,lue"]
    assert {each["distance"] for each in found["subgroups"]["worst"]} == {0.0}
    (matches,) = found["real_rows"]["matches"]
    assert matches["synthetic_in_all"]["matching"] == 60
    # Nothing is chosen for the next one.
    found = reported(service, host, release)["exact"]["evaluation"]
    assert (found["prediction"], found["regression"], found["subgroups"]) == (None, None, None)
    assert found["propensity"] is not None


def test_a_choice_that_does_not_fit_the_release_is_refused(service: World, host: ChildHost) -> None:
    dataset = uploaded(service, host, ROWS)
    release = released(service, host, dataset, params={"columns": ["size"]})

    def refused(**body: Any) -> list[str]:
        answer = service.custodian.post(f"{release}/report", body)
        assert (answer.status_code, answer.json()["type"]) == (422, "/problems/invalid")
        return [f"{each['pointer']} {each['remedy']}" for each in answer.json()["errors"]]

    assert refused(target="day") == ["/target Name one of `size`."]
    assert refused(target="size")[0].startswith("/target Leave it out")
    assert refused(subgroups=["ghost"]) == ["/subgroups/0 Name one of `size`."]
    assert refused(aim="size") == ["/aim Remove the field, or check its spelling."]
    assert service.custodian.get(f"{release}/report").json()["created_at"] is None

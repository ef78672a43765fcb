"""Cancelling: what is given back, what is not, and what everybody reads."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
from pydantic import SecretStr
from release_world import World, colours, world
from sqlalchemy import select, update

from app.datasets import private_facts
from app.datasets.models import DatasetRow
from app.jobs.run import run
from app.jobs.shutdown import Shutdown
from app.jobs.subjects import OUTCOMES
from app.ledger.models import AccountRow
from app.queue import jobs
from app.queue.context import JobContext
from app.releases import service as life
from app.storage.encryption import Keyring


def remaining(service: World, dataset: str) -> str:
    """What the next release may cost, by the refusal of one too large."""
    problem = service.custodian.release(dataset, guarantee={"epsilon": "1000"}).json()
    return str(problem["remaining"]["epsilon"])


def test_a_release_that_no_worker_claimed_is_refunded(service: World) -> None:
    dataset = service.add_dataset()
    release = service.custodian.release(dataset).json()["id"]
    assert remaining(service, dataset) == "9"
    body = service.custodian.post(f"/v1/releases/{release}/cancel").json()
    assert (body["state"], body["refunded"]) == ("cancelled", True)
    assert remaining(service, dataset) == "10"


def test_cancelling_again_changes_nothing(service: World) -> None:
    dataset = service.add_dataset()
    release = service.custodian.release(dataset).json()["id"]
    first = service.custodian.post(f"/v1/releases/{release}/cancel")
    again = service.custodian.post(f"/v1/releases/{release}/cancel")
    assert again.status_code == first.status_code == 200
    assert again.json() == first.json()
    assert remaining(service, dataset) == "10"


def test_a_release_is_stopped_without_a_refund_where_the_books_do_not_add_up(
    service: World,
) -> None:
    dataset = service.add_dataset()
    release = service.custodian.release(dataset).json()["id"]
    with service.database.write() as session:
        session.execute(update(AccountRow).values(spent_primary=1))
    body = service.custodian.post(f"/v1/releases/{release}/cancel").json()
    assert (body["state"], body["refunded"]) == ("cancelled", False)
    with service.database.read() as session:
        assert session.scalars(select(AccountRow.spent_primary)).all() == [1]


def test_a_running_release_keeps_its_charge_and_publishes_nothing(service: World) -> None:
    dataset = service.add_dataset()
    release = service.custodian.release(dataset).json()["id"]
    context = service.claim()
    with context.fenced() as session:
        life.started(session, release)
    body = service.custodian.post(f"/v1/releases/{release}/cancel").json()
    assert (body["state"], body["refunded"]) == ("cancelling", False)
    with jobs.ending(service.database, context.claim) as session:
        life.cancelled(session, release)
        jobs.finish(session, context.claim, "cancelled")
    body = service.custodian.get(f"/v1/releases/{release}").json()
    assert (body["state"], body["refunded"]) == ("cancelled", False)
    assert remaining(service, dataset) == "9"
    assert service.custodian.get(f"/v1/releases/{release}/measurements").status_code == 409


def test_a_release_claimed_a_moment_ago_is_cancelled_with_its_charge_kept(service: World) -> None:
    dataset = service.add_dataset()
    release = service.custodian.release(dataset).json()["id"]
    context = service.claim()
    body = service.custodian.post(f"/v1/releases/{release}/cancel").json()
    assert (body["state"], body["refunded"]) == ("cancelling", False)
    run(context, lambda _: pytest.fail("a cancelled job was begun"), OUTCOMES["fit"], Shutdown(1))
    body = service.custodian.get(f"/v1/releases/{release}").json()
    assert (body["state"], body["refunded"]) == ("cancelled", False)
    assert remaining(service, dataset) == "9"


def test_a_dataset_is_erased_though_a_release_was_claimed_a_moment_ago(service: World) -> None:
    dataset = service.add_dataset()
    release = service.custodian.release(dataset).json()["id"]
    service.claim()
    erased = service.custodian.request("DELETE", f"/v1/datasets/{dataset}")
    assert (erased.status_code, erased.json()["state"]) == (200, "erased")
    assert service.custodian.get(f"/v1/releases/{release}").json()["state"] == "cancelling"


def test_a_release_queued_again_after_a_claim_keeps_its_charge(service: World) -> None:
    dataset = service.add_dataset()
    release = service.custodian.release(dataset).json()["id"]
    context = service.claim()
    with context.fenced() as session:
        life.started(session, release)
        jobs.hand_back(session, context.claim)
    body = service.custodian.post(f"/v1/releases/{release}/cancel").json()
    assert (body["state"], body["refunded"]) == ("cancelled", False)
    assert remaining(service, dataset) == "9"


def test_a_finished_release_cannot_be_cancelled(service: World) -> None:
    dataset = service.add_dataset()
    service.custodian.release(dataset)
    release = service.run_fit(colours(100))
    answer = service.custodian.post(f"/v1/releases/{release}/cancel")
    assert answer.status_code == 409
    assert service.custodian.get(f"/v1/releases/{release}").json()["state"] == "succeeded"


def test_the_custodian_cancels_and_a_stranger_sees_nothing(service: World) -> None:
    dataset = service.add_dataset()
    analyst, stranger = service.add_analyst("ana"), service.add_analyst("sam")
    service.grant(dataset, "ana")
    release = analyst.release(dataset).json()["id"]
    for path in ("", "/events", "/samples", "/measurements", "/certificate"):
        assert stranger.get(f"/v1/releases/{release}{path}").status_code == 404
    assert stranger.post(f"/v1/releases/{release}/cancel").status_code == 404
    assert service.custodian.post(f"/v1/releases/{release}/cancel").json()["refunded"] is True
    assert analyst.get(f"/v1/releases/{release}").json()["state"] == "cancelled"


def test_a_failure_reads_the_same_for_analysts_and_is_explained_to_the_custodian(
    service: World,
) -> None:
    dataset = service.add_dataset()
    analyst = service.add_analyst("ana")
    service.grant(dataset, "ana")
    release = analyst.release(dataset).json()["id"]
    context = service.claim()
    with context.fenced() as session:
        life.started(session, release)
        life.failed(session, release)
        jobs.finish(session, context.claim, "failed", "row 17 was odd")
    seen = analyst.get(f"/v1/releases/{release}")
    assert seen.json()["state"] == "failed"
    assert seen.json()["private_detail"] is None
    assert "17" not in seen.json()["failure"]
    assert service.custodian.get(f"/v1/releases/{release}").json()["private_detail"] == (
        "row 17 was odd"
    )


def test_why_a_release_of_an_encrypted_dataset_failed_is_sealed_and_told_to_its_custodian(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def execute(context: JobContext) -> None:
        raise RuntimeError(f"{context.kind} met the 4711th row")

    key = SecretStr(base64.b64encode(bytes(32)).decode())
    with world(tmp_path, monkeypatch, master_key=key) as service:
        dataset = service.add_dataset()
        with service.database.write() as session:
            row = session.get_one(DatasetRow, dataset)
            row.wrapped_key = Keyring(service.settings).new_key(dataset)
        release = service.custodian.release(dataset).json()["id"]
        run(service.claim(), execute, OUTCOMES["fit"], Shutdown(0))
        for shown in (
            service.custodian.get(f"/v1/releases/{release}").json(),
            service.custodian.get("/v1/releases").json()["items"][0],
        ):
            assert "fit met the 4711th row" in shown["private_detail"]
        assert not any(b"4711th" in path.read_bytes() for path in tmp_path.glob("halftone.sqlite*"))
        # As it would be in a restored store whose dataset has another key.
        with service.database.write() as session:
            row = session.get_one(DatasetRow, dataset)
            row.wrapped_key = Keyring(service.settings).new_key(dataset)
        unreadable = service.custodian.get(f"/v1/releases/{release}").json()["private_detail"]
        assert unreadable == private_facts.UNREADABLE


def test_the_custodian_lists_releases_of_others_an_analyst_only_their_own(service: World) -> None:
    dataset = service.add_dataset()
    ana, bob = service.add_analyst("ana"), service.add_analyst("bob")
    for who in ("ana", "bob"):
        service.grant(dataset, who)
    first = ana.release(dataset).json()["id"]
    second = bob.release(dataset).json()["id"]

    def ids(client: object, **query: object) -> list[str]:
        return [item["id"] for item in client.get("/v1/releases", params=query).json()["items"]]  # type: ignore[attr-defined]

    assert ids(ana) == [first]
    assert ids(service.custodian) == [second, first]
    assert ids(service.custodian, state="running") == []
    assert ids(service.custodian, dataset="ds_other") == []
    page = service.custodian.get("/v1/releases", params={"limit": 1}).json()
    assert [item["id"] for item in page["items"]] == [second]
    assert ids(service.custodian, limit=1, cursor=page["next"]) == [first]


def test_erasing_a_dataset_stops_releases_and_forgets_why_others_failed(service: World) -> None:
    dataset = service.add_dataset()
    failing = service.custodian.release(dataset).json()["id"]
    context = service.claim()
    with context.fenced() as session:
        life.started(session, failing)
        life.failed(session, failing)
        jobs.finish(session, context.claim, "failed", "row 17 was odd")
    waiting = service.custodian.release(dataset).json()["id"]
    assert service.custodian.request("DELETE", f"/v1/datasets/{dataset}").status_code < 300
    body = service.custodian.get(f"/v1/releases/{waiting}").json()
    assert (body["state"], body["refunded"]) == ("cancelled", True)
    assert service.custodian.get(f"/v1/releases/{failing}").json()["private_detail"] is None
    assert b"row 17 was odd" not in service.database.path.read_bytes()


def test_releases_outlive_their_dataset_unless_they_are_withdrawn_with_it(service: World) -> None:
    kept, withdrawn = service.add_dataset(), service.add_dataset()
    published = {}
    for seed, dataset in enumerate((kept, withdrawn)):
        service.custodian.release(dataset, rows=20)
        published[dataset] = service.run_fit(colours(200, seed))
    service.custodian.request("DELETE", f"/v1/datasets/{kept}")
    service.custodian.request("DELETE", f"/v1/datasets/{withdrawn}?releases=true")
    alive = service.custodian.get(f"/v1/releases/{published[kept]}").json()
    sample = alive["samples"][0]["id"]
    assert service.custodian.get(f"/v1/samples/{sample}/data").status_code == 200
    assert service.custodian.get(f"/v1/releases/{alive['id']}/measurements").status_code == 200
    again = service.custodian.post(f"/v1/releases/{alive['id']}/samples", {"rows": 5})
    assert again.status_code == 202
    assert service.run_sample() == again.json()["id"]
    gone = service.custodian.get(f"/v1/releases/{published[withdrawn]}").json()
    assert gone["samples"] == []
    for part in ("measurements", "certificate"):
        answer = service.custodian.get(f"/v1/releases/{gone['id']}/{part}")
        assert answer.status_code == 409
        assert "withdrawn" in answer.json()["detail"]

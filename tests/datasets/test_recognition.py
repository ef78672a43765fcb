"""The same content again: closed, refused, joined, or of other people."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from office import (
    CSV,
    ENTITY,
    ENTITY_SCHEMA,
    SCHEMA,
    Office,
    Person,
    open_office,
    public_spec,
    spec,
)
from sqlalchemy import select

from app import quota
from app.datasets import ingest
from app.datasets.models import DatasetRow
from app.engine.privacy.loss import EPSILON_UNIT, Accountant, Guarantee, to_units
from app.ledger import admission
from app.ledger.models import AccountRow, LedgerRow
from app.ledger.terms import Terms
from app.security.models import AuditRow

SHUFFLED = "pay,shift\n,20\nCash,3\nCard,4\n"
DRIVERS = "driver,shift,pay\na,1,Cash\nb,2,Card\n"


@pytest.fixture
def office(tmp_path: Path) -> Iterator[Office]:
    with open_office(tmp_path) as opened:
        yield opened


def charge(office: Office, dataset: dict[str, Any]) -> None:
    epsilon = to_units(Decimal("0.1"), EPSILON_UNIT, rounding="up")
    with office.database.write() as session:
        admission.admit(
            session,
            account=session.get_one(AccountRow, dataset["custodian"]["account_id"]),
            grant=None,
            reveal_account=True,
            terms=Terms.of(Guarantee(epsilon=epsilon, rho=None, delta=None), Accountant.BASIC),
            dataset_id=dataset["id"],
            release_id="rl_a",
            principal_id=office.custodian.id,
            detail={},
        )


def audited(office: Office, action: str) -> list[AuditRow]:
    with office.database.read() as session:
        return list(session.scalars(select(AuditRow).where(AuditRow.action == action)))


def every_entry(office: Office) -> list[AuditRow]:
    with office.database.read() as session:
        return list(session.scalars(select(AuditRow).order_by(AuditRow.id)))


def closed(office: Office, dataset: dict[str, Any]) -> bool:
    return bool(office.custodian.dataset(dataset["id"])["custodian"]["closed"])


def grant(office: Office, dataset: dict[str, Any], person: Person) -> int:
    answer = office.custodian.call(
        "POST", f"/datasets/{dataset['id']}/grants", json={"principal_id": person.id}
    )
    return answer.status_code


def test_while_nothing_was_charged_the_newer_dataset_closes_the_older(office: Office) -> None:
    older = office.uploaded(CSV)
    newer = office.uploaded(SHUFFLED)
    assert (newer["state"], closed(office, newer)) == ("ready", False)
    assert closed(office, older)
    assert office.custodian.report(newer["id"])["closed_datasets"] == [older["id"]]


def test_what_may_close_is_told_before_it_does(office: Office) -> None:
    """To the custodian alone, and from the columns: nothing is known yet of the table."""
    older = office.uploaded(CSV)
    assert older["custodian"]["notes"] == []
    newer = office.custodian.declare().json()
    (note,) = newer["custodian"]["notes"]
    assert (note["pointer"], older["id"] in note["message"]) == ("/budget", True)
    assert older["id"] in note["remedy"]
    assert not closed(office, older)
    for kept in (
        spec(budget=None, shares_budget_with=older["id"]),
        spec(new_population={"reason": "another town"}),
        spec(schema={"fields": SCHEMA["fields"][:1]}),
    ):
        assert office.custodian.declare(kept).json()["custodian"]["notes"] == []
    other = office.person(is_custodian=True)
    assert other.declare().json()["custodian"]["notes"] == []
    office.custodian.put(newer["id"], CSV)
    office.work()
    assert closed(office, older)
    assert office.custodian.dataset(newer["id"])["custodian"]["notes"] == []


def test_what_cannot_close_is_not_warned_of(office: Office) -> None:
    """An equal table is rejected then, and says so."""
    charged = office.uploaded(CSV)
    charge(office, charged)
    granted = office.uploaded(CSV + "3,Cash\n")
    assert grant(office, granted, office.person(is_analyst=True)) == 201
    assert office.custodian.declare().json()["custodian"]["notes"] == []


def test_other_content_closes_nothing(office: Office) -> None:
    older = office.uploaded(CSV)
    office.uploaded(CSV + "3,Cash\n")
    assert not closed(office, older)


def test_charged_content_is_refused_with_the_two_ways_on(office: Office) -> None:
    older = office.uploaded(CSV)
    charge(office, older)
    newer = office.uploaded(SHUFFLED)
    assert newer["state"] == "rejected"
    problem = office.custodian.report(newer["id"])["problems"][0]
    assert older["id"] in problem["message"]
    assert "shares_budget_with" in problem["remedy"]
    assert "new_population" in problem["remedy"]
    assert newer["custodian"]["stored_bytes"] == 0
    assert not closed(office, older)


def test_charged_content_comes_in_by_joining_its_account(office: Office) -> None:
    older = office.uploaded(CSV)
    charge(office, older)
    newer = office.uploaded(SHUFFLED, budget=None, shares_budget_with=older["id"])
    assert newer["state"] == "ready"
    assert newer["custodian"]["account_id"] == older["custodian"]["account_id"]
    assert not closed(office, older)


def test_charged_content_comes_in_for_other_people_and_that_is_audited(office: Office) -> None:
    older = office.uploaded(CSV)
    charge(office, older)
    newer = office.uploaded(SHUFFLED, new_population={"reason": "another town"})
    assert newer["state"] == "ready"
    entry = audited(office, "dataset.new_population")[0]
    assert (entry.subject, entry.detail) == (newer["id"], {"reason": "another town"})
    assert office.custodian.report(newer["id"])["closed_datasets"] == []


def test_content_is_remembered_after_erasure(office: Office) -> None:
    older = office.uploaded(CSV)
    charge(office, older)
    assert office.custodian.call("DELETE", f"/datasets/{older['id']}").status_code == 200
    assert office.uploaded(CSV)["state"] == "rejected"
    joined = office.uploaded(CSV, budget=None, shares_budget_with=older["id"])
    assert joined["state"] == "ready"


def test_a_closed_dataset_stands_in_nobodys_way(office: Office) -> None:
    office.uploaded(CSV)
    second = office.uploaded(CSV)
    charge(office, second)
    third = office.uploaded(CSV)
    assert third["state"] == "rejected"
    message = office.custodian.report(third["id"])["problems"][0]["message"]
    assert second["id"] in message


def test_a_match_across_custodians_is_told_to_nobody(office: Office) -> None:
    admin = office.person(is_admin=True, is_custodian=True)
    mine = office.uploaded(CSV)
    log = [(row.action, row.detail) for row in every_entry(office)]
    theirs = office.uploaded(CSV, by=admin)
    assert theirs["state"] == "ready"
    assert admin.report(theirs["id"])["closed_datasets"] == []
    assert mine["id"] not in str(admin.report(theirs["id"]))
    assert not closed(office, mine)
    told = {"visibility": "private", "shares_budget_with": None}
    assert [(row.action, row.detail) for row in every_entry(office)] == [
        *log,
        ("dataset.create", told),
    ]


@pytest.mark.parametrize("other", [CSV, CSV + "3,Cash\n"])
def test_nothing_but_the_report_says_whether_content_was_equal(office: Office, other: str) -> None:
    """The audit log reads the same after an equal upload and after another one."""
    office.uploaded(CSV)
    before = len(every_entry(office))
    office.uploaded(other)
    office.uploaded(other, new_population={"reason": "another town"})
    added = every_entry(office)[before:]
    assert [row.action for row in added] == ["dataset.create"] * 2 + ["dataset.new_population"]
    assert {str(row.detail) for row in added} == {
        "{'visibility': 'private', 'shares_budget_with': None}",
        "{'reason': 'another town'}",
    }


def test_an_analyst_sees_nothing_of_a_later_equal_upload(office: Office) -> None:
    """All that an analyst can read or ask is the same, whether the later table is equal or not."""
    ana = office.person(is_analyst=True)
    wanted = {"synthesizer": "independent", "params": {}, "guarantee": {"epsilon": "0.1"}}
    older = office.uploaded(CSV)
    assert grant(office, older, ana) == 201

    def seen() -> list[tuple[int, str]]:
        path = f"/datasets/{older['id']}"
        answers = [ana.get(path + part) for part in ("", "/budget", "/ledger", "/schema")]
        answers.append(ana.call("POST", f"{path}/releases/preflight", json=wanted))
        answers.append(ana.get("/datasets"))
        return [(answer.status_code, answer.text) for answer in answers]

    before = seen()
    assert office.uploaded(CSV + "3,Cash\n")["state"] == "ready"
    assert seen() == before
    refused = office.uploaded(SHUFFLED)
    assert refused["state"] == "rejected"
    assert seen() == before
    assert "closed" not in ana.dataset(older["id"])
    problem = office.custodian.report(refused["id"])["problems"][0]
    assert "analysts may use" in problem["message"]
    assert ana.call("POST", f"/datasets/{older['id']}/releases", json=wanted).status_code == 202


def test_a_closed_dataset_is_granted_to_nobody(office: Office) -> None:
    ana = office.person(is_analyst=True)
    older = office.uploaded(CSV)
    newer = office.uploaded(CSV)
    assert (grant(office, older, ana), grant(office, newer, ana)) == (409, 201)


def test_the_whole_account_of_a_replaced_table_is_closed(office: Office) -> None:
    older = office.uploaded(CSV)
    sibling = office.uploaded(CSV + "3,Cash\n", budget=None, shares_budget_with=older["id"])
    waiting = office.custodian.declare(spec(budget=None, shares_budget_with=older["id"])).json()
    newer = office.uploaded(CSV)
    datasets = [older, sibling, waiting]
    assert [closed(office, each) for each in datasets] == [True] * 3
    report = office.custodian.report(newer["id"])
    assert report["closed_datasets"] == [each["id"] for each in datasets]
    wanted = {"synthesizer": "independent", "params": {}, "guarantee": {"epsilon": "0.1"}}
    release = f"/datasets/{sibling['id']}/releases"
    assert office.custodian.call("POST", release, json=wanted).status_code == 409
    assert office.custodian.put(waiting["id"]).status_code == 409
    joining = spec(budget=None, shares_budget_with=sibling["id"])
    assert office.custodian.declare(joining).status_code == 422


def test_an_ingest_whose_account_was_closed_meanwhile_is_rejected(office: Office) -> None:
    older = office.uploaded(CSV)
    joining = spec(budget=None, shares_budget_with=older["id"])
    late = office.custodian.declare(joining).json()["id"]
    office.custodian.put(late, CSV + "3,Cash\n")
    job = office.claim()
    office.uploaded(CSV)
    ingest.run(job, quota.used_bytes)
    assert office.custodian.dataset(late)["state"] == "rejected"


def test_guesses_at_an_erased_table_are_few(tmp_path: Path) -> None:
    """Beyond the limit an equal upload and another one are answered alike."""
    with open_office(tmp_path, compared_uploads=2) as office:
        gone = office.uploaded(CSV)
        charge(office, gone)
        for _ in range(3):
            assert office.uploaded(CSV + "3,Cash\n" * 9)["state"] == "ready"
        office.custodian.call("DELETE", f"/datasets/{gone['id']}")
        guesses = [CSV + f"{shift},Cash\n" for shift in range(2)]
        assert [office.uploaded(guess)["state"] for guess in guesses] == ["ready", "ready"]
        answers = []
        for guess in (CSV, CSV + "5,Cash\n"):
            refused = office.uploaded(guess)
            problems = office.custodian.report(refused["id"])["problems"]
            answers.append((refused["state"], problems))
        assert answers[0] == answers[1]
        assert answers[0][0] == "rejected"
        assert "compared" in answers[0][1][0]["message"]
        other = office.person(is_custodian=True)
        assert office.uploaded(CSV, by=other)["state"] == "ready"
        declared = office.uploaded(CSV, new_population={"reason": "another town"})
        assert declared["state"] == "ready"


@pytest.mark.parametrize("first", ["private", "public"])
def test_content_is_not_private_and_public_both(office: Office, first: str) -> None:
    states = []
    for visibility in (first, "public" if first == "private" else "private"):
        declaration = spec() if visibility == "private" else public_spec()
        dataset_id = office.custodian.declare(declaration).json()["id"]
        office.custodian.put(dataset_id, CSV)
        office.work()
        states.append(office.custodian.dataset(dataset_id)["state"])
    assert states == ["ready", "rejected"]


def test_public_content_may_come_twice(office: Office) -> None:
    for _ in range(2):
        dataset_id = office.custodian.declare(public_spec()).json()["id"]
        office.custodian.put(dataset_id, CSV)
        office.work()
        assert office.custodian.dataset(dataset_id)["state"] == "ready"


def test_two_ingests_side_by_side_leave_one_open(office: Office) -> None:
    ids = [office.custodian.declare().json()["id"] for _ in range(2)]
    for dataset_id in ids:
        office.custodian.put(dataset_id, CSV)
    office.work()
    assert sorted(closed(office, {"id": dataset_id}) for dataset_id in ids) == [False, True]


def test_joining_needs_custody_a_budget_and_the_same_kind_of_unit(office: Office) -> None:
    rows = office.uploaded(CSV)
    entities = office.uploaded(DRIVERS, schema=ENTITY_SCHEMA, unit=ENTITY)
    public = office.custodian.declare(public_spec()).json()["id"]
    other = office.person(is_custodian=True)

    def join(dataset_id: str, **changes: Any) -> int:
        person = changes.pop("by", office.custodian)
        declaration = spec(budget=None, shares_budget_with=dataset_id, **changes)
        return int(person.declare(declaration).status_code)

    assert join(rows["id"]) == 201
    assert join(rows["id"], by=other) == 422
    assert join("ds_absent") == 422
    assert join(public) == 422
    assert join(entities["id"]) == 422
    assert join(entities["id"], schema=ENTITY_SCHEMA, unit={**ENTITY, "max_rows": 9}) == 201
    assert join(rows["id"], schema=ENTITY_SCHEMA, unit=ENTITY) == 422


def test_opening_and_joining_are_in_the_ledger_and_a_refusal_leaves_no_account(
    office: Office,
) -> None:
    made = office.uploaded(CSV)
    office.custodian.declare(spec(budget=None, shares_budget_with=made["id"]))
    with office.database.read() as session:
        kinds = list(session.scalars(select(LedgerRow.kind).order_by(LedgerRow.sequence)))
        accounts = len(list(session.scalars(select(AccountRow))))
    assert kinds == ["opened", "joined"]
    refused = office.custodian.declare(spec(budget={"epsilon": 0, "delta": 0}))
    assert refused.status_code == 422
    with office.database.read() as session:
        assert len(list(session.scalars(select(AccountRow)))) == accounts
        assert len(list(session.scalars(select(DatasetRow)))) == 2

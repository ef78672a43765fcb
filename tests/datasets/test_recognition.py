"""The same content again: closed, refused, joined, or of other people."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from office import CSV, ENTITY, ENTITY_SCHEMA, Office, open_office, public_spec, spec
from sqlalchemy import select

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


def test_while_nothing_was_charged_the_newer_dataset_closes_the_older(office: Office) -> None:
    older = office.uploaded(CSV)
    newer = office.uploaded(SHUFFLED)
    assert (newer["state"], newer["closed"]) == ("ready", False)
    assert office.custodian.dataset(older["id"])["closed"] is True
    assert office.custodian.report(newer["id"])["closed_datasets"] == [older["id"]]
    assert audited(office, "dataset.close")[0].subject == older["id"]


def test_other_content_closes_nothing(office: Office) -> None:
    older = office.uploaded(CSV)
    office.uploaded(CSV + "3,Cash\n")
    assert office.custodian.dataset(older["id"])["closed"] is False


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
    assert office.custodian.dataset(older["id"])["closed"] is False


def test_charged_content_comes_in_by_joining_its_account(office: Office) -> None:
    older = office.uploaded(CSV)
    charge(office, older)
    newer = office.uploaded(SHUFFLED, budget=None, shares_budget_with=older["id"])
    assert newer["state"] == "ready"
    assert newer["custodian"]["account_id"] == older["custodian"]["account_id"]
    assert office.custodian.dataset(older["id"])["closed"] is False


def test_charged_content_comes_in_for_other_people_and_that_is_audited(office: Office) -> None:
    older = office.uploaded(CSV)
    charge(office, older)
    newer = office.uploaded(SHUFFLED, new_population={"reason": "another town"})
    assert newer["state"] == "ready"
    entry = audited(office, "dataset.new_population")[0]
    assert entry.subject == newer["id"]
    assert entry.detail == {"reason": "another town", "same_content_as": [older["id"]]}


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


def test_a_match_across_custodians_is_told_to_the_admin_alone(office: Office) -> None:
    mine = office.uploaded(CSV)
    charge(office, mine)
    other = office.person(is_custodian=True)
    theirs = office.uploaded(CSV, by=other)
    assert theirs["state"] == "ready"
    assert mine["id"] not in str(other.report(theirs["id"]))
    assert office.custodian.dataset(mine["id"])["closed"] is False
    entry = audited(office, "dataset.same_content")[0]
    assert (entry.principal_id, entry.subject) == (None, None)
    assert entry.detail == {"dataset": theirs["id"], "others": [mine["id"]]}


def test_the_admin_is_told_even_when_the_content_is_refused(office: Office) -> None:
    mine = office.uploaded(CSV)
    charge(office, mine)
    office.uploaded(CSV, by=office.person(is_custodian=True))
    told = len(audited(office, "dataset.same_content"))
    assert office.uploaded(CSV)["state"] == "rejected"
    assert len(audited(office, "dataset.same_content")) == told + 1


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
    closed = [office.custodian.dataset(dataset_id)["closed"] for dataset_id in ids]
    assert sorted(closed) == [False, True]


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

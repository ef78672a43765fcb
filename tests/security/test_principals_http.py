"""Principals, keys, grants and the audit log over HTTP: who may do what."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from bookkeeping import Books, add_dataset, guarantee, open_books
from front_desk import Desk, Person, front_desk

from app.database import format_time, new_id, now
from app.engine.privacy.loss import Accountant
from app.ledger.models import GrantRow, LedgerRow
from app.security import audit

BEFORE_ALL_TIME = base64.urlsafe_b64encode(b"0001-01-01T00:00:00+14:00|x").decode().rstrip("=")
"""A moment that falls out of the calendar once it is brought to UTC."""


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    with front_desk(tmp_path_factory.mktemp("desk"), auth_failures=5) as desk:
        yield desk


@dataclass
class Case:
    """A custodian's dataset, and an analyst whom nothing was granted yet."""

    books: Books
    custodian: Person
    analyst: Person

    @property
    def path(self) -> str:
        return f"/datasets/{self.books.dataset_id}"

    def grant(self, **terms: Any) -> dict[str, Any]:
        made = self.custodian.post(
            f"{self.path}/grants", {"principal_id": self.analyst.id, **terms}
        )
        assert made.status_code == 201, made.text
        return dict(made.json())


def case(desk: Desk, epsilon: str = "10", accountant: Accountant = Accountant.BASIC) -> Case:
    books = open_books(desk.database, epsilon, "1e-6", accountant)
    with desk.database.write() as session:
        custodian = desk.with_key(desk.key_for(session, books.owner_id))
    custodian.id = books.owner_id
    return Case(books, custodian, desk.person("analyst"))


def test_i_am_told_who_i_am_and_which_key_i_use(desk: Desk) -> None:
    me = desk.admin.get("/me").json()
    assert me["roles"] == ["admin", "custodian", "analyst"]
    assert me["key"]["prefix"] == desk.admin.key[:11]
    assert "key" not in me["key"]


def test_a_principal_made_twice_with_one_idempotency_key_is_made_once(desk: Desk) -> None:
    body = {"name": "Ada", "roles": ["analyst"]}
    first = desk.admin.post("/principals", body, **{"Idempotency-Key": "one"})
    again = desk.admin.post("/principals", body, **{"Idempotency-Key": "one"})
    other = desk.admin.post("/principals", {**body, "name": "B"}, **{"Idempotency-Key": "one"})
    assert (first.status_code, again.status_code, other.status_code) == (201, 201, 422)
    assert again.json() == first.json()
    assert again.headers["Location"] == first.headers["Location"]
    assert again.headers["Idempotent-Replayed"] == "true"
    assert desk.admin.post("/principals", body).status_code == 409


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"name": "x", "roles": []}, "/roles"),
        ({"name": "x", "roles": ["root"]}, "/roles/0"),
        ({"name": " ", "roles": ["analyst"]}, "/name"),
        ({"name": "a\nb", "roles": ["analyst"]}, "/name"),
        ({"name": "a\u200bb", "roles": ["analyst"]}, "/name"),
        ({"name": "\u202eab", "roles": ["analyst"]}, "/name"),
        ({"name": "\u0430dmin", "roles": ["analyst"]}, "/name"),
        ({"name": "x" * 201, "roles": ["analyst"]}, "/name"),
        ({"name": "x", "roles": ["analyst"], "admin": True}, "/admin"),
    ],
)
def test_principals_that_cannot_be_are_422_at_the_field(
    desk: Desk, body: dict[str, Any], pointer: str
) -> None:
    answer = desk.admin.post("/principals", body)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == pointer


def test_text_that_is_no_text_is_400(desk: Desk) -> None:
    answer = desk.admin.call(
        "POST",
        "/principals",
        content=b'{"name": "\\ud800", "roles": ["analyst"]}',
        headers={"Content-Type": "application/json"},
    )
    assert answer.status_code == 400
    assert "surrogate" in answer.json()["detail"]


def test_a_key_is_shown_once_works_and_ends_when_it_is_revoked(desk: Desk) -> None:
    person = desk.person("analyst")
    path = f"/principals/{person.id}/keys"
    sent = {"Idempotency-Key": "k"}
    made = desk.admin.post(path, {"label": "notebook", "expires_in_days": 1}, **sent)
    assert made.status_code == 201
    assert made.headers["Cache-Control"] == "no-store"
    again = desk.admin.post(path, {"label": "notebook", "expires_in_days": 1}, **sent)
    assert again.json() == {**made.json(), "key": None}
    owner = desk.with_key(made.json()["key"])
    assert owner.get("/me").json()["id"] == person.id
    listed = owner.get(path).json()["items"]
    assert [item["label"] for item in listed] == ["", "notebook"]
    assert all("key" not in item for item in listed)
    assert desk.admin.delete(f"{path}/{made.json()['id']}").status_code == 204
    assert owner.get("/me").status_code == 401
    assert desk.admin.delete(f"{path}/{made.json()['id']}").status_code == 204
    assert desk.admin.get(f"{path}/{made.json()['id']}").json()["state"] == "revoked"


@pytest.mark.parametrize(
    "body",
    [
        {"expires_at": "2020-01-01T00:00:00Z"},
        {"expires_at": "2999-01-01T00:00:00Z"},
        {"expires_at": "9999-12-31T23:59:59-14:00"},
        {"expires_at": "2030-01-01T00:00:00"},
        {"expires_at": "tomorrow"},
        {"expires_at": 1900000000},
        {"expires_at": "1900000000"},
        {"expires_in_days": 0},
        {"expires_in_days": 1, "expires_at": "2030-01-01T00:00:00Z"},
    ],
)
def test_expiries_that_cannot_be_are_422(desk: Desk, body: dict[str, Any]) -> None:
    assert desk.admin.post(f"/principals/{desk.admin.id}/keys", body).status_code == 422


def test_a_key_that_expires_cannot_make_one_that_outlives_it(desk: Desk) -> None:
    person = desk.person("analyst", expires_in=timedelta(hours=1))
    path = f"/principals/{person.id}/keys"
    own = person.get("/me").json()["key"]["expires_at"]
    assert person.post(path, {}).json()["expires_at"] == own
    later = format_time(now() + timedelta(hours=2))
    assert person.post(path, {"expires_at": later}).status_code == 422
    assert desk.admin.post(path, {"expires_at": later}).status_code == 201


def test_nobody_can_lock_themselves_or_everybody_out(desk: Desk) -> None:
    admin = f"/principals/{desk.admin.id}"
    own_key = desk.admin.get("/me").json()["key"]["id"]
    assert desk.admin.patch(admin, {"state": "disabled"}).status_code == 409
    assert desk.admin.patch(admin, {"roles": ["custodian"]}).status_code == 409
    assert desk.admin.delete(f"{admin}/keys/{own_key}").status_code == 409
    second = desk.person("admin")
    assert second.patch(admin, {"state": "disabled"}).status_code == 200
    assert desk.admin.get("/me").status_code == 401
    assert second.patch(f"/principals/{second.id}", {"state": "disabled"}).status_code == 409
    assert second.patch(admin, {"state": "active"}).status_code == 200
    assert desk.admin.patch(f"/principals/{second.id}", {"state": "disabled"}).status_code == 200


def test_the_last_key_of_the_last_admin_stays_even_if_another_asks(desk: Desk) -> None:
    analyst = desk.person("analyst")
    key = analyst.get("/me").json()["key"]["id"]
    assert analyst.delete(f"/principals/{analyst.id}/keys/{key}").status_code == 409
    assert desk.admin.delete(f"/principals/{analyst.id}/keys/{key}").status_code == 204


def test_who_may_do_what(desk: Desk) -> None:
    made = case(desk)
    people = {
        "admin": desk.person("admin"),
        "custodian": made.custodian,
        "stranger": desk.person("custodian", "analyst"),
        "granted": made.analyst,
        "nobody": desk.with_key("hk_" + "n" * 43, address="192.0.2.77"),
    }
    made.grant()
    grants = f"{made.path}/grants"
    matrix: dict[tuple[str, str], list[int]] = {
        ("GET", "/me"): [200, 200, 200, 200, 401],
        ("GET", "/principals"): [200, 403, 403, 403, 401],
        ("GET", f"/principals/{made.analyst.id}"): [200, 404, 404, 200, 401],
        ("GET", f"/principals/{made.analyst.id}/keys"): [200, 404, 404, 200, 401],
        ("GET", "/audit"): [200, 200, 200, 403, 429],
        ("GET", grants): [404, 200, 404, 403, 429],
        ("GET", f"{made.path}/budget"): [404, 200, 404, 200, 429],
        ("GET", f"{made.path}/ledger"): [404, 200, 404, 200, 429],
        ("GET", f"{made.path}/ledger/verification"): [404, 200, 404, 200, 429],
    }
    answers = {
        (method, path): [person.call(method, path).status_code for person in people.values()]
        for method, path in matrix
    }
    expected = {**matrix, ("GET", "/audit"): [200, 200, 200, 403, 401]}
    assert answers == expected


def test_what_is_not_mine_reads_like_what_is_not_there(desk: Desk) -> None:
    theirs, mine = case(desk), case(desk)
    theirs.grant()
    absent = f"/datasets/{new_id('ds')}"
    for tail in ("/budget", "/ledger", "/ledger/verification", "/grants"):
        answers = [mine.analyst.get(path + tail) for path in (theirs.path, absent)]
        bodies = [{**answer.json(), "instance": ""} for answer in answers]
        assert [answer.status_code for answer in answers] == [404, 404]
        assert bodies[0] == bodies[1]


def test_a_private_dataset_is_not_there_for_analysts_before_it_is_ready(desk: Desk) -> None:
    made = case(desk)
    made.grant()
    with desk.database.write() as session:
        dataset = add_dataset(session, made.books.owner_id, made.books.account_id)
        dataset.state, dataset.ready_at = "ingesting", None
        waiting = dataset.id
        public = add_dataset(session, made.books.owner_id, None).id
    path = f"/datasets/{waiting}/grants"
    assert made.custodian.post(path, {"principal_id": made.analyst.id}).status_code == 201
    assert made.analyst.get(f"/datasets/{waiting}/budget").status_code == 404
    assert made.analyst.get(f"/datasets/{public}/budget").status_code == 404
    answer = made.custodian.post(f"/datasets/{public}/grants", {"principal_id": made.analyst.id})
    assert answer.status_code == 409


def test_a_grant_is_changed_revoked_and_revived_with_what_it_spent(desk: Desk) -> None:
    made = case(desk)
    grant = made.grant(allowance={"epsilon": "2", "delta": "1e-7"})
    path = f"{made.path}/grants/{grant['id']}"
    assert grant["allowance"]["cap"] == {"epsilon": "2", "delta": "0.0000001"}
    with desk.database.write() as session:
        made.books.admit(
            session, guarantee(epsilon="1.5"), grant=session.get(GrantRow, grant["id"])
        )
    assert made.custodian.patch(path, {"allowance": {"epsilon": 1}}).status_code == 200
    own = made.analyst.get(f"{made.path}/budget").json()["allowance"]
    assert own["remaining"] == {"epsilon": "0", "delta": "0"}
    assert made.custodian.put(path, {}).json()["allowance"]["cap"] is None
    assert made.custodian.delete(path).status_code == 204
    assert made.custodian.delete(path).status_code == 204
    assert made.custodian.patch(path, {"show_budget": True}).status_code == 409
    assert made.analyst.get(f"{made.path}/budget").status_code == 404
    revived = made.grant(allowance={"epsilon": "2"})
    assert revived["id"] == grant["id"]
    assert revived["allowance"]["spent"]["epsilon"] == "1.5"
    again = made.custodian.post(f"{made.path}/grants", {"principal_id": made.analyst.id})
    assert again.status_code == 409


def test_allowances_on_datasets_of_one_account_add_up_and_the_answer_says_so(desk: Desk) -> None:
    made = case(desk)
    with desk.database.write() as session:
        sibling = add_dataset(session, made.books.owner_id, made.books.account_id).id
    first = made.grant(allowance={"epsilon": "2", "delta": "1e-7"})
    assert first["within_account"] == {"epsilon": "2", "delta": "0.0000001"}
    second = made.custodian.post(
        f"/datasets/{sibling}/grants",
        {"principal_id": made.analyst.id, "allowance": {"epsilon": "1.5"}},
    ).json()
    both = {"epsilon": "3.5", "delta": "0.0000001"}
    assert second["within_account"] == both
    (listed,) = made.custodian.get(f"{made.path}/grants").json()["items"]
    assert listed["within_account"] == both
    budget = made.custodian.get(f"{made.path}/budget").json()["cap"]
    unlimited = made.custodian.put(f"{made.path}/grants/{first['id']}", {}).json()
    assert unlimited["within_account"] == budget
    made.custodian.delete(f"{made.path}/grants/{first['id']}")
    gone = made.custodian.get(f"{made.path}/grants/{first['id']}").json()
    assert gone["within_account"] == {"epsilon": "1.5", "delta": "0"}


def test_an_allowance_on_an_account_in_rho_is_asked_and_told_as_epsilon(desk: Desk) -> None:
    made = case(desk, accountant=Accountant.ZCDP)
    grant = made.grant(allowance={"epsilon": "2", "delta": "1e-7"})
    told = grant["allowance"]
    assert told["cap_as_epsilon"] == {"epsilon": "2", "delta": "0.0000001"}
    assert told["remaining_as_epsilon"] == told["cap_as_epsilon"]
    assert float(told["cap"]["rho"]) == pytest.approx(0.0743, abs=0.0005)
    with desk.database.write() as session:
        row = session.get(GrantRow, grant["id"])
        made.books.admit(session, guarantee(epsilon="1", delta="1e-7"), grant=row)
    own = made.analyst.get(f"{made.path}/budget").json()["allowance"]
    assert own["spent_as_epsilon"]["delta"] == "0.0000001"
    assert float(own["spent_as_epsilon"]["epsilon"]) == pytest.approx(1, abs=1e-9)
    assert 1 < float(own["remaining_as_epsilon"]["epsilon"]) < 2
    in_rho = made.custodian.put(
        f"{made.path}/grants/{grant['id']}", {"allowance": {"rho": "0.0743"}}
    ).json()["allowance"]
    assert in_rho["cap_as_epsilon"]["delta"] == "0.000001"


@pytest.mark.parametrize(
    ("accountant", "allowance", "pointer"),
    [
        (Accountant.BASIC, {"rho": "1"}, "/allowance/rho"),
        (Accountant.BASIC, {"delta": "0"}, "/allowance/epsilon"),
        (Accountant.BASIC, {"epsilon": "-1"}, "/allowance/epsilon"),
        (Accountant.BASIC, {"epsilon": "1e30"}, "/allowance/epsilon"),
        (Accountant.BASIC, {"epsilon": "1", "rho": "1"}, "/allowance/rho"),
        (
            Accountant.BASIC,
            {"epsilon": "1", "delta_for_approximate": "1e-9"},
            "/allowance/delta_for_approximate",
        ),
        (Accountant.ZCDP, {"epsilon": "1"}, "/allowance/delta"),
        (Accountant.ZCDP, {"epsilon": "0", "delta": "1e-6"}, "/allowance/epsilon"),
        (Accountant.ZCDP, {"epsilon": "1", "delta": "1"}, "/allowance/delta"),
        (Accountant.ZCDP, {"epsilon": "1", "rho": "1", "delta": "1e-6"}, "/allowance/epsilon"),
        (
            Accountant.ZCDP,
            {"epsilon": "1", "delta": "1e-6", "delta_for_approximate": "1e-6"},
            "/allowance/delta_for_approximate",
        ),
        (Accountant.ZCDP, {"rho": "1", "alpha": 2}, "/allowance/alpha"),
    ],
)
def test_an_allowance_is_in_the_accounts_own_terms(
    desk: Desk, accountant: Accountant, allowance: dict[str, Any], pointer: str
) -> None:
    made = case(desk, accountant=accountant)
    body = {"principal_id": made.analyst.id, "allowance": allowance}
    answer = made.custodian.post(f"{made.path}/grants", body)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == pointer


def test_only_analysts_other_than_the_custodian_can_be_granted(desk: Desk) -> None:
    made = case(desk)
    for principal_id in (new_id("pr"), desk.person("admin").id, made.custodian.id):
        answer = made.custodian.post(f"{made.path}/grants", {"principal_id": principal_id})
        assert answer.json()["errors"][0]["pointer"] == "/principal_id"


def test_a_custodian_reads_the_audit_of_grants_and_budgets_of_their_own_datasets_alone(
    desk: Desk,
) -> None:
    made, other = case(desk), case(desk)
    made.grant()
    other.grant()
    with desk.database.write() as session:
        audit.record(
            session,
            principal_id=None,
            action="content.matched",
            subject=made.books.dataset_id,
            detail={},
        )
    entries = made.custodian.get("/audit").json()["items"]
    assert [(one["action"], one["subject"]) for one in entries] == [
        ("grant.created", made.books.dataset_id)
    ]
    assert desk.admin.get("/audit").json()["items"][0]["action"] == "content.matched"


def test_lists_come_in_pages_that_neither_skip_nor_repeat(desk: Desk) -> None:
    seen: list[str] = []
    cursor = None
    while True:
        page = desk.admin.get(
            "/principals", params={"limit": 3, **({"cursor": cursor} if cursor else {})}
        ).json()
        seen += [item["id"] for item in page["items"]]
        cursor = page["next"]
        if cursor is None:
            break
        assert len(page["items"]) == 3
    whole = desk.admin.get("/principals", params={"limit": 200}).json()
    assert seen == [item["id"] for item in whole["items"]]
    assert len(set(seen)) == len(seen) > 3


@pytest.mark.parametrize("cursor", ["!", "bm9uc2Vuc2U", "é", "MjAyNnw", "LTE", BEFORE_ALL_TIME])
@pytest.mark.parametrize("path", ["/principals", "/audit"])
def test_a_cursor_of_no_list_is_422(desk: Desk, path: str, cursor: str) -> None:
    answer = desk.admin.get(path, params={"cursor": cursor})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == "/query/cursor"


def test_too_many_failures_are_429_with_retry_after(desk: Desk) -> None:
    guesser = desk.with_key("hk_" + "g" * 43, address="192.0.2.99")
    assert [guesser.get("/me").status_code for _ in range(5)] == [401] * 5
    refused = guesser.get("/me")
    assert refused.status_code == 429
    assert 1 <= int(refused.headers["Retry-After"]) <= 60
    assert refused.json()["type"] == "/problems/too-many-requests"
    assert desk.admin.get("/me").status_code == 200


def test_no_entry_of_any_ledger_holds_anything_but_public_facts(desk: Desk) -> None:
    made = case(desk)
    with desk.database.read() as session:
        row = session.get(LedgerRow, (made.books.account_id, 1))
        assert row is not None
        assert set(row.detail) == {"accountant", "unit", "budget", "delta_for_approximate"}

"""Budgets and ledgers over HTTP: what is shown to whom, and how a budget is changed."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest
from bookkeeping import Books, add_dataset, add_grant, guarantee, open_books
from front_desk import Desk, Person, front_desk

from app.engine.privacy.loss import Accountant
from app.ledger import accounts, admission
from app.ledger.chain import FIELDS, Entry
from app.ledger.terms import Terms
from app.problems import BudgetExceeded


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    with front_desk(tmp_path_factory.mktemp("desk")) as desk:
        yield desk


def open_case(desk: Desk, *terms: Any, **more: Any) -> tuple[Books, Person, str]:
    """An account with its custodian, and the path of its dataset."""
    books = open_books(desk.database, *terms, **more)
    with desk.database.write() as session:
        custodian = desk.with_key(desk.key_for(session, books.owner_id))
    return books, custodian, f"/datasets/{books.dataset_id}"


def spend(books: Books, **asked: str) -> None:
    with books.database.write() as session:
        books.admit(session, guarantee(**asked))


def test_a_zcdp_budget_reads_in_rho_and_says_what_epsilon_the_spending_is(desk: Desk) -> None:
    books, custodian, path = open_case(desk, "10", "1e-6", Accountant.ZCDP)
    for _ in range(3):
        spend(books, epsilon="1", delta="1e-6")
    budget = custodian.get(f"{path}/budget").json()
    assert budget["accountant"] == "zcdp"
    assert budget["budget"] == {"epsilon": "10", "delta": "0.000001"}
    assert round(Decimal(budget["cap"]["rho"]), 5) == Decimal("1.53928")
    assert round(Decimal(budget["spent"]["rho"]) / 3, 7) == Decimal("0.0243560")
    assert Decimal(budget["spent"]["rho"]) + Decimal(budget["remaining"]["rho"]) == Decimal(
        budget["cap"]["rho"]
    )
    assert budget["releases"] == 3
    assert budget["epsilon_at_delta"]["delta"] == "0.000001"
    assert 1.7 < float(budget["epsilon_at_delta"]["epsilon"]) < 1.9
    assert budget["allowance"] is None
    assert budget["state"] == "open"


def test_an_exhausted_zcdp_account_reads_the_epsilon_of_its_budget(desk: Desk) -> None:
    books, custodian, path = open_case(desk, "2", "1e-6", Accountant.ZCDP, "1e-7")
    rho = custodian.get(f"{path}/budget").json()["cap"]["rho"]
    spend(books, rho=rho)
    budget = custodian.get(f"{path}/budget").json()
    assert budget["remaining"]["rho"] == "0"
    assert 1.999999 < float(budget["epsilon_at_delta"]["epsilon"]) <= 2


def test_an_analyst_sees_totals_only_if_the_grant_shows_them(desk: Desk) -> None:
    books, custodian, path = open_case(desk, "10", "1e-6")
    analyst = desk.person("analyst")
    with desk.database.write() as session:
        grant = add_grant(session, books.dataset_id, analyst.id, cap=(10**12, 0))
        books.admit(session, guarantee(epsilon="0.25"), grant=grant, reveal_account=False)
        books.admit(session, guarantee(epsilon="3"))
    hidden = analyst.get(f"{path}/budget").json()
    shown_fields = {"state", "accountant", "allowance"}
    assert {name for name, value in hidden.items() if value is not None} == shown_fields
    assert hidden["allowance"] == {
        "cap": {"epsilon": "1", "delta": "0"},
        "cap_as_epsilon": None,
        "spent": {"epsilon": "0.25", "delta": "0"},
        "spent_as_epsilon": None,
        "remaining": {"epsilon": "0.75", "delta": "0"},
        "remaining_as_epsilon": None,
    }
    lines = analyst.get(f"{path}/ledger").json()["items"]
    assert [line["kind"] for line in lines] == ["charge"]
    assert lines[0]["amount"] == {"epsilon": "0.25", "delta": "0"}
    assert lines[0]["spent_after"] is None
    verdict = {"ok": True, "entries": None, "head_hash": None, "problems": None}
    assert analyst.get(f"{path}/ledger/verification").json() == verdict
    custodian.patch(f"{path}/grants/{grant.id}", {"show_budget": True})
    assert analyst.get(f"{path}/budget").json()["spent"] == {"epsilon": "3.25", "delta": "0"}
    assert len(analyst.get(f"{path}/ledger").json()["items"]) == 1


def test_a_raise_needs_the_etag_of_the_budget_as_it_is_and_stands_in_the_ledger(
    desk: Desk,
) -> None:
    books, custodian, path = open_case(desk, "1", "1e-6")
    spend(books, epsilon="1")
    seen = custodian.get(f"{path}/budget")
    change = {"epsilon": 2, "delta": "2e-6", "reason": "A second wave."}
    assert custodian.put(f"{path}/budget", change).status_code == 428
    stale = {"If-Match": '"stale"'}
    assert custodian.put(f"{path}/budget", change, **stale).status_code == 412
    fresh = {"If-Match": f'"stale", {seen.headers["ETag"]}'}
    raised = custodian.put(f"{path}/budget", change, **fresh)
    assert raised.status_code == 200, raised.text
    assert raised.headers["ETag"] == custodian.get(f"{path}/budget").headers["ETag"]
    assert raised.json()["budget"] == {"epsilon": "2", "delta": "0.000002"}
    assert raised.json()["changes"] == 1
    assert "highest cap" in raised.json()["note"]
    assert custodian.put(f"{path}/budget", change, **fresh).status_code == 412
    spend(books, epsilon="1")
    line = custodian.get(f"{path}/ledger").json()["items"][2]
    assert line["kind"] == "budget"
    assert line["detail"]["reason"] == "A second wave."
    assert line["detail"]["before"]["budget"] == {"epsilon": "1", "delta": "0.000001"}
    assert custodian.get("/audit").json()["items"][0]["action"] == "budget.changed"
    assert custodian.get(f"{path}/ledger/verification").json()["ok"]


def test_a_charge_makes_the_etag_of_a_budget_stale(desk: Desk) -> None:
    books, custodian, path = open_case(desk, "1")
    seen = {"If-Match": custodian.get(f"{path}/budget").headers["ETag"]}
    spend(books, epsilon="0.1")
    change = {"epsilon": 2, "reason": "more"}
    assert custodian.put(f"{path}/budget", change, **seen).status_code == 412


def test_a_budget_can_be_lowered_to_what_is_spent_and_the_highest_cap_stays(desk: Desk) -> None:
    books, custodian, path = open_case(desk, "3", "1e-6")
    spend(books, epsilon="1")
    any_tag = {"If-Match": "*"}
    below = custodian.put(f"{path}/budget", {"epsilon": "0.999", "reason": "x"}, **any_tag)
    assert below.status_code == 409
    assert below.json()["errors"][0]["pointer"] == "/epsilon"
    lowered = custodian.put(f"{path}/budget", {"epsilon": "1", "reason": "x"}, **any_tag).json()
    assert lowered["remaining"]["epsilon"] == "0"
    assert lowered["budget"]["delta"] == "0.000001"
    assert lowered["highest_cap"]["epsilon"] == "3"
    with pytest.raises(BudgetExceeded):
        spend(books, epsilon="0.1")


def test_only_the_custodian_changes_a_budget(desk: Desk) -> None:
    books, _, path = open_case(desk, "3")
    analyst = desk.person("analyst")
    with desk.database.write() as session:
        add_grant(session, books.dataset_id, analyst.id)
    change = {"epsilon": 9, "reason": "please"}
    assert analyst.put(f"{path}/budget", change).status_code == 403
    assert desk.person("custodian").put(f"{path}/budget", change).status_code == 404


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"reason": "x"}, "/epsilon"),
        ({"epsilon": 1}, "/reason"),
        ({"epsilon": 1, "reason": "  "}, "/reason"),
        ({"epsilon": 0, "reason": "x"}, "/epsilon"),
        ({"epsilon": "1e-13", "reason": "x"}, "/epsilon"),
        ({"epsilon": "1e20", "reason": "x"}, "/epsilon"),
        ({"epsilon": 1, "delta": 1, "reason": "x"}, "/delta"),
        ({"epsilon": 1, "delta_for_approximate": "1e-9", "reason": "x"}, "/delta_for_approximate"),
        ({"epsilon": 1, "reason": "x", "accountant": "zcdp"}, "/accountant"),
        ({"epsilon": True, "reason": "x"}, "/epsilon"),
    ],
)
def test_budgets_that_cannot_be_are_422_at_the_field(
    desk: Desk, body: dict[str, Any], pointer: str
) -> None:
    _, custodian, path = open_case(desk, "1", "1e-6")
    answer = custodian.put(f"{path}/budget", body, **{"If-Match": "*"})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == pointer


@pytest.mark.parametrize(
    ("written", "status"),
    [
        ("NaN", 400),
        ("Infinity", 400),
        ("+1", 400),
        ("01", 400),
        ("0x1", 400),
        ("1_0", 400),
        ("9" * 5000, 400),
        ("1e400", 422),
        ("1e-400", 422),
        ("-1", 422),
        ('"1e400"', 422),
        ('"NaN"', 422),
        ('"+1"', 422),
        ('"0x1"', 422),
        ('"1_0"', 422),
        ('" 1"', 422),
        ('"1."', 422),
        ('".5"', 422),
        ('"\\u0661"', 422),
        ('"' + "1" * 41 + '"', 422),
        ("null", 422),
        ("[1]", 422),
        ("2", 200),
        ("2.50", 200),
        ('"25e-1"', 200),
        ("2.5E+0", 200),
    ],
)
def test_how_an_amount_may_be_written(desk: Desk, written: str, status: int) -> None:
    _, custodian, path = open_case(desk, "1")
    answer = custodian.call(
        "PUT",
        f"{path}/budget",
        content=f'{{"epsilon": {written}, "reason": "x"}}'.encode(),
        headers={"If-Match": "*", "Content-Type": "application/json"},
    )
    assert answer.status_code == status, answer.text
    assert answer.headers["Content-Type"].startswith("application/")


def test_no_digit_of_an_amount_is_lost(desk: Desk) -> None:
    _, custodian, path = open_case(desk, "1")
    answer = custodian.call(
        "PUT",
        f"{path}/budget",
        content=b'{"epsilon": 1234567.000000000001, "reason": "x"}',
        headers={"If-Match": "*", "Content-Type": "application/json"},
    )
    assert answer.json()["budget"]["epsilon"] == "1234567.000000000001"


def test_datasets_that_share_an_account_share_its_ledger_for_the_custodian_alone(
    desk: Desk,
) -> None:
    books, custodian, path = open_case(desk, "5", "1e-6")
    analyst = desk.person("analyst")
    with desk.database.write() as session:
        second = add_dataset(session, books.owner_id, books.account_id).id
        accounts.join_account(
            session,
            account=books.account(session),
            dataset_id=second,
            principal_id=books.owner_id,
        )
        for dataset_id in (books.dataset_id, second):
            grant = add_grant(session, dataset_id, analyst.id)
            admission.admit(
                session,
                account=books.account(session),
                grant=grant,
                reveal_account=False,
                terms=Terms.of(guarantee(epsilon="1"), Accountant.BASIC),
                dataset_id=dataset_id,
                release_id=f"rl_{dataset_id}",
                principal_id=analyst.id,
                detail={"synthesizer": "histogram"},
            )
    for shared in (path, f"/datasets/{second}"):
        lines = custodian.get(f"{shared}/ledger").json()["items"]
        assert [line["kind"] for line in lines] == ["opened", "joined", "charge", "charge"]
        assert custodian.get(f"{shared}/budget").json()["releases"] == 2
        assert custodian.get(f"{shared}/ledger/verification").json()["entries"] == 4
    own = analyst.get(f"/datasets/{second}/ledger").json()["items"]
    assert [line["dataset_id"] for line in own] == [second]


def test_a_ledger_is_read_in_pages(desk: Desk) -> None:
    books, custodian, path = open_case(desk, "5")
    for _ in range(4):
        spend(books, epsilon="0.5")
    sequences: list[int] = []
    cursor: str | None = None
    for _ in range(3):
        sent = {"limit": 2, **({"cursor": cursor} if cursor else {})}
        page = custodian.get(f"{path}/ledger", params=sent).json()
        sequences += [line["sequence"] for line in page["items"]]
        cursor = page["next"]
    assert sequences == [1, 2, 3, 4, 5]
    assert cursor is None


def test_an_account_that_does_not_add_up_makes_the_service_unready_and_says_so(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with front_desk(tmp_path_factory.mktemp("broken")) as desk:
        books, custodian, path = open_case(desk, "5")
        with desk.database.write() as session:
            books.account(session).spent_primary = 7
        assert custodian.call("GET", "/../readyz").status_code == 503
        verdict = custodian.get(f"{path}/ledger/verification").json()
        assert verdict["ok"] is False
        assert verdict["problems"] == ["what the account has spent is not the sum of its ledger"]


def test_the_hashes_of_own_entries_do_not_tell_a_hidden_total(desk: Desk) -> None:
    books, custodian, path = open_case(desk, "5")
    analyst = desk.person("analyst")
    with desk.database.write() as session:
        grant = add_grant(session, books.dataset_id, analyst.id)
        books.admit(session, guarantee(epsilon="0.3"))
        books.admit(session, guarantee(epsilon="0.2"), grant=grant)

    def tenths_that_fit(line: dict[str, Any]) -> int | None:
        """The total, in tenths of epsilon, with which the entry has its hash."""
        shown = {name: line[name] for name in FIELDS if name in line}
        for tenths in range(51):
            entry = Entry(
                **shown,
                account_id=books.account_id,
                primary=2 * 10**11,
                delta=0,
                spent_primary=tenths * 10**11,
                spent_delta=0,
            )
            if entry.hash_after(line["previous_hash"]) == line["hash"]:
                return tenths
        return None

    whole = custodian.get(f"{path}/ledger").json()["items"][-1]
    (seen,) = analyst.get(f"{path}/ledger").json()["items"]
    assert seen == {**whole, "spent_after": None, "detail": seen["detail"]}
    assert tenths_that_fit(whole) == 5
    assert tenths_that_fit(seen) is None

"""Admission: what fits is charged everywhere at once, what does not changes nothing."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pytest
from bookkeeping import Books, add_grant, add_principal, guarantee, make_store, open_books

from app.database import Database, new_id
from app.engine.privacy.loss import Accountant, Charge
from app.integrity import ledgers
from app.ledger import accounts, admission, budgets
from app.ledger.models import GrantRow
from app.ledger.terms import Terms
from app.problems import BudgetExceeded, Conflict, Invalid, NotFound


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    database = make_store(tmp_path)
    yield database
    database.close()


def admit_until_refused(books: Books, most: int, **asked: str) -> tuple[int, BudgetExceeded]:
    admitted = 0
    with books.database.write() as session:
        for _ in range(most):
            try:
                books.admit(session, guarantee(**asked))
            except BudgetExceeded as refusal:
                return admitted, refusal
            admitted += 1
    pytest.fail("nothing was ever refused")


def test_ten_releases_of_a_tenth_exhaust_a_budget_of_one(database: Database) -> None:
    books = open_books(database, "1")
    admitted, refusal = admit_until_refused(books, 20, epsilon="0.1")
    assert admitted == 10
    assert refusal.extra == {
        "requested": {"epsilon": "0.1", "delta": "0"},
        "requested_as_epsilon": None,
        "spent": {"epsilon": "1", "delta": "0"},
        "spent_as_epsilon": None,
        "remaining": {"epsilon": "0", "delta": "0"},
        "remaining_as_epsilon": None,
        "scope": "account",
        "limited_by": "epsilon",
        "largest_epsilon": None,
    }
    assert refusal.detail == (
        "The release costs epsilon 0.1. The dataset's budget has epsilon 0 left."
    )


@pytest.mark.parametrize(
    ("accountant", "aside", "asked", "count", "limit"),
    [
        (Accountant.ZCDP, "0", {"epsilon": "1", "delta": "1e-6"}, 63, "rho"),
        (Accountant.ZCDP, "1e-7", {"epsilon": "1", "delta": "1e-6"}, 62, "rho"),
        (Accountant.BASIC, "0", {"epsilon": "1", "delta": "1e-6"}, 1, "delta"),
        (Accountant.BASIC, "0", {"epsilon": "1", "delta": "1e-7"}, 10, "epsilon"),
    ],
)
def test_how_many_releases_a_budget_of_ten_admits(
    database: Database,
    accountant: Accountant,
    aside: str,
    asked: dict[str, str],
    count: int,
    limit: str,
) -> None:
    books = open_books(database, "10", "1e-6", accountant, aside)
    admitted, refusal = admit_until_refused(books, 70, **asked)
    assert admitted == count
    assert refusal.extra["limited_by"] == limit


def test_forty_threads_on_a_budget_for_ten_admit_exactly_ten(database: Database) -> None:
    books = open_books(database, "1")
    outcomes: list[bool] = []
    start = threading.Barrier(40)

    def ask() -> None:
        start.wait()
        try:
            with database.write() as session:
                books.admit(session, guarantee(epsilon="0.1"))
        except BudgetExceeded:
            outcomes.append(False)
        else:
            outcomes.append(True)

    threads = [threading.Thread(target=ask) for _ in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (outcomes.count(True), outcomes.count(False)) == (10, 30)
    with database.read() as session:
        assert ledgers.verify(session, books.account_id).ok


def test_a_refusal_changes_nothing_even_if_the_caller_goes_on(database: Database) -> None:
    books = open_books(database, "10")
    with database.write() as session:
        analyst = add_principal(session, analyst=True)
        grant = add_grant(session, books.dataset_id, analyst.id, cap=(10**12, 0))
        with pytest.raises(BudgetExceeded) as refused:
            books.admit(session, guarantee(epsilon="2"), grant=grant)
        assert refused.value.extra["scope"] == "grant"
        books.admit(session, guarantee(epsilon="1"), grant=grant)
    with database.read() as session:
        account = books.account(session)
        assert (account.spent_primary, account.entries) == (10**12, 2)
        assert ledgers.verify(session, books.account_id).ok


def test_an_allowance_is_a_share_and_never_extra(database: Database) -> None:
    books = open_books(database, "1")
    with database.write() as session:
        grants = [
            add_grant(
                session,
                books.dataset_id,
                add_principal(session, analyst=True).id,
                cap=(8 * 10**11, 0),
            )
            for _ in range(2)
        ]
        books.admit(session, guarantee(epsilon="0.8"), grant=grants[0])
        with pytest.raises(BudgetExceeded) as refused:
            books.admit(session, guarantee(epsilon="0.8"), grant=grants[1], reveal_account=False)
    assert refused.value.extra["scope"] == "account"
    told = ("spent", "remaining", "limited_by", "largest_epsilon")
    assert [refused.value.extra[name] for name in told] == [None] * 4


@pytest.mark.parametrize(
    ("cap", "limit"),
    [
        ((2 * 10**12, 10**11), None),
        ((10**12, 10**12), None),
        ((10**12 - 1, 10**12), "epsilon"),
        ((10**13, 10**11 - 1), "delta"),
        ((10**13, 0), "delta"),
    ],
)
@pytest.mark.parametrize("scope", ["account", "grant"])
def test_epsilon_and_delta_are_both_limits_to_the_last_unit(
    database: Database, scope: str, cap: tuple[int, int], limit: str | None
) -> None:
    """One unit less than (1, 1e-7) of either refuses, in the account as in an allowance."""
    wide = ("100", "1e-6")
    own = (str(Decimal(cap[0]) / 10**12), str(Decimal(cap[1]) / 10**18))
    books = open_books(database, *(own if scope == "account" else wide))
    asked = guarantee(epsilon="1", delta="1e-7")
    with database.write() as session:
        analyst = add_principal(session, analyst=True)
        allowance = cap if scope == "grant" else None
        grant = add_grant(session, books.dataset_id, analyst.id, cap=allowance)
        if limit is None:
            books.admit(session, asked, grant=grant)
        else:
            with pytest.raises(BudgetExceeded) as refused:
                books.admit(session, asked, grant=grant)
            assert refused.value.extra["limited_by"] == limit
            assert refused.value.extra["scope"] == scope
        spent = (0, 0) if limit else (10**12, 10**11)
        session.refresh(grant)
        account = books.account(session)
        assert (account.spent_primary, account.spent_delta) == spent
        assert (grant.spent_primary, grant.spent_delta) == spent


def test_a_refusal_of_the_allowance_states_what_both_scopes_can_cover_if_both_are_shown(
    database: Database,
) -> None:
    books = open_books(database, "1")
    with database.write() as session:
        analyst = add_principal(session, analyst=True)
        grant = add_grant(session, books.dataset_id, analyst.id, cap=(5 * 10**11, 0))
        books.admit(session, guarantee(epsilon="0.3"))
        for shown, largest in ((True, "0.5"), (False, "0.5")):
            with pytest.raises(BudgetExceeded) as refused:
                books.admit(session, guarantee(epsilon="0.6"), grant=grant, reveal_account=shown)
            assert refused.value.extra["largest_epsilon"] == largest
        books.admit(session, guarantee(epsilon="0.4"))
        with pytest.raises(BudgetExceeded) as refused:
            books.admit(session, guarantee(epsilon="0.6"), grant=grant)
        # Both fall short: the caller's own limit comes first, with its own remainder.
        assert refused.value.extra["scope"] == "grant"
        assert refused.value.extra["remaining"] == {"epsilon": "0.5", "delta": "0"}
        assert refused.value.extra["largest_epsilon"] == "0.3"
        with pytest.raises(BudgetExceeded) as refused:
            books.admit(session, guarantee(epsilon="0.4"), grant=grant)
        assert refused.value.extra["scope"] == "account"


def test_a_refusal_in_rho_tells_epsilon_at_the_requests_own_delta(database: Database) -> None:
    books = open_books(database, "10", "1e-6", Accountant.ZCDP)
    asked = {"epsilon": "1", "delta": "1e-6"}
    _, refusal = admit_until_refused(books, 70, **asked)
    told = refusal.extra
    assert told["requested_as_epsilon"] == {"epsilon": "1", "delta": "0.000001"}
    assert told["remaining_as_epsilon"]["epsilon"] == told["largest_epsilon"]
    spent = Decimal(told["spent_as_epsilon"]["epsilon"])
    assert spent < 10, "what was spent is within the budget at the budget's delta"
    # Rho adds up and epsilon does not: of 10, far more is left than 10 less what was spent.
    assert spent + Decimal(told["largest_epsilon"]) > 10
    for figure in (told["requested"]["rho"], told["remaining"]["rho"], told["largest_epsilon"]):
        assert figure in refusal.detail


def test_a_refusal_of_a_request_in_rho_tells_epsilon_at_a_usual_delta(database: Database) -> None:
    books = open_books(database, "1", "1e-6", Accountant.ZCDP)
    with database.write() as session, pytest.raises(BudgetExceeded) as refused:
        books.admit(session, guarantee(rho="0.1"))
    told = refused.value.extra
    assert told["requested_as_epsilon"]["delta"] == "0.000001"
    assert Decimal(told["requested_as_epsilon"]["epsilon"]) == pytest.approx(
        Decimal("2.15"), abs=Decimal("0.05")
    )


def test_a_revoked_grant_admits_nothing(database: Database) -> None:
    books = open_books(database, "1")
    with database.write() as session:
        grant = add_grant(session, books.dataset_id, add_principal(session, analyst=True).id)
        grant.state = "revoked"
        session.flush()
        with pytest.raises(NotFound):
            books.admit(session, guarantee(epsilon="0.1"), grant=grant)
        assert books.account(session).spent_primary == 0


@pytest.mark.parametrize(
    ("accountant", "asked", "pointer"),
    [
        (Accountant.BASIC, {"rho": "0.1"}, "/guarantee"),
        (Accountant.ZCDP, {"rho": "0.1", "delta": "1e-7"}, "/guarantee/delta"),
    ],
)
def test_a_guarantee_that_the_accountant_does_not_take_is_invalid(
    database: Database, accountant: Accountant, asked: dict[str, str], pointer: str
) -> None:
    books = open_books(database, "10", "1e-6", accountant)
    with database.write() as session, pytest.raises(Invalid) as refused:
        books.admit(session, guarantee(**asked))
    assert refused.value.errors[0].pointer == pointer


@pytest.mark.parametrize("accountant", list(Accountant))
@pytest.mark.parametrize("delta", [None, "1e-7"])
def test_the_largest_epsilon_is_admitted_and_one_unit_more_is_not(
    database: Database, accountant: Accountant, delta: str | None
) -> None:
    books = open_books(database, "3", "1e-6", accountant)
    with database.write() as session:
        books.admit(session, guarantee(epsilon="0.3", delta=delta))
        with pytest.raises(BudgetExceeded) as refused:
            books.admit(session, guarantee(epsilon="9", delta=delta))
        largest = refused.value.extra["largest_epsilon"]
        just_more = str(Decimal(largest) + Decimal("1e-12"))
        with pytest.raises(BudgetExceeded):
            books.admit(session, guarantee(epsilon=just_more, delta=delta))
        books.admit(session, guarantee(epsilon=largest, delta=delta))


def test_a_preview_tells_what_admission_would_and_changes_nothing(database: Database) -> None:
    books = open_books(database, "1", "1e-6")
    with database.write() as session:
        analyst = add_principal(session, analyst=True)
        grant = add_grant(session, books.dataset_id, analyst.id, cap=(5 * 10**11, 0))
        account = books.account(session)

        def look(epsilon: str, reveal: bool, by: GrantRow | None) -> admission.Preview:
            return admission.preview(
                session,
                account=account,
                grant=by,
                reveal_account=reveal,
                terms=Terms.of(guarantee(epsilon=epsilon), Accountant.BASIC),
            )

        assert look("0.4", True, None).remaining_after == {"epsilon": "0.6", "delta": "0.000001"}
        least = {"epsilon": "0.1", "delta": "0"}
        assert look("0.4", False, grant).remaining_after == least
        assert look("0.4", True, grant).remaining_after == least
        assert look("0.6", False, grant).fits is False
        assert look("0.6", False, grant).remaining_after is None
        assert books.account(session).entries == 1


@pytest.mark.parametrize("cap", [None, (5 * 10**11, 0)])
def test_no_preview_depends_on_what_a_hidden_account_has_left(
    database: Database, cap: tuple[int, int] | None
) -> None:
    """The same answers from a full account and from one that is spent."""
    seen = []
    for spent in (None, "1"):
        books = open_books(database, "1")
        with database.write() as session:
            analyst = add_principal(session, analyst=True)
            grant = add_grant(session, books.dataset_id, analyst.id, cap=cap)
            if spent:
                books.admit(session, guarantee(epsilon=spent))
            previews = [
                admission.preview(
                    session,
                    account=books.account(session),
                    grant=grant,
                    reveal_account=False,
                    terms=Terms.of(guarantee(epsilon=epsilon), Accountant.BASIC),
                )
                for epsilon in ("0.5", "0.6", "2")
            ]
        seen.append(
            [(each.fits, each.remaining_after, each.refusal and each.refusal.extra)
             for each in previews]
        )  # fmt: skip
    assert seen[0] == seen[1]
    assert [fits for fits, *_ in seen[0]] == ([True] * 3 if cap is None else [True, False, False])


def test_a_hidden_account_refuses_nothing_that_the_allowance_explains(database: Database) -> None:
    books = open_books(database, "1")
    with database.write() as session:
        analyst = add_principal(session, analyst=True)
        grant = add_grant(session, books.dataset_id, analyst.id, cap=(5 * 10**11, 0))
        books.admit(session, guarantee(epsilon="1"))
        for shown in (True, False):
            with pytest.raises(BudgetExceeded) as refused:
                books.admit(session, guarantee(epsilon="0.6"), grant=grant, reveal_account=shown)
            assert refused.value.extra["scope"] == "grant"


def test_a_refund_gives_back_once_to_account_and_grant(database: Database) -> None:
    books = open_books(database, "1")
    with database.write() as session:
        analyst = add_principal(session, analyst=True)
        grant = add_grant(session, books.dataset_id, analyst.id, cap=(10**12, 0))
        release_id = new_id("rl")
        charge = books.admit(
            session, guarantee(epsilon="1"), grant=grant, release_id=release_id
        ).charge
        assert accounts.has_charges(session, books.account_id)

        def give_back(amount: Charge, grant_id: str | None = grant.id) -> None:
            admission.refund(
                session,
                account_id=books.account_id,
                grant_id=grant_id,
                dataset_id=books.dataset_id,
                release_id=release_id,
                principal_id=analyst.id,
                charge=amount,
            )

        for wrong in (Charge(charge.primary - 1), Charge(charge.primary, 1)):
            with pytest.raises(Conflict):
                give_back(wrong)
        with pytest.raises(Conflict):
            give_back(charge, None)
        give_back(charge)
        with pytest.raises(Conflict):
            give_back(charge)
        assert not accounts.has_charges(session, books.account_id)
        assert grant.spent_primary == 0
    with database.read() as session:
        assert ledgers.verify(session, books.account_id).ok


def test_a_refund_gives_back_what_one_release_cost_and_no_more(database: Database) -> None:
    books = open_books(database, "3", "1e-6")
    with database.write() as session:
        analyst = add_principal(session, analyst=True)
        grant = add_grant(session, books.dataset_id, analyst.id, cap=(3 * 10**12, 10**12))
        asked = {"rl_kept": ("2", "3e-7"), "rl_returned": ("1", "2e-7")}
        for release_id, (epsilon, delta) in asked.items():
            terms = guarantee(epsilon=epsilon, delta=delta)
            books.admit(session, terms, grant=grant, release_id=release_id)
        admission.refund(
            session,
            account_id=books.account_id,
            grant_id=grant.id,
            dataset_id=books.dataset_id,
            release_id="rl_returned",
            principal_id=analyst.id,
            charge=Charge(10**12, 2 * 10**11),
        )
        session.refresh(grant)
        account = books.account(session)
        kept = (2 * 10**12, 3 * 10**11)
        assert (account.spent_primary, account.spent_delta) == kept
        assert (grant.spent_primary, grant.spent_delta) == kept


@pytest.mark.parametrize(
    ("epsilon", "delta", "field"),
    [("1", "3e-7", None), ("0.999999999999", "1e-6", "epsilon"), ("9", "2.99999999e-7", "delta")],
)
def test_a_budget_is_set_to_no_less_than_what_was_spent_of_either_amount(
    database: Database, epsilon: str, delta: str, field: str | None
) -> None:
    books = open_books(database, "5", "1e-6")
    with database.write() as session:
        books.admit(session, guarantee(epsilon="1", delta="3e-7"))
        account = books.account(session)

        def change() -> None:
            budgets.change(
                session,
                account,
                dataset_id=books.dataset_id,
                principal_id=books.owner_id,
                epsilon=Decimal(epsilon),
                delta=Decimal(delta),
                delta_for_approximate=None,
                reason="less is left",
            )

        if field is None:
            change()
            return
        with pytest.raises(Conflict) as refused:
            change()
        assert [each.pointer for each in refused.value.errors] == [f"/{field}"]

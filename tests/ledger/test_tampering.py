"""A ledger that somebody changed by hand is noticed, closed, and admits nothing more."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from bookkeeping import Books, add_grant, add_principal, guarantee, make_store, open_books

from app.database import Database, new_id
from app.engine.privacy.loss import Accountant
from app.integrity import ledgers
from app.integrity.startup import check_ledgers
from app.ledger import admission, entries, repository
from app.ledger.chain import FIELDS
from app.ledger.verification import AccountFacts, unbalanced_accounts

OTHER: dict[str, Any] = {
    "account_id": "ac_other",
    "sequence": 9,
    "kind": "refund",
    "dataset_id": "ds_other",
    "release_id": "rl_other",
    "principal_id": "pr_other",
    "grant_id": "gr_other",
    "primary": 1,
    "delta": 1,
    "spent_primary": 1,
    "spent_delta": 1,
    "detail": json.dumps({"guarantee": {"epsilon": "9"}}),
    "at": "2020-01-01T00:00:00.000000Z",
    "previous_hash": "0" * 63 + "1",
    "hash": "0" * 63 + "1",
}


@pytest.fixture(scope="module")
def untouched(tmp_path_factory: pytest.TempPathFactory) -> Books:
    """Three entries: opened, a charge to a grant, a charge of the custodian's."""
    database = make_store(tmp_path_factory.mktemp("untouched"))
    books = open_books(database, "10", "1e-6", Accountant.ZCDP)
    with database.write() as session:
        grant = add_grant(session, books.dataset_id, add_principal(session, analyst=True).id)
        books.admit(session, guarantee(epsilon="1", delta="1e-6"), grant=grant)
        books.admit(session, guarantee(epsilon="1", delta="1e-6"))
    database.checkpoint()
    database.close()
    return books


@pytest.fixture
def books(untouched: Books, tmp_path: Path) -> Iterator[Books]:
    shutil.copy(untouched.database.path, tmp_path / "store.sqlite")
    database = Database(f"sqlite:///{tmp_path}/store.sqlite")
    yield replace(untouched, database=database)
    database.close()


def tamper(database: Database, statement: str, **values: Any) -> None:
    """As somebody would with the file at hand: no check, no reference, no service."""
    with closing(sqlite3.connect(database.path)) as connection:
        connection.execute("PRAGMA ignore_check_constraints = ON")
        connection.execute(statement, values)
        connection.commit()


def is_whole(books: Books) -> bool:
    with books.database.read() as session:
        return ledgers.verify(session, books.account_id).ok


def test_untouched_books_are_whole(books: Books) -> None:
    assert is_whole(books)
    assert check_ledgers(books.database) == ()


@pytest.mark.parametrize("field", [*FIELDS, "previous_hash", "hash"])
@pytest.mark.parametrize("sequence", [1, 2, 3])
def test_a_change_of_any_field_of_any_entry_is_noticed(
    books: Books, field: str, sequence: int
) -> None:
    tamper(
        books.database,
        f'UPDATE ledger SET "{field}" = :value WHERE sequence = :sequence',
        value=OTHER[field],
        sequence=sequence,
    )
    assert not is_whole(books)


def test_a_detail_that_is_no_json_is_noticed(books: Books) -> None:
    tamper(books.database, "UPDATE ledger SET detail = 'x' WHERE sequence = 2")
    with books.database.read() as session:
        assert "entry 2 cannot be read" in ledgers.verify(session, books.account_id).problems


@pytest.mark.parametrize("field", list(AccountFacts.__dataclass_fields__)[1:])
def test_a_change_of_any_figure_of_the_account_is_noticed(books: Books, field: str) -> None:
    other = {"accountant": "basic", "unit_kind": "entity"}
    tamper(
        books.database,
        f'UPDATE accounts SET "{field}" = :value',
        value=other.get(field, 77),
    )
    assert not is_whole(books)


@pytest.mark.parametrize("kept", [0, 1, 2])
def test_entries_cut_off_the_end_are_missed(books: Books, kept: int) -> None:
    tamper(books.database, "DELETE FROM ledger WHERE sequence > :kept", kept=kept)
    assert not is_whole(books)


def test_a_charge_cut_off_with_its_refund_is_missed(books: Books) -> None:
    release_id = new_id("rl")
    with books.database.write() as session:
        charge = books.admit(session, guarantee(epsilon="1"), release_id=release_id).charge
        admission.refund(
            session,
            account_id=books.account_id,
            grant_id=None,
            dataset_id=books.dataset_id,
            release_id=release_id,
            principal_id=books.owner_id,
            charge=charge,
        )
    tamper(books.database, "DELETE FROM ledger WHERE sequence > 3")
    assert not is_whole(books)


def test_an_entry_taken_from_the_middle_is_missed(books: Books) -> None:
    tamper(books.database, "DELETE FROM ledger WHERE sequence = 2")
    tamper(books.database, "UPDATE ledger SET sequence = 2 WHERE sequence = 3")
    assert not is_whole(books)


def test_what_a_grant_has_spent_is_held_against_its_entries(books: Books) -> None:
    tamper(books.database, "UPDATE grants SET spent_primary = 0")
    assert not is_whole(books)


def test_a_dataset_moved_onto_the_account_by_hand_is_noticed(books: Books) -> None:
    other = open_books(books.database, "1")
    tamper(
        books.database,
        "UPDATE datasets SET account_id = :account WHERE id = :dataset",
        account=books.account_id,
        dataset=other.dataset_id,
    )
    assert not is_whole(books)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE accounts SET spent_primary = 0",
        "UPDATE accounts SET entries = entries - 1",
        "DELETE FROM ledger WHERE sequence = 3",
    ],
)
def test_books_that_no_longer_balance_admit_nothing_even_before_they_are_verified(
    books: Books, statement: str
) -> None:
    tamper(books.database, statement)
    with books.database.read() as session:
        assert unbalanced_accounts(session) == [books.account_id]
    with pytest.raises(entries.AccountSuspended), books.database.write() as session:
        books.admit(session, guarantee(epsilon="0.1"))


def test_a_start_closes_the_account_whose_ledger_was_changed_and_no_other(books: Books) -> None:
    other = open_books(books.database, "1")
    tamper(
        books.database,
        "UPDATE ledger SET at = :at WHERE account_id = :account AND sequence = 2",
        at=OTHER["at"],
        account=books.account_id,
    )
    broken = check_ledgers(books.database)
    assert [one.account_id for one in broken] == [books.account_id]
    with pytest.raises(entries.AccountSuspended), books.database.write() as session:
        books.admit(session, guarantee(epsilon="0.1"))
    with books.database.write() as session:
        other.admit(session, guarantee(epsilon="0.1"))


def test_a_start_reopens_an_account_whose_ledger_is_whole_again(books: Books) -> None:
    with books.database.write() as session:
        repository.suspend(session, books.account_id, suspended=True)
    assert check_ledgers(books.database) == ()
    with books.database.write() as session:
        books.admit(session, guarantee(epsilon="0.1"))

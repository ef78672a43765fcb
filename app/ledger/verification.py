"""Whether a ledger is intact: its chain, its sums, and the account that it belongs to."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy.orm import Session

from app.engine.privacy.loss import DELTA_UNIT, EPSILON_UNIT, AmountError, parse_amount, to_units
from app.ledger import repository
from app.ledger.chain import GENESIS, KINDS, Entry, Link
from app.ledger.models import AccountRow

# A report for people: one broken entry makes every later one wrong too.
_MOST_PROBLEMS = 100


@dataclass(frozen=True, slots=True)
class AccountFacts:
    """An account's own figures; an intact ledger determines every one of them.

    Amounts in units, as in the tables.
    """

    id: str
    accountant: str
    unit_kind: str
    budget_epsilon: int
    budget_delta: int
    delta_for_approximate: int
    cap_primary: int
    cap_delta: int
    spent_primary: int
    spent_delta: int
    highest_primary: int
    highest_delta: int
    entries: int

    @classmethod
    def of(cls, account: AccountRow) -> AccountFacts:
        return cls(**{name: getattr(account, name) for name in cls.__dataclass_fields__})

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Verification:
    """What verifying an account's ledger found; `problems` names entries by number."""

    account_id: str
    ok: bool
    entries: int
    head_hash: str
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Users:
    """Who draws on an account, as stored outside its ledger.

    `spent_by_grant` gives (primary, delta) for each grant on the account's datasets.
    """

    datasets: Collection[str]
    spent_by_grant: Mapping[str, tuple[int, int]]


class ChainCheck:
    """Walks a chain once, entry by entry, and adds up what the account should say."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self.entries = 0
        self.head_hash = GENESIS
        self.by_grant: dict[str, tuple[int, int]] = {}
        self._spent = (0, 0)
        self._cap = (0, 0)
        self._highest = (0, 0)
        self._opened: Mapping[str, Any] = {}
        self._budget: tuple[int, int, int] | None = None
        self._datasets: set[str] = set()
        self._charges: dict[str, tuple[int, int, str | None]] = {}
        self._refunded: set[str] = set()

    def take(self, link: Link) -> None:
        entry = link.entry
        self.entries += 1
        self._expect(entry.sequence == self.entries, f"entry {self.entries} is missing")
        self._expect(
            link.previous_hash == self.head_hash, f"entry {entry.sequence} does not follow"
        )
        self._expect(
            link.hash == entry.hash_after(link.previous_hash),
            f"entry {entry.sequence} was changed: its hash does not match",
        )
        self._expect(
            (entry.kind == "opened") == (self.entries == 1),
            f"entry {entry.sequence}: the first entry, and only that one, opens the account",
        )
        self._count(entry)
        self._expect(
            (entry.spent_primary, entry.spent_delta) == self._spent,
            f"entry {entry.sequence} states a total that differs from the sum so far",
        )
        self._expect(
            self._spent[0] <= self._cap[0] and self._spent[1] <= self._cap[1],
            f"entry {entry.sequence} exceeds the cap",
        )
        self.head_hash = link.hash

    def _count(self, entry: Entry) -> None:
        amount = (entry.primary, entry.delta)
        if entry.kind in ("opened", "budget"):
            self._put_in_force(entry, amount)
        elif entry.kind == "charge":
            self._charge(entry, amount)
        elif entry.kind == "refund":
            self._refund(entry, amount)
        elif entry.kind == "acknowledged":
            self._move(entry, amount, 1)
        self._expect(entry.kind in KINDS, f"entry {entry.sequence} is of an unknown kind")
        if entry.kind in ("opened", "joined"):
            self._datasets.add(entry.dataset_id)
        self._expect(
            entry.dataset_id in self._datasets,
            f"entry {entry.sequence} is about a dataset that never joined",
        )

    def _put_in_force(self, entry: Entry, cap: tuple[int, int]) -> None:
        self._cap = cap
        self._highest = (max(self._highest[0], cap[0]), max(self._highest[1], cap[1]))
        self._opened = self._opened or entry.detail
        self._budget = _declared_budget(entry.detail)
        self._expect(self._budget is not None, f"entry {entry.sequence} has no readable budget")

    def _charge(self, entry: Entry, amount: tuple[int, int]) -> None:
        release_id = entry.release_id or ""
        self._expect(
            bool(release_id) and release_id not in self._charges,
            f"entry {entry.sequence} charges a release twice, or none",
        )
        self._charges[release_id] = (*amount, entry.grant_id)
        self._move(entry, amount, 1)

    def _refund(self, entry: Entry, amount: tuple[int, int]) -> None:
        release_id = entry.release_id or ""
        self._expect(
            self._charges.get(release_id) == (*amount, entry.grant_id)
            and release_id not in self._refunded,
            f"entry {entry.sequence} gives back what was not charged",
        )
        self._refunded.add(release_id)
        self._move(entry, amount, -1)

    def _move(self, entry: Entry, amount: tuple[int, int], sign: int) -> None:
        self._spent = _moved(self._spent, amount, sign)
        if entry.grant_id is not None:
            so_far = self.by_grant.get(entry.grant_id, (0, 0))
            self.by_grant[entry.grant_id] = _moved(so_far, amount, sign)

    def compare_with(self, account: AccountFacts) -> None:
        """Compare what the chain adds up to with what the account says of itself."""
        # The chain alone cannot show that its newest entries were removed; the account's count can.
        self._expect(self.entries == account.entries, "entries are missing at the end")
        self._expect(
            self._spent == (account.spent_primary, account.spent_delta),
            "what the account has spent is not the sum of its ledger",
        )
        self._expect(
            self._cap == (account.cap_primary, account.cap_delta),
            "the account's cap is not the one that the ledger puts in force",
        )
        self._expect(
            self._highest == (account.highest_primary, account.highest_delta),
            "the account's highest cap is not the highest in the ledger",
        )
        self._expect(
            self._budget
            == (account.budget_epsilon, account.budget_delta, account.delta_for_approximate),
            "the account's budget is not the one in the ledger",
        )
        self._expect(
            (self._opened.get("accountant"), self._opened.get("unit"))
            == (account.accountant, account.unit_kind),
            "the account's accountant or unit is not the one that it was opened with",
        )

    def compare_with_datasets(self, dataset_ids: Collection[str]) -> None:
        for dataset_id in sorted(set(dataset_ids) - self._datasets):
            self._expect(False, f"dataset {dataset_id} uses the account but never joined it")

    def compare_with_grants(self, spent: Mapping[str, tuple[int, int]]) -> None:
        for grant_id in sorted({*spent, *self.by_grant}):
            self._expect(
                spent.get(grant_id) == self.by_grant.get(grant_id, (0, 0)),
                f"what grant {grant_id} has spent is not the sum of its entries",
            )

    def unreadable(self) -> None:
        self._expect(False, f"entry {self.entries + 1} cannot be read")

    def result(self, account_id: str) -> Verification:
        return Verification(
            account_id, not self.problems, self.entries, self.head_hash, tuple(self.problems)
        )

    def _expect(self, holds: bool, problem: str) -> None:
        if not holds and len(self.problems) < _MOST_PROBLEMS:
            self.problems.append(problem)


def _moved(total: tuple[int, int], amount: tuple[int, int], sign: int) -> tuple[int, int]:
    return total[0] + sign * amount[0], total[1] + sign * amount[1]


def _declared_budget(detail: Mapping[str, Any]) -> tuple[int, int, int] | None:
    try:
        budget = detail["budget"]
        return (
            to_units(parse_amount(budget["epsilon"]), EPSILON_UNIT, rounding="down"),
            to_units(parse_amount(budget["delta"]), DELTA_UNIT, rounding="down"),
            to_units(parse_amount(detail["delta_for_approximate"]), DELTA_UNIT, rounding="down"),
        )
    except (KeyError, TypeError, AmountError):
        return None


def verify_chain(account: AccountFacts, links: Iterable[Link]) -> Verification:
    """Verify a ledger by itself, as exported: chain, sums, and the account's own figures."""
    check = ChainCheck()
    _walk(check, links)
    check.compare_with(account)
    return check.result(account.id)


def verify(session: Session, account_id: str, users: Users) -> Verification:
    """Verify a ledger in the store, and what the rest of the store says of its users.

    Raises `LookupError` where there is no such account.
    """
    account = repository.account(session, account_id)
    if account is None:
        raise LookupError(account_id)
    # Counts and sums must be of the same moment as the entries, not from an earlier load.
    session.refresh(account)
    check = ChainCheck()
    _walk(check, repository.links(session, account_id))
    check.compare_with(AccountFacts.of(account))
    check.compare_with_datasets(users.datasets)
    check.compare_with_grants(users.spent_by_grant)
    return check.result(account_id)


def unbalanced_accounts(session: Session) -> list[str]:
    """Accounts that are suspended or whose last entry disagrees with what they have spent:
    cheap enough for the readiness check, which runs often."""
    return repository.unbalanced(session)


def _walk(check: ChainCheck, links: Iterable[Link]) -> None:
    try:
        for link in links:
            check.take(link)
    # Later entries cannot be checked against one that cannot be read.
    except ValueError:
        check.unreadable()

"""The statement of an account: every entry in plain words, to be printed or read as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from app.database import format_time, now
from app.engine.privacy.loss import DELTA_UNIT, EPSILON_UNIT, Accountant, Charge, from_units
from app.ledger.budgets import BudgetView
from app.ledger.chain import Entry, Link
from app.ledger.schemas import (
    AccountStatementOut,
    BudgetOut,
    EpsilonAmounts,
    RhoAmounts,
    StatementLine,
    StatementSum,
    VerificationOut,
    amounts,
)
from app.ledger.snapshot import Snapshot, Sum
from app.ledger.verification import Verification
from app.ledger.words import told

# The page is complete in itself: no script, no picture, no other address.
PAGE_CSP = (
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none';"
    " frame-ancestors 'none'"
)
_PAGES = Environment(
    loader=PackageLoader("app.ledger", "."),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


def head(
    snapshot: Snapshot,
    budget: BudgetView,
    verification: Verification,
    *,
    dataset_id: str,
    dataset_name: str,
    unit: Mapping[str, Any],
) -> AccountStatementOut:
    """All of the statement but its entries, which may be many."""
    accountant = budget.accountant
    return AccountStatementOut(
        dataset_id=dataset_id,
        dataset_name=dataset_name,
        account_id=snapshot.account.id,
        unit=dict(unit),
        made_at=format_time(now()),
        opening=None if snapshot.first is None else _opening(snapshot.first.entry),
        budget=BudgetOut.of(budget),
        charges=_sum(snapshot.sums.get("charge", Sum()), accountant),
        refunds=_sum(snapshot.sums.get("refund", Sum()), accountant),
        acknowledged=_sum(snapshot.sums.get("acknowledged", Sum()), accountant),
        verification=VerificationOut.of(verification, shows_totals=True, shows_problems=True),
        entries=[],
    )


def as_json(head: AccountStatementOut, links: Iterable[Link]) -> Iterator[bytes]:
    """The statement as JSON, an entry at a time."""
    yield head.model_dump_json(exclude={"entries"})[:-1].encode() + b',"entries":['
    for place, line in enumerate(_lines(head, links)):
        yield ("," if place else "").encode() + line.model_dump_json().encode()
    yield b"]}"


def as_page(head: AccountStatementOut, links: Iterable[Link]) -> Iterator[bytes]:
    """The statement as one HTML page, an entry at a time."""
    page = _PAGES.get_template("statement.html")
    pieces = page.generate(
        head=head,
        lines=_lines(head, links),
        told=lambda amounts, beside=None: told(
            amounts.model_dump(), None if beside is None else beside.model_dump()
        ),
    )
    return (piece.encode() for piece in pieces)


def _lines(head: AccountStatementOut, links: Iterable[Link]) -> Iterator[StatementLine]:
    accountant = Accountant(head.budget.accountant)
    return (_line(link.entry, accountant) for link in links)


def _line(entry: Entry, accountant: Accountant) -> StatementLine:
    return StatementLine.model_validate(
        {
            "sequence": entry.sequence,
            "at": entry.at,
            "kind": entry.kind,
            "text": _in_words(entry),
            "dataset_id": entry.dataset_id,
            "release_id": entry.release_id,
            "principal_id": entry.principal_id,
            "guarantee": _stated(entry.detail, "guarantee"),
            "amount": amounts(Charge(entry.primary, entry.delta), accountant),
            "spent_after": amounts(Charge(entry.spent_primary, entry.spent_delta), accountant),
        }
    )


def _in_words(entry: Entry) -> str:
    match entry.kind:
        case "opened":
            return f"Account opened with a budget of {_budget(entry.detail)}."
        case "joined":
            return f"Dataset {entry.dataset_id} joined: it shares the budget from here on."
        case "charge":
            asked = told(_stated(entry.detail, "guarantee") or {}) or "a guarantee"
            made = entry.detail.get("synthesizer")
            by = f", made by {made}" if isinstance(made, str) else ""
            evaluated = entry.detail.get("evaluates")
            if isinstance(evaluated, str):
                by = f", to evaluate release {evaluated}"
            return f"Release {entry.release_id} charged for {asked}{by}."
        case "refund":
            return f"Charge of release {entry.release_id} given back: no run had begun."
        case "budget":
            return f"Budget changed to {_budget(entry.detail)}.{_reason(entry.detail)}"
        case _:
            return (
                "The store was put back to an earlier moment; what it had forgotten was charged"
                f" again.{_reason(entry.detail)}"
            )


def _budget(detail: Mapping[str, Any]) -> str:
    return told(_stated(detail, "budget") or {}) or "unstated size"


def _reason(detail: Mapping[str, Any]) -> str:
    return f" Reason: {detail['reason']}" if detail.get("reason") else ""


def _stated(detail: Mapping[str, Any], name: str) -> dict[str, str] | None:
    """Amounts that an entry states in its detail; None where it states none."""
    found = detail.get(name)
    if not isinstance(found, Mapping):
        return None
    return {str(key): str(value) for key, value in found.items()}


def _opening(entry: Entry) -> EpsilonAmounts | None:
    stated = _stated(entry.detail, "budget")
    return None if stated is None else EpsilonAmounts.model_validate(stated)


def _sum(found: Sum, accountant: Accountant) -> StatementSum:
    # Not as a `Charge`, which has a largest amount: what was given back may be charged again.
    name, terms = (
        ("epsilon", EpsilonAmounts) if accountant is Accountant.BASIC else ("rho", RhoAmounts)
    )
    delta = from_units(found.delta, DELTA_UNIT)
    amount = terms.model_validate({name: from_units(found.primary, EPSILON_UNIT), "delta": delta})
    return StatementSum(entries=found.entries, amount=amount)

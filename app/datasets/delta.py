"""What is wrong with an account's delta: none for values that are discovered, or far too much."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from app.engine.json_pointer import pointer
from app.engine.privacy.loss import DELTA_UNIT, EPSILON_UNIT, Accountant, from_units
from app.ledger.models import AccountRow

# Where nothing else is known; an account's own delta is divided in place of it.
_USUAL_DELTA = "0.000001"
# A thousandth. With probability delta a guarantee says nothing, so it is chosen well below one
# divided by the number of units.
_QUESTIONED = 10**15


@dataclass(frozen=True, slots=True)
class Note:
    """Something that the custodian should know: where, what, and which call mends it."""

    pointer: str
    message: str
    remedy: str


def notes(dataset_id: str, schema: Mapping[str, Any], account: AccountRow | None) -> list[Note]:
    """A note for each column that no release can use as its account is, and one for a delta that
    protects little. From public facts alone."""
    if account is None:
        return []
    if account.budget_delta >= _QUESTIONED:
        return [_too_much(dataset_id, account)]
    if account.cap_delta > 0:
        return []
    found = [place for place, field in enumerate(schema["fields"]) if "values" in field]
    return [
        Note(
            pointer("schema", "fields", place, "values"),
            f"To discover the values of `{schema['fields'][place]['name']}` a release needs delta,"
            f" and the account has none{_for_that(account)}: no release can use the column.",
            _remedy(dataset_id, account),
        )
        for place in found
    ]


def _too_much(dataset_id: str, account: AccountRow) -> Note:
    delta = from_units(account.budget_delta, DELTA_UNIT)
    body = {"epsilon": from_units(account.budget_epsilon, EPSILON_UNIT), "delta": _USUAL_DELTA}
    body["reason"] = "..."
    return Note(
        pointer("budget", "delta"),
        f"A delta of {delta} lets releases publish a person's rows with that probability.",
        "Choose one well below one divided by the number of people or rows. Before the first"
        f" release, PUT /v1/datasets/{dataset_id}/budget with {json.dumps(body)} and If-Match.",
    )


def _for_that(account: AccountRow) -> str:
    return " set aside for it" if account.accountant == Accountant.ZCDP else ""


def _remedy(dataset_id: str, account: AccountRow) -> str:
    body = {"epsilon": from_units(account.budget_epsilon, EPSILON_UNIT), "delta": _USUAL_DELTA}
    if account.accountant == Accountant.ZCDP:
        body["delta"] = from_units(account.budget_delta, DELTA_UNIT)
        # A part that leaves epsilon at nearly the rho that it has.
        body["delta_for_approximate"] = from_units(account.budget_delta // 5, DELTA_UNIT)
    body["reason"] = "..."
    return (
        f"Before the first release, PUT /v1/datasets/{dataset_id}/budget with {json.dumps(body)}"
        " and If-Match; choose the amounts yourself. Or list the values in `constraints/enum`."
    )

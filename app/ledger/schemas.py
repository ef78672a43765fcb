"""Budgets and ledgers as the API sends and receives them."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from app.amounts import Amount
from app.database import format_time
from app.engine.privacy.accounting import BudgetNotAccepted, account_caps
from app.engine.privacy.loss import (
    DELTA_UNIT,
    EPSILON_UNIT,
    RHO_UNIT,
    Accountant,
    AmountError,
    Charge,
    Guarantee,
    from_units,
    to_units,
)
from app.ledger import as_epsilon
from app.ledger.as_epsilon import EpsilonAtDelta
from app.ledger.budgets import BudgetView, Totals
from app.ledger.entries import SALT
from app.ledger.models import LedgerRow
from app.ledger.repository import Position
from app.ledger.terms import Allowance
from app.ledger.verification import Verification
from app.problems import Invalid

_SAMPLE_HASH = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"


class GuaranteeIn(BaseModel):
    """What a release asks for: epsilon, epsilon and delta, rho, or rho and delta."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"epsilon": "1", "delta": "1e-6"}]}
    )

    epsilon: Amount | None = Field(None, description="Epsilon; at least 1e-6.")
    rho: Amount | None = Field(
        None, description="Rho of zero-concentrated differential privacy, in place of epsilon."
    )
    delta: Amount | None = Field(
        None, description="Delta, below 1; 0 or null gives a pure guarantee."
    )

    def to_guarantee(self) -> Guarantee:
        """Costs, so rounded up to units. Raises `Invalid` that points into /guarantee."""
        if (self.epsilon is None) == (self.rho is None):
            raise Invalid.at(
                "/guarantee",
                "A guarantee names either epsilon or rho.",
                "Send one of the two, and delta as well if you want one.",
            )
        field = "epsilon" if self.epsilon is not None else "rho"
        epsilon = _units(self.epsilon, EPSILON_UNIT, "/guarantee/epsilon", "up")
        rho = _units(self.rho, RHO_UNIT, "/guarantee/rho", "up")
        delta = _units(self.delta, DELTA_UNIT, "/guarantee/delta", "up")
        # In units of 1e-18. A delta of 1 allows a release to publish the data, so it is no
        # guarantee.
        if delta is not None and delta >= 10**18:
            raise Invalid.at("/guarantee/delta", "delta must be below 1", "Send a smaller delta.")
        try:
            return Guarantee(epsilon=epsilon, rho=rho, delta=delta)
        except AmountError as error:
            raise Invalid.at(f"/guarantee/{field}", str(error), "Send a larger amount.") from None


class BudgetChangeIn(BaseModel):
    """A budget to put in force: absolute values, not differences."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [{"epsilon": "20", "delta": "1e-6", "reason": "A second survey wave."}]
        },
    )

    epsilon: Amount = Field(description="Total epsilon from now on.")
    delta: Amount | None = Field(None, description="Total delta from now on; unchanged if omitted.")
    delta_for_approximate: Amount | None = Field(
        None,
        description="On `zcdp`, how much of delta is set aside for approximate steps;"
        " unchanged if omitted.",
    )
    reason: Annotated[
        str, StringConstraints(strip_whitespace=True, min_length=1, max_length=2000)
    ] = Field(description="Why. The reason stays in the ledger permanently.")


class EpsilonAmounts(BaseModel):
    """Amounts in the terms of `basic` accounts: exact decimal text."""

    model_config = ConfigDict(extra="forbid")

    epsilon: str = Field(description="Exact decimal text.", examples=["1"])
    delta: str = Field(description="Exact decimal text.", examples=["0.000001"])


class RhoAmounts(BaseModel):
    """Amounts in the terms of `zcdp` accounts: exact decimal text."""

    model_config = ConfigDict(extra="forbid")

    rho: str = Field(
        description="Rho of zero-concentrated differential privacy; exact decimal text.",
        examples=["0.024356"],
    )
    delta: str = Field(
        description="Delta of approximate steps, in addition to rho; exact decimal text.",
        examples=["0"],
    )


Amounts = EpsilonAmounts | RhoAmounts


def amounts(charge: Charge, accountant: Accountant) -> Amounts:
    wire = charge.as_wire(accountant)
    return EpsilonAmounts(**wire) if accountant is Accountant.BASIC else RhoAmounts(**wire)


class AllowanceOut(BaseModel):
    """The caller's own share of the budget."""

    cap: Amounts | None = Field(description="Null: only the budget itself limits.")
    cap_as_epsilon: EpsilonAmounts | None = Field(
        description="On `zcdp`: the share as it was stated, if it was stated in epsilon; otherwise"
        " the largest epsilon that it covers at a delta of 1e-6."
    )
    spent: Amounts = Field(description="What the caller's releases were charged.")
    spent_as_epsilon: EpsilonAmounts | None = Field(
        description="On `zcdp`: the epsilon of all these releases together, at the delta of the"
        " share. Epsilon does not add up over releases, and rho does."
    )
    remaining: Amounts | None = Field(
        description="What is left of the share, which is part of the budget."
    )
    remaining_as_epsilon: EpsilonAmounts | None = Field(
        description="On `zcdp`: the largest epsilon of one more release, at the delta of the share."
    )

    @classmethod
    def of(cls, position: Position, accountant: Accountant) -> AllowanceOut:
        cap, remaining, stated = position.cap, position.remaining, position.stated
        delta = as_epsilon.USUAL_DELTA if stated is None else stated.delta
        return cls.model_validate(
            {
                "cap": None if cap is None else amounts(cap, accountant),
                "cap_as_epsilon": None
                if cap is None
                else as_epsilon.left(cap, accountant, delta)
                if stated is None
                else stated.as_wire(),
                "spent": amounts(position.spent, accountant),
                "spent_as_epsilon": as_epsilon.spent(position.spent, accountant, delta),
                "remaining": None if remaining is None else amounts(remaining, accountant),
                "remaining_as_epsilon": None
                if remaining is None
                else as_epsilon.left(
                    remaining, accountant, delta, None if stated is None else stated.epsilon
                ),
            }
        )


class BudgetOut(BaseModel):
    """A budget. Totals are null for analysts whose grant does not show them."""

    state: Literal["open", "suspended"] = Field(
        description="`suspended`: the ledger does not add up, and nothing more is admitted."
    )
    accountant: Literal["basic", "zcdp"] = Field(
        description="How losses add up: `basic` sums epsilon and delta, `zcdp` sums rho."
    )
    budget: EpsilonAmounts | None = Field(description="The total as declared.")
    delta_for_approximate: str | None = Field(
        description="On `zcdp`, the part of delta set aside for approximate steps.", examples=["0"]
    )
    cap: Amounts | None = Field(description="The total in the account's own terms.")
    spent: Amounts | None = Field(description="What all releases of the account were charged.")
    remaining: Amounts | None = Field(description="What is left: `cap` minus `spent`.")
    epsilon_at_delta: EpsilonAmounts | None = Field(
        description="The spending so far, converted to epsilon at the budget's delta."
    )
    remaining_as_epsilon: EpsilonAmounts | None = Field(
        description="On `zcdp`: the largest epsilon of one more release, at the budget's delta."
        " Epsilon does not add up over releases, and rho does."
    )
    releases: int | None = Field(
        description="Releases charged and not given back, of all datasets of the account.",
        examples=[3],
    )
    highest_cap: Amounts | None = Field(
        description="The highest cap so far. The account's guarantee is the one of this cap."
    )
    changes: int | None = Field(description="How often the budget was changed.", examples=[0])
    note: str | None = Field(description="What changes of the budget mean for the guarantee.")
    allowance: AllowanceOut | None = Field(description="Null for the custodian and auditors.")

    @classmethod
    def of(cls, view: BudgetView) -> BudgetOut:
        allowance = (
            None if view.allowance is None else AllowanceOut.of(view.allowance, view.accountant)
        )
        return cls(
            state="open" if view.is_open else "suspended",
            accountant=view.accountant.value,
            allowance=allowance,
            **_totals(view.totals, view.accountant),
        )


_CHANGED = (
    "The budget was changed after it was declared. The account's guarantee is the one of the"
    " highest cap. If a change was made after results were seen, no bound was fixed in advance."
)


def _totals(totals: Totals | None, accountant: Accountant) -> dict[str, Any]:
    if totals is None:
        hidden = set(BudgetOut.model_fields) - {"state", "accountant", "allowance"}
        return dict.fromkeys(hidden)
    return {
        "budget": EpsilonAmounts(**totals.budget.as_wire()),
        "delta_for_approximate": from_units(totals.delta_for_approximate, DELTA_UNIT),
        "cap": amounts(totals.cap, accountant),
        "spent": amounts(totals.spent, accountant),
        "remaining": amounts(totals.remaining, accountant),
        "epsilon_at_delta": EpsilonAmounts(**totals.epsilon_at_delta.as_wire()),
        "remaining_as_epsilon": as_epsilon.left(totals.remaining, accountant, totals.budget.delta),
        "releases": totals.releases,
        "highest_cap": amounts(totals.highest_cap, accountant),
        "changes": totals.changes,
        "note": _CHANGED if totals.changes else None,
    }


class LedgerLine(BaseModel):
    """One entry of a ledger."""

    sequence: int = Field(description="Counts from 1 without gaps.", examples=[2])
    kind: Literal["opened", "joined", "charge", "refund", "budget", "acknowledged"] = Field(
        description="`opened` and `joined`: a dataset opened or joined the account. `charge` and"
        " `refund`: of a release. `budget`: the budget was changed. `acknowledged`: the store was"
        " put back to an earlier moment, and what it had forgotten was charged again."
    )
    at: str = Field(
        description="When it was entered (UTC).", examples=["2030-01-31T12:00:00.000000Z"]
    )
    dataset_id: str = Field(description="The dataset that the entry concerns.")
    release_id: str | None = Field(description="The release charged or given back.")
    principal_id: str = Field(description="Who caused the entry.")
    grant_id: str | None = Field(description="The grant charged in addition to the account.")
    amount: Amounts = Field(
        description="Charged or given back; on `opened` and `budget` the cap from here on."
    )
    spent_after: Amounts | None = Field(
        description="The account's total after this entry; null where totals are not shown."
    )
    detail: dict[str, Any] = Field(
        description="Public facts: the guarantee asked for, the synthesizer, a reason. Where"
        " totals are shown, also the `salt` that keeps them from being guessed from hashes."
    )
    previous_hash: str = Field(
        description="`hash` of the previous entry; zeros on the first.", examples=[_SAMPLE_HASH]
    )
    hash: str = Field(
        description="SHA-256 over the previous hash and this entry.", examples=[_SAMPLE_HASH]
    )

    @classmethod
    def of(cls, row: LedgerRow, accountant: Accountant, *, shows_totals: bool) -> LedgerLine:
        spent = amounts(Charge(row.spent_primary, row.spent_delta), accountant)
        # The salt would let an analyst test guesses of the hidden total against the hash.
        hidden = set() if shows_totals else {SALT}
        return cls.model_validate(
            {
                "sequence": row.sequence,
                "kind": row.kind,
                "at": format_time(row.at),
                "dataset_id": row.dataset_id,
                "release_id": row.release_id,
                "principal_id": row.principal_id,
                "grant_id": row.grant_id,
                "amount": amounts(Charge(row.primary, row.delta), accountant),
                "spent_after": spent if shows_totals else None,
                "detail": {key: row.detail[key] for key in row.detail if key not in hidden},
                "previous_hash": row.previous_hash,
                "hash": row.hash,
            }
        )


class VerificationOut(BaseModel):
    """Whether the ledger is intact: chain, sums, caps, grants."""

    ok: bool = Field(description="True if everything adds up.")
    entries: int | None = Field(description="Null where totals are not shown.", examples=[4])
    head_hash: str | None = Field(
        description="Hash of the newest entry; keep it to prove later that nothing was cut off.",
        examples=[_SAMPLE_HASH],
    )
    problems: list[str] | None = Field(description="What does not add up; null for analysts.")

    @classmethod
    def of(
        cls, found: Verification, *, shows_totals: bool, shows_problems: bool
    ) -> VerificationOut:
        return cls(
            ok=found.ok,
            entries=found.entries if shows_totals else None,
            head_hash=found.head_hash if shows_totals else None,
            problems=list(found.problems) if shows_problems else None,
        )


class StatementLine(BaseModel):
    """One entry of an account, in words."""

    sequence: int = Field(description="Counts from 1 without gaps.", examples=[2])
    at: str = Field(
        description="When it was entered (UTC).", examples=["2030-01-31T12:00:00.000000Z"]
    )
    kind: str = Field(description="As in the ledger.", examples=["charge"])
    text: str = Field(
        description="What happened.",
        examples=["Release rl_k3v9xq2mzt7hsd4nw8cb charged for epsilon 1, made by mst."],
    )
    dataset_id: str = Field(description="The dataset that the entry concerns.")
    release_id: str | None = Field(description="The release charged or given back.")
    principal_id: str = Field(description="Who caused the entry: of a charge, the requester.")
    guarantee: dict[str, str] | None = Field(
        description="What the release asked for; null for other entries.",
        examples=[{"epsilon": "1", "delta": "0.000001"}],
    )
    amount: Amounts = Field(
        description="Charged or given back; on `opened` and `budget` the cap from here on."
    )
    spent_after: Amounts = Field(description="The running total after this entry.")


class StatementSum(BaseModel):
    """Entries of one kind, added up."""

    entries: int = Field(description="How many there are.", examples=[3])
    amount: Amounts = Field(description="The sum of their amounts.")


class AccountStatementOut(BaseModel):
    """The statement of an account as it stood at one moment."""

    dataset_id: str = Field(description="The dataset that it was asked of.")
    dataset_name: str = Field(description="Its name.", examples=["taxi"])
    account_id: str = Field(description="The account, which several datasets may share.")
    unit: dict[str, Any] = Field(
        description="The privacy unit of the dataset.", examples=[{"kind": "row"}]
    )
    made_at: str = Field(
        description="When the statement was made (UTC).", examples=["2030-01-31T12:00:00.000000Z"]
    )
    opening: EpsilonAmounts | None = Field(description="The budget that the account opened with.")
    budget: BudgetOut = Field(description="The budget now: what was spent, and what remains.")
    charges: StatementSum = Field(description="All charges, those given back included.")
    refunds: StatementSum = Field(description="All that was given back.")
    acknowledged: StatementSum = Field(
        description="Charged again because the store had been put back to an earlier moment."
    )
    verification: VerificationOut = Field(description="Whether the ledger adds up.")
    entries: list[StatementLine] = Field(description="Every entry, oldest first.")


class AllowanceIn(BaseModel):
    """An analyst's share of the budget: in the account's own terms, or on `zcdp` as epsilon."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"epsilon": "2", "delta": "1e-7"}]}
    )

    epsilon: Amount | None = Field(
        None,
        description="Epsilon. On `zcdp` accounts it is turned into rho once, at the `delta` beside"
        " it.",
    )
    rho: Amount | None = Field(None, description="On `zcdp` accounts, in place of epsilon.")
    delta: Amount | None = Field(
        None,
        description="On `basic`: 0 if omitted, which covers pure releases only. On `zcdp`: beside"
        " epsilon, the delta at which it is meant; beside rho, delta of approximate steps.",
    )
    delta_for_approximate: Amount | None = Field(
        None,
        description="On `zcdp`, beside epsilon: the part of delta that is kept for approximate"
        " steps, such as the discovery of values; 0 if omitted.",
    )

    def to_allowance(self, accountant: Accountant) -> Allowance:
        """A cap, so rounded down to units. Raises `Invalid` that points into /allowance."""
        in_epsilon = accountant is Accountant.ZCDP and self.epsilon is not None
        if in_epsilon and self.rho is None:
            return self._from_epsilon()
        name, other = ("epsilon", "rho") if accountant is Accountant.BASIC else ("rho", "epsilon")
        if getattr(self, other) is not None or getattr(self, name) is None:
            either = "epsilon" if accountant is Accountant.BASIC else "either rho or epsilon"
            raise Invalid.at(
                f"/allowance/{other if getattr(self, other) is not None else name}",
                f"An allowance on an account of the `{accountant}` accountant is in {either}.",
                f"Send {either}, and delta if you want.",
            )
        if self.delta_for_approximate is not None:
            raise Invalid.at(
                "/allowance/delta_for_approximate",
                "A part of delta is kept for approximate steps only where an allowance in rho is"
                " stated as epsilon.",
                "Leave it out, or send epsilon and delta on a `zcdp` account.",
            )
        primary = _units(getattr(self, name), EPSILON_UNIT, f"/allowance/{name}", "down")
        delta = _units(self.delta, DELTA_UNIT, "/allowance/delta", "down")
        return Allowance(Charge(primary or 0, delta or 0))

    def _from_epsilon(self) -> Allowance:
        epsilon = _units(self.epsilon, EPSILON_UNIT, "/allowance/epsilon", "down") or 0
        delta = _units(self.delta, DELTA_UNIT, "/allowance/delta", "down") or 0
        if not delta:
            raise Invalid.at(
                "/allowance/delta",
                "On a `zcdp` account, epsilon is meant at a delta above 0.",
                "Send delta beside epsilon, such as 1e-6; or send rho.",
            )
        aside = _units(
            self.delta_for_approximate, DELTA_UNIT, "/allowance/delta_for_approximate", "down"
        )
        try:
            caps = account_caps(epsilon, delta, Accountant.ZCDP, aside or 0)
        except BudgetNotAccepted as error:
            pointer = "/allowance" + error.pointer.removeprefix("/budget")
            raise Invalid.at(pointer, error.message, error.remedy) from None
        return Allowance(Charge(caps.primary, caps.delta), EpsilonAtDelta(epsilon, delta))


def _units(
    value: Decimal | None, unit: Decimal, pointer: str, rounding: Literal["up", "down"]
) -> int | None:
    if value is None:
        return None
    try:
        return to_units(value, unit, rounding=rounding)
    except AmountError as error:
        raise Invalid.at(pointer, str(error), "Send a smaller amount.") from None

"""Grants as the API sends and receives them."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from app.access.grants import GrantRole
from app.database import format_time
from app.engine.privacy.loss import Accountant, Charge
from app.ledger import as_epsilon, repository
from app.ledger.models import GrantRow
from app.ledger.schemas import AllowanceIn, AllowanceOut, Amounts, EpsilonAmounts, amounts
from app.ledger.terms import Allowance


def allowance_of(allowance: AllowanceIn | None, accountant: Accountant) -> Allowance | None:
    """In the account's units. Raises `Invalid` for the terms of another accountant."""
    return None if allowance is None else allowance.to_allowance(accountant)


class GrantIn(BaseModel):
    """An analyst's permission to use a dataset, or an auditor's to read its ledger."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {
                    "principal_id": "pr_abcdefghijkmnpqrstuv",
                    "allowance": {"epsilon": "2", "delta": "1e-7"},
                }
            ]
        },
    )

    principal_id: str = Field(max_length=64, description="A principal who has the grant's role.")
    role: GrantRole = Field(
        "analyst",
        description="`analyst`: requests releases. `auditor`: reads the dictionary, the whole"
        " ledger, certificates and the audit log of the dataset, and no data; has no allowance.",
    )
    allowance: AllowanceIn | None = Field(
        None,
        description="The most that this analyst may spend. It is part of the budget, not extra."
        " Null: only the budget itself limits.",
    )
    show_budget: bool | None = Field(
        None,
        description="Whether the analyst sees the budget's totals; false if omitted. An auditor"
        " always does.",
    )


class GrantTermsIn(BaseModel):
    """Terms of a grant."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"show_budget": True}]}
    )

    allowance: AllowanceIn | None = Field(
        None,
        description="The analyst's share. Omitted, PATCH leaves it as it is, and after PUT only"
        " the budget itself limits.",
    )
    show_budget: bool | None = Field(
        None,
        description="Whether the analyst sees the budget's totals. Omitted, PATCH leaves it as it"
        " is, and PUT sets false.",
    )


class GrantOut(BaseModel):
    """A permission to use or audit a dataset; what it has spent is never reset."""

    id: str = Field(description="Id of the grant.", examples=["gr_abcdefghijkmnpqrstuv"])
    dataset_id: str = Field(description="The dataset that may be used.")
    principal_id: str = Field(description="The analyst who may use it, or the auditor.")
    role: GrantRole = Field(
        description="`analyst`: requests releases. `auditor`: reads the ledger, and no data."
    )
    state: Literal["active", "revoked"] = Field(
        description="A revoked grant shows the analyst nothing; granting again reactivates it."
    )
    show_budget: bool = Field(description="Whether the analyst sees the budget's totals.")
    allowance: AllowanceOut | None = Field(
        description="The analyst's share, and what is left of it; null for an auditor."
    )
    within_account: Amounts = Field(
        description="The most that this analyst may spend of the whole budget: their allowances on"
        " all datasets that share it, added up, and at most the budget. 0 without an active grant.",
        examples=[{"epsilon": "2", "delta": "0.0000001"}],
    )
    within_account_as_epsilon: EpsilonAmounts | None = Field(
        description="On `zcdp`: the largest epsilon of one release that this covers, at the delta"
        " of the allowance; at 1e-6 where it was not stated in epsilon."
    )
    created_at: str = Field(
        description="When it was first given (UTC).", examples=["2030-01-31T12:00:00.000000Z"]
    )

    @classmethod
    def of(cls, row: GrantRow, accountant: Accountant, within_account: Charge) -> GrantOut:
        return cls.model_validate(
            {
                "id": row.id,
                "dataset_id": row.dataset_id,
                "principal_id": row.principal_id,
                "state": row.state,
                "show_budget": row.show_budget,
                "role": row.role,
                "allowance": AllowanceOut.of(repository.allowance_of(row), accountant)
                if row.role == "analyst"
                else None,
                "within_account": amounts(within_account, accountant),
                "within_account_as_epsilon": as_epsilon.left(
                    within_account,
                    accountant,
                    row.stated_delta or as_epsilon.USUAL_DELTA,
                ),
                "created_at": format_time(row.created_at),
            }
        )

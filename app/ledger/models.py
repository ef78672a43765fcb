"""Tables of the privacy ledger: accounts, grants with their allowances, append-only entries."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    CheckConstraint,
    ForeignKey,
    String,
    UniqueConstraint,
)
from sqlalchemy.orm import Mapped, mapped_column

from app.database import Base, UtcTime
from app.engine.privacy.loss import LARGEST_AMOUNT


def amount_checks(*columns: str, nullable: bool = False) -> tuple[CheckConstraint, ...]:
    """Amounts are integers in range: SQLite would turn an overflow into a float silently."""
    return tuple(
        CheckConstraint(
            (f'"{name}" IS NULL OR ' if nullable else "")
            + f"""(typeof("{name}") = 'integer' AND "{name}" BETWEEN 0 AND {LARGEST_AMOUNT})""",
            name=f"{name}_is_amount",
        )
        for name in columns
    )


class AccountRow(Base):
    """What a budget belongs to: cap and spent in the accountant's own units.

    `primary` counts epsilon (`basic`) or rho (`zcdp`) in 1e-12, `delta` in 1e-18; on `zcdp`
    the delta cap is `delta_for_approximate`. `budget_*` is what was declared.
    """

    __tablename__ = "accounts"

    id: Mapped[str] = mapped_column(String(32), primary_key=True)
    accountant: Mapped[str] = mapped_column(String(16))
    unit_kind: Mapped[str] = mapped_column(String(16))
    budget_epsilon: Mapped[int] = mapped_column(BigInteger)
    budget_delta: Mapped[int] = mapped_column(BigInteger)
    delta_for_approximate: Mapped[int] = mapped_column(BigInteger)
    cap_primary: Mapped[int] = mapped_column(BigInteger)
    cap_delta: Mapped[int] = mapped_column(BigInteger)
    spent_primary: Mapped[int] = mapped_column(BigInteger, default=0)
    spent_delta: Mapped[int] = mapped_column(BigInteger, default=0)
    # The highest cap so far: after a raise, the account's guarantee is the one of this cap.
    highest_primary: Mapped[int] = mapped_column(BigInteger)
    highest_delta: Mapped[int] = mapped_column(BigInteger)
    # Length of its chain, so that entries cut off at the end are noticed even if they add up to 0.
    entries: Mapped[int] = mapped_column(BigInteger, default=0)
    # Its ledger did not add up when it was last verified: nothing more is admitted.
    suspended: Mapped[bool] = mapped_column(Boolean, default=False)
    created_at: Mapped[datetime] = mapped_column(UtcTime)

    __table_args__ = (
        *amount_checks("budget_epsilon", "budget_delta", "delta_for_approximate"),
        *amount_checks("cap_primary", "cap_delta", "spent_primary", "spent_delta"),
        *amount_checks("highest_primary", "highest_delta"),
        # The store itself refuses to pass the cap, should a statement ever be wrong.
        CheckConstraint("spent_primary <= cap_primary", name="primary_within_cap"),
        CheckConstraint("spent_delta <= cap_delta", name="delta_within_cap"),
    )


class GrantRow(Base):
    """An analyst's permission to use a dataset, or an auditor's to read its ledger.

    The allowance, an analyst's alone, is in the account's terms.
    """

    __tablename__ = "grants"

    id: Mapped[str] = mapped_column(String(32), primary_key=True)
    dataset_id: Mapped[str] = mapped_column(ForeignKey("datasets.id"))
    principal_id: Mapped[str] = mapped_column(ForeignKey("principals.id"), index=True)
    # analyst | auditor
    role: Mapped[str] = mapped_column(String(16), default="analyst", server_default="analyst")
    show_budget: Mapped[bool] = mapped_column(Boolean)
    cap_primary: Mapped[int | None] = mapped_column(BigInteger)
    cap_delta: Mapped[int | None] = mapped_column(BigInteger)
    # On `zcdp`, where the allowance was stated as epsilon at a delta.
    stated_epsilon: Mapped[int | None] = mapped_column(BigInteger)
    stated_delta: Mapped[int | None] = mapped_column(BigInteger)
    spent_primary: Mapped[int] = mapped_column(BigInteger, default=0)
    spent_delta: Mapped[int] = mapped_column(BigInteger, default=0)
    # active | revoked
    state: Mapped[str] = mapped_column(String(16))
    created_at: Mapped[datetime] = mapped_column(UtcTime)

    __table_args__ = (
        UniqueConstraint("dataset_id", "principal_id"),
        *amount_checks("cap_primary", "cap_delta", "stated_epsilon", "stated_delta", nullable=True),
        *amount_checks("spent_primary", "spent_delta"),
    )


class LedgerRow(Base):
    """One entry of an account's chain; `sequence` counts from 1 without gaps."""

    __tablename__ = "ledger"

    account_id: Mapped[str] = mapped_column(ForeignKey("accounts.id"), primary_key=True)
    sequence: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    # opened | joined | charge | refund | budget | acknowledged
    kind: Mapped[str] = mapped_column(String(16))
    dataset_id: Mapped[str] = mapped_column(String(32))
    release_id: Mapped[str | None] = mapped_column(String(32))
    principal_id: Mapped[str] = mapped_column(String(32))
    primary: Mapped[int] = mapped_column(BigInteger)
    delta: Mapped[int] = mapped_column(BigInteger)
    # What the account had spent once this entry was made.
    spent_primary: Mapped[int] = mapped_column(BigInteger)
    spent_delta: Mapped[int] = mapped_column(BigInteger)
    # The grant that was charged, or given back to, in addition to the account.
    grant_id: Mapped[str | None] = mapped_column(String(32))
    # Public facts: the guarantee asked for, the synthesizer, caps, a reason.
    detail: Mapped[dict[str, Any]] = mapped_column(JSON)
    at: Mapped[datetime] = mapped_column(UtcTime)
    previous_hash: Mapped[str] = mapped_column(String(64))
    hash: Mapped[str] = mapped_column(String(64), unique=True)

    __table_args__ = (
        *amount_checks("primary", "delta", "spent_primary", "spent_delta"),
        # A release is charged at most once and refunded at most once.
        UniqueConstraint("release_id", "kind"),
    )

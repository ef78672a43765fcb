"""The audit log: who changed what, recorded in the transaction of the change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy.orm import Session

from app.database import now
from app.security.models import AuditRow


def record(
    session: Session,
    *,
    principal_id: str | None,
    action: str,
    subject: str | None,
    detail: Mapping[str, Any],
) -> None:
    """Add an entry. `action` reads `noun.verb`; `detail` holds public facts only.

    `principal_id` is None for actions of the service or its operator, without a request.
    """
    session.add(
        AuditRow(
            at=now(),
            principal_id=principal_id,
            action=action,
            subject=subject,
            detail=dict(detail),
        )
    )

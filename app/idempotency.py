"""Idempotency keys: an accepted request that is repeated gets its first response again."""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from dataclasses import asdict, dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from sqlalchemy import Integer, String, bindparam, select, update
from sqlalchemy.dialects.sqlite import insert
from sqlalchemy.orm import Mapped, Session, mapped_column

from app.database import Base, UtcTime, now, rowcount
from app.problems import Invalid, MalformedRequest

# Name of the store's key for hashes of bodies.
REQUEST_KEY = "request-key"
_FORGOTTEN = ""
_KEY = re.compile(r"[\x21-\x7e]{1,255}", re.ASCII)


class IdempotencyRow(Base):
    __tablename__ = "idempotency"

    principal_id: Mapped[str] = mapped_column(String(32), primary_key=True)
    operation: Mapped[str] = mapped_column(String(64), primary_key=True)
    key: Mapped[str] = mapped_column(String(255), primary_key=True)
    # Empty once what the request made was erased: then nothing is compared any more.
    body_hash: Mapped[str] = mapped_column(String(64))
    status: Mapped[int] = mapped_column(Integer)
    resource_id: Mapped[str] = mapped_column(String(64), index=True)
    created_at: Mapped[datetime] = mapped_column(UtcTime)


_known = IdempotencyRow.__table__.c
_FIND = select(_known.body_hash, _known.status, _known.resource_id).where(
    _known.principal_id == bindparam("principal"),
    _known.operation == bindparam("kind"),
    _known.key == bindparam("sent"),
)
_REMEMBER = insert(IdempotencyRow.__table__)  # type: ignore[arg-type]
# Of two equal requests at once, one inserts and the other sees the conflict: no request is charged
# twice.
_CLAIM = _REMEMBER.on_conflict_do_nothing()


@dataclass(frozen=True, slots=True)
class Attempt:
    """One use of a key by a principal for an operation, with what was sent."""

    principal_id: str
    operation: str
    key: str
    body_hash: str

    def __post_init__(self) -> None:
        if not _KEY.fullmatch(self.key):
            raise MalformedRequest("Idempotency-Key is 1 to 255 visible ASCII characters.")


@dataclass(frozen=True, slots=True)
class Replay:
    """The response to the first request with this key."""

    status: int
    resource_id: str


def body_hash(parsed: Any, key: bytes) -> str:
    """Keyed hash of a parsed body: order of keys, spacing and notation of numbers do not matter.

    Without the key, which is the store's own, nobody can test what was sent: of an upload the body
    holds the hash of the file.
    """
    canonical = json.dumps(_normalized(parsed), sort_keys=True, separators=(",", ":"))
    digest = hashlib.sha256(canonical.encode()).hexdigest()
    return hmac.new(key, digest.encode(), hashlib.sha256).hexdigest()


def _normalized(value: Any) -> Any:
    """The value with each number in one notation, distinct from text with the same characters."""
    match value:
        case dict():
            return {key: _normalized(item) for key, item in value.items()}
        case list():
            return [_normalized(item) for item in value]
        case bool() | str() | None:
            return value
        case int() | Decimal():
            return {"number": _digits(Decimal(value))}
        case _:
            raise TypeError(f"not JSON: {type(value).__name__}")


def _digits(value: Decimal) -> str:
    # Written out, a huge exponent would make a huge text.
    if abs(value.adjusted()) >= 100:
        return str(value)
    # `Decimal.normalize` would round to 28 digits.
    text = f"{value:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def find_replay(session: Session, attempt: Attempt | None) -> Replay | None:
    """The earlier response for this key; 422 if the key was used with another body."""
    if attempt is None:
        return None
    names = {"principal": attempt.principal_id, "kind": attempt.operation, "sent": attempt.key}
    known = session.execute(_FIND, names).first()
    if known is None:
        return None
    if known.body_hash not in (attempt.body_hash, _FORGOTTEN):
        raise Invalid.at(
            "",
            "This Idempotency-Key was used for a request with another body.",
            "Send a new key with a new request; repeat a key only with the same body.",
        )
    return Replay(known.status, known.resource_id)


def remember(session: Session, attempt: Attempt | None, status: int, resource_id: str) -> None:
    """Record an accepted request, in the transaction that accepts it."""
    if attempt is not None:
        session.execute(_REMEMBER, _facts(attempt, status, resource_id))


def claim(
    session: Session, attempt: Attempt | None, status: int, resource_id: str
) -> Replay | None:
    """`find_replay` and `remember` in one statement, for a request that is about to be accepted.

    Returns the earlier response, or None if there is none. In that case the request is remembered,
    and its transaction must not commit unless the request is accepted.
    """
    if attempt is None:
        return None
    claimed = session.execute(_CLAIM, _facts(attempt, status, resource_id))
    return find_replay(session, attempt) if rowcount(claimed) == 0 else None


def _facts(attempt: Attempt, status: int, resource_id: str) -> dict[str, Any]:
    return {**asdict(attempt), "status": status, "resource_id": resource_id, "created_at": now()}


def forget(session: Session, resource_id: str) -> None:
    """Erase what was sent to make something. A repeated request is answered without comparing."""
    session.execute(
        update(IdempotencyRow)
        .where(IdempotencyRow.resource_id == resource_id)
        .values(body_hash=_FORGOTTEN)
    )


def settle(session: Session, attempt: Attempt | None, status: int) -> None:
    """Change the status that replays of a remembered request get from now on."""
    if attempt is None:
        return
    row = session.get(IdempotencyRow, (attempt.principal_id, attempt.operation, attempt.key))
    if row is not None and row.body_hash == attempt.body_hash:
        row.status = status

"""What happened to a release, in order: one row for each change of state and each report.

The rows follow from public facts alone. A run that continues after a lost worker reports again
what the first run reported; an event that is stored already is not stored twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from sqlalchemy import func, insert, or_, select
from sqlalchemy.orm import Session

from app.releases.models import EventRow, ReleaseRow

# Streams in one statement; SQLite limits the depth of an expression to 1000.
_MOST_TERMS = 200
_ADD = insert(EventRow.__table__)  # type: ignore[arg-type]
# Fractions are rounded to a thousandth.
_DECIMALS = 3


class Report(Protocol):
    """How far a run is: a fraction in [0, 1] and the stage reached, both public."""

    @property
    def fraction(self) -> float: ...
    @property
    def stage(self) -> str: ...


def began(session: Session, release: ReleaseRow) -> None:
    """The first event of a release that is being made."""
    stored = {"release_id": release.id, "sequence": 1, "type": "state"}
    session.execute(_ADD, {**stored, "data": {"state": release.state}})


def state_changed(session: Session, release: ReleaseRow) -> None:
    _append(session, release.id, "state", {"state": release.state})


def reported(session: Session, release: ReleaseRow, reports: Sequence[Report]) -> None:
    """Record reports that go beyond the last one, and show the newest on the release."""
    stored: list[dict[str, Any]] | None = None
    for report in reports:
        fraction = round(report.fraction, _DECIMALS)
        data = {"progress": fraction, "stage": report.stage}
        # A run that continues after a lost worker starts its reports again from 0.
        if fraction < release.progress:
            continue
        stored = _stored(session, release.id) if stored is None else stored
        if data not in stored:
            release.progress, release.stage = fraction, report.stage
            _append(session, release.id, "progress", data)
            stored.append(data)


def ended(session: Session, release: ReleaseRow) -> None:
    _append(session, release.id, "end", {"state": release.state})


def after(session: Session, release_id: str, sequence: int) -> list[EventRow]:
    """Events of a release beyond a sequence number, in order."""
    return newest(session, {release_id: sequence})


def latest(session: Session, release_id: str) -> int:
    """The sequence number of a release's last event so far, from 1."""
    last = select(func.max(EventRow.sequence)).where(EventRow.release_id == release_id)
    return session.scalar(last) or 0


def newest(session: Session, seen: Mapping[str, int]) -> list[EventRow]:
    """Events of several releases, each beyond the sequence number seen, in order."""
    found: list[EventRow] = []
    pairs = list(seen.items())
    for first in range(0, len(pairs), _MOST_TERMS):
        terms = [
            (EventRow.release_id == release_id) & (EventRow.sequence > sequence)
            for release_id, sequence in pairs[first : first + _MOST_TERMS]
        ]
        query = select(EventRow).where(or_(*terms))
        found += session.scalars(query.order_by(EventRow.release_id, EventRow.sequence))
    return found


def _stored(session: Session, release_id: str) -> list[dict[str, Any]]:
    query = select(EventRow.data).where(
        EventRow.release_id == release_id, EventRow.type == "progress"
    )
    return list(session.scalars(query))


def _append(session: Session, release_id: str, kind: str, data: dict[str, Any]) -> None:
    # The query below must see events added earlier in this transaction.
    session.flush()
    last = session.scalar(
        select(func.max(EventRow.sequence)).where(EventRow.release_id == release_id)
    )
    session.add(_row(release_id, (last or 0) + 1, kind, data))


def _row(release_id: str, sequence: int, kind: str, data: dict[str, Any]) -> EventRow:
    return EventRow(release_id=release_id, sequence=sequence, type=kind, data=data)

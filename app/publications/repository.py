"""Queries on publications."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from sqlalchemy import ColumnElement, Exists, Select, and_, delete, func, or_, select
from sqlalchemy.orm import Session, aliased

from app.database import now
from app.datasets.models import DatasetRow
from app.pages import Place
from app.publications.models import PublicationRow
from app.releases.models import ReleaseRow
from app.storage.models import ChunkRow

# A publication, its release, and the dataset of that.
Found = tuple[PublicationRow, ReleaseRow, DatasetRow]

# An archive takes seconds, one of 20 million rows minutes.
LONGEST_MAKING = timedelta(hours=1)

# Of the variables that one statement of the store may have.
_MOST_IDS = 50

_newer = aliased(PublicationRow)
_ESCAPE = "\\"


def found(session: Session, publication_id: str) -> Found | None:
    """A publication, published or withdrawn."""
    row = session.execute(_all().where(PublicationRow.id == publication_id)).first()
    return None if row is None else (row[0], row[1], row[2])


def page(
    session: Session,
    *,
    words: Sequence[str],
    series_id: str | None,
    before: Place | None,
    limit: int,
) -> list[Found]:
    """What is published, newest first, from beyond `before`: the newest version of each series, or
    every version of one. Each of `words`, in small letters, occurs in what is shown."""
    query = _all().where(PublicationRow.state == "published")
    if series_id is None:
        query = query.where(~_superseded())
    else:
        query = query.where(PublicationRow.series_id == series_id)
    for word in words:
        query = query.where(PublicationRow.words.like(f"%{_literal(word)}%", escape=_ESCAPE))
    if before is not None:
        moment, last_id = before
        same = and_(PublicationRow.created_at == moment, PublicationRow.id < last_id)
        query = query.where(or_(PublicationRow.created_at < moment, same))
    query = query.order_by(PublicationRow.created_at.desc(), PublicationRow.id.desc()).limit(limit)
    return [(row[0], row[1], row[2]) for row in session.execute(query)]


def last_version(session: Session, series_id: str) -> int:
    """The highest version of a series, withdrawn ones included; 0 for none."""
    query = select(func.max(PublicationRow.version)).where(PublicationRow.series_id == series_id)
    return session.scalar(query) or 0


def published_in(session: Session, series_ids: Sequence[str]) -> list[PublicationRow]:
    """The published versions of these series, of each oldest first."""
    wanted = sorted(set(series_ids))
    found: list[PublicationRow] = []
    for first in range(0, len(wanted), _MOST_IDS):
        query = select(PublicationRow).where(
            PublicationRow.series_id.in_(wanted[first : first + _MOST_IDS]),
            PublicationRow.state == "published",
        )
        found += session.scalars(query.order_by(PublicationRow.version))
    return found


def forget_unfinished(session: Session, publication_id: str) -> None:
    """Drop a publication that was never completed."""
    session.execute(
        delete(PublicationRow).where(
            PublicationRow.id == publication_id, PublicationRow.state == "publishing"
        )
    )


def abandoned(session: Session) -> list[str]:
    """Publications whose making ended with its process long ago, and of which no bytes are left.

    Such a row holds a version of its series, and nothing could follow it.
    """
    query = select(PublicationRow.id).where(_is_abandoned(), ~_has_chunks())
    return list(session.scalars(query))


def leftovers(session: Session, collection: str | None = None) -> list[str]:
    """Publications, or one alone, whose archive nobody can read any more: withdrawn ones, and those
    whose making ended with its process long ago."""
    query = select(PublicationRow.id).where(
        or_(PublicationRow.state == "withdrawn", _is_abandoned()), _has_chunks()
    )
    if collection is not None:
        query = query.where(PublicationRow.id == collection)
    return list(session.scalars(query))


def published_of_release(session: Session, release_id: str) -> list[PublicationRow]:
    query = select(PublicationRow).where(
        PublicationRow.release_id == release_id, PublicationRow.state == "published"
    )
    return list(session.scalars(query))


def published_of_dataset(session: Session, dataset_id: str) -> list[PublicationRow]:
    query = (
        select(PublicationRow)
        .join(ReleaseRow, ReleaseRow.id == PublicationRow.release_id)
        .where(ReleaseRow.dataset_id == dataset_id, PublicationRow.state == "published")
    )
    return list(session.scalars(query))


def _all() -> Select[PublicationRow, ReleaseRow, DatasetRow]:
    return (
        select(PublicationRow, ReleaseRow, DatasetRow)
        .join(ReleaseRow, ReleaseRow.id == PublicationRow.release_id)
        .join(DatasetRow, DatasetRow.id == ReleaseRow.dataset_id)
    )


def _is_abandoned() -> ColumnElement[bool]:
    return and_(
        PublicationRow.state == "publishing", PublicationRow.created_at < now() - LONGEST_MAKING
    )


def _has_chunks() -> Exists:
    return select(ChunkRow.collection).where(ChunkRow.collection == PublicationRow.id).exists()


def _superseded() -> Exists:
    newer = (
        select(_newer.id)
        .where(
            _newer.series_id == PublicationRow.series_id,
            _newer.state == "published",
            _newer.version > PublicationRow.version,
        )
        .correlate(PublicationRow)
    )
    return newer.exists()


def _literal(word: str) -> str:
    """A word for LIKE, in which `%` and `_` stand for themselves."""
    for mark in (_ESCAPE, "%", "_"):
        word = word.replace(mark, _ESCAPE + mark)
    return word

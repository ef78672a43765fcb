"""Lists as the API sends them: `{"items": [...], "next": "..."|null}`, by `limit` and `cursor`.

A cursor is opaque to clients. It contains the sort key of the previous page's last item, so that a
page never skips or repeats an item when others are added or removed.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Generic, Protocol, TypeVar

from fastapi import Depends, Query
from pydantic import BaseModel, Field

from app.database import format_time
from app.problems import Invalid

DEFAULT_LIMIT = 50
# Bounds the time of one request, and the memory of its response.
LARGEST_LIMIT = 200

Item = TypeVar("Item")
Row = TypeVar("Row")


class Page(BaseModel, Generic[Item]):
    """One page of a list."""

    items: list[Item] = Field(description="What is on this page, in the order of the list.")
    next: str | None = Field(
        description="Send it as `cursor` to get the next page; null on the last page.",
        examples=[None],
    )


class Dated(Protocol):
    """A row of a list in order of creation."""

    @property
    def id(self) -> str: ...
    @property
    def created_at(self) -> datetime: ...


@dataclass(frozen=True, slots=True)
class PageRequest:
    """The requested part of a list: at most `limit` items after the key in `after`."""

    limit: int = DEFAULT_LIMIT
    after: str | None = None

    @property
    def fetch(self) -> int:
        """How many rows to read: one more than shown, to know whether another page follows."""
        return self.limit + 1

    @property
    def after_number(self) -> int | None:
        """The key of lists in order of a number. Raises `Invalid`."""
        if self.after is None:
            return None
        # Below 2**63, the largest integer of SQLite.
        if not (self.after.isascii() and self.after.isdigit() and len(self.after) < 19):
            raise bad_cursor()
        return int(self.after)

    @property
    def after_moment(self) -> tuple[datetime, str] | None:
        """The key (created_at, id) of lists in order of creation. Raises `Invalid`."""
        if self.after is None:
            return None
        moment, _, identifier = self.after.partition("|")
        try:
            parsed = datetime.fromisoformat(moment)
            # Raises `OverflowError` if an offset leads beyond year 1 or 9999.
            is_own = format_time(parsed) == moment
        except (ValueError, OverflowError):
            raise bad_cursor() from None
        if not is_own or not identifier:
            raise bad_cursor()
        return parsed, identifier

    def cut(self, rows: Sequence[Row], key: Callable[[Row], str]) -> tuple[list[Row], str | None]:
        """The rows to show, of up to `fetch` rows read, and the cursor of the next page."""
        shown = list(rows[: self.limit])
        following = len(rows) > self.limit
        return shown, _seal(key(shown[-1])) if following and shown else None


def by_creation(row: Dated) -> str:
    """The sort key of a row in order of creation, as a cursor keeps it."""
    return f"{format_time(row.created_at)}|{row.id}"


def page_request(
    limit: Annotated[
        int, Query(ge=1, le=LARGEST_LIMIT, description="The most items of one page.")
    ] = DEFAULT_LIMIT,
    cursor: Annotated[
        str | None, Query(max_length=200, description="`next` of the previous page.")
    ] = None,
) -> PageRequest:
    return PageRequest(limit, None if cursor is None else _unseal(cursor))


PageQuery = Annotated[PageRequest, Depends(page_request)]


def _seal(key: str) -> str:
    return base64.urlsafe_b64encode(key.encode()).decode().rstrip("=")


def _unseal(cursor: str) -> str:
    try:
        padded = cursor.encode("ascii") + b"=" * (-len(cursor) % 4)
        return base64.b64decode(padded, altchars=b"-_", validate=True).decode()
    except (binascii.Error, UnicodeError):
        raise bad_cursor() from None


def bad_cursor() -> Invalid:
    """The refusal of a cursor that another list gave, or nobody."""
    return Invalid.at(
        "/query/cursor",
        "The cursor does not belong to this list.",
        "Send `next` of a page of the same list unchanged, or start without a cursor.",
    )

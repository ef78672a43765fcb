"""Headers of data to download: names, strong ETags and conditional requests."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any

from fastapi import Header

from app.problems import RangeNotSatisfiable

TagHeader = Annotated[
    str | None, Header(alias="If-None-Match", description="ETags that the caller has.")
]

# What `file_headers` sends, as the API page describes it.
FILE_HEADERS: dict[str, Any] = {
    "ETag": {
        "description": "Tag of exactly these bytes; send it as `If-None-Match` to get 304"
        " as long as they are unchanged.",
        "schema": {"type": "string"},
    },
    "Content-Disposition": {
        "description": "A name to save the file under.",
        "schema": {"type": "string"},
    },
}


def file_headers(name: str, etag: str) -> dict[str, str]:
    """For a file of the service's own naming (plain ASCII)."""
    return {
        "Content-Disposition": f'attachment; filename="{name}"',
        "ETag": etag,
        "Cache-Control": "private, no-cache",
        # A browser must not guess that a table is HTML and run it.
        "X-Content-Type-Options": "nosniff",
    }


_RANGE = re.compile(r"bytes=(\d{0,19})-(\d{0,19})", re.ASCII)


def byte_range(asked: str | None, if_range: str | None, etag: str, size_bytes: int) -> slice | None:
    """The bytes that a `Range` header asks for (RFC 9110, section 14); None for the whole file.

    What asks for several ranges, or in other units, gets the whole file, and so does one whose
    `If-Range` names another version. Raises `RangeNotSatisfiable`.
    """
    found = _RANGE.fullmatch((asked or "").strip())
    if found is None or found.groups() == ("", ""):
        return None
    if if_range is not None and if_range.strip() != etag:
        return None
    first, last = found.groups()
    if first == "":
        start, stop = max(size_bytes - int(last), 0), size_bytes
    else:
        start, stop = int(first), size_bytes if last == "" else min(int(last) + 1, size_bytes)
    if start >= stop:
        raise RangeNotSatisfiable(size_bytes)
    return slice(start, stop)


def etag_matches(if_none_match: str | None, etag: str) -> bool:
    """Whether the caller has this version (RFC 9110, section 13.1.2, weak comparison)."""
    if if_none_match is None:
        return False
    # A compressing proxy may have marked the ETag as weak.
    known = [tag.strip().removeprefix("W/") for tag in if_none_match.split(",")]
    return "*" in known or etag in known


def gathered(pieces: Iterator[bytes], size_bytes: int = 2**16) -> Iterator[bytes]:
    """Small pieces joined to larger ones: sending one takes a change of threads."""
    held = bytearray()
    for piece in pieces:
        held += piece
        if len(held) >= size_bytes:
            yield bytes(held)
            held.clear()
    if held:
        yield bytes(held)

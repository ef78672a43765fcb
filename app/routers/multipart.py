"""Reads multipart/form-data as it arrives; nothing is written to temporary files."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from app.problems import MalformedRequest

if TYPE_CHECKING:
    from python_multipart.multipart import MultipartCallbacks

# A form here has two parts; the limit stops a body of endless empty ones.
MOST_PARTS = 100


@dataclass(frozen=True, slots=True)
class PartBegin:
    """The headers of a part have been read."""

    name: str
    file_name: str | None
    media_type: str | None


@dataclass(frozen=True, slots=True)
class PartData:
    """Some bytes of the current part."""

    data: bytes


@dataclass(frozen=True, slots=True)
class PartEnd:
    """The current part is complete."""


Event = PartBegin | PartData | PartEnd


def boundary_of(content_type: str) -> bytes:
    """Raises `MalformedRequest` where the header has no usable boundary."""
    _, options = parse_options_header(content_type)
    boundary = options.get(b"boundary", b"")
    # RFC 2046, section 5.1.1.
    if not 1 <= len(boundary) <= 70:
        raise MalformedRequest("The Content-Type of a multipart body must name its boundary.")
    return boundary


async def events(stream: AsyncIterable[bytes], boundary: bytes) -> AsyncIterator[Event]:
    """What the body holds, in order. Raises `MalformedRequest` for a broken or cut-off one."""
    reader = _Reader()
    parser = MultipartParser(boundary, reader.callbacks())
    async for data in stream:
        try:
            parser.write(data)
        except FormParserError:
            raise MalformedRequest("The multipart body is broken.") from None
        for event in reader.taken():
            yield event
    # Without this check, a connection cut in the middle would look like a shorter file.
    if not reader.ended:
        raise MalformedRequest("The multipart body ends before its last boundary.")


@dataclass
class _Reader:
    found: list[Event] = field(default_factory=list)
    headers: dict[bytes, bytes] = field(default_factory=dict)
    name: bytearray = field(default_factory=bytearray)
    value: bytearray = field(default_factory=bytearray)
    parts: int = 0
    ended: bool = False

    def callbacks(self) -> MultipartCallbacks:
        return {
            "on_part_begin": self.begin,
            "on_header_field": lambda data, start, end: self.name.extend(data[start:end]),
            "on_header_value": lambda data, start, end: self.value.extend(data[start:end]),
            "on_header_end": self.header,
            "on_headers_finished": self.describe,
            "on_part_data": lambda data, start, end: self.found.append(PartData(data[start:end])),
            "on_part_end": lambda: self.found.append(PartEnd()),
            "on_end": self.end,
        }

    def begin(self) -> None:
        self.parts += 1
        if self.parts > MOST_PARTS:
            raise MalformedRequest(f"A multipart body has at most {MOST_PARTS} parts here.")
        self.headers.clear()

    def header(self) -> None:
        self.headers[bytes(self.name).lower()] = bytes(self.value)
        self.name.clear()
        self.value.clear()

    def describe(self) -> None:
        # Latin-1 decodes every byte, so no header can raise here.
        disposition = self.headers.get(b"content-disposition", b"").decode("latin-1")
        kind, options = parse_options_header(disposition)
        if kind != b"form-data" or not options.get(b"name"):
            raise MalformedRequest("Each part must have a Content-Disposition with a name.")
        media = self.headers.get(b"content-type")
        self.found.append(
            PartBegin(
                _text(options[b"name"]) or "",
                _text(options.get(b"filename")),
                None if media is None else media.decode("latin-1"),
            )
        )

    def end(self) -> None:
        self.ended = True

    def taken(self) -> list[Event]:
        taken, self.found = self.found, []
        return taken


def _text(raw: bytes | None) -> str | None:
    return None if raw is None else raw.decode("utf-8", "replace")

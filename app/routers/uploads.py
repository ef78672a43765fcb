"""Receives tables over HTTP, streamed into the staging folder and nowhere else."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import anyio
from anyio import to_thread
from fastapi import Request
from starlette.requests import ClientDisconnect

from app.datasets.staging import StagedFile, StagedWriter
from app.engine.json_pointer import pointer
from app.problems import HalftoneError, Invalid, TooLarge, TooSlow, UnsupportedMedia
from app.routers import multipart
from app.routers.multipart import PartBegin, PartData
from app.routers.wire import media_type, parse_json, refuse_large

Spec = TypeVar("Spec")

# One thread hop for each MiB, not for each packet.
FLUSHED_BYTES = 1024**2
# Media types are only hints; a longer one would fill rows and messages.
LONGEST_HINT = 200
# Enough for what is usually in flight; a larger upload is cut off without its response.
DRAINED_BYTES = 8 * 1024**2
DRAINED_S = 3.0


@contextlib.asynccontextmanager
async def draining_before_refusal(request: Request) -> AsyncIterator[None]:
    """Read a little more of the body before an authenticated caller is refused.

    If the connection closes while the client is still sending, the client never sees the response.
    """
    try:
        yield
    except HalftoneError:
        # A client that sent `Expect: 100-continue` waits for permission and has sent nothing yet.
        if "expect" not in request.headers:
            await _drain(request)
        raise


async def _drain(request: Request) -> None:
    taken = 0
    with (
        anyio.move_on_after(DRAINED_S),
        contextlib.suppress(RuntimeError, ClientDisconnect, TooSlow),
    ):
        async for data in request.stream():
            taken += len(data)
            if taken > DRAINED_BYTES:
                return


class Receiver:
    """Writes a stream to a staged file in large steps, off the event loop, within a limit."""

    def __init__(self, writer: StagedWriter, limit_bytes: int) -> None:
        self._writer = writer
        self._limit_bytes = limit_bytes
        self._held = bytearray()

    async def take(self, data: bytes) -> None:
        self._held += data
        # Counted as it arrives, since a chunked body declares no length.
        if self._writer.size_bytes + len(self._held) > self._limit_bytes:
            raise TooLarge(f"A table file may have at most {self._limit_bytes} bytes.")
        if len(self._held) >= FLUSHED_BYTES:
            await self._flush()

    async def finish(self, media: str | None) -> StagedFile:
        """Raises `Invalid` for a file without a byte."""
        await self._flush()
        if not self._writer.size_bytes:
            raise Invalid.at("/file", "The file is empty.", "Send a file with at least one row.")
        return await to_thread.run_sync(lambda: self._writer.finish(media_type=_short(media)))

    async def _flush(self) -> None:
        if self._held:
            data, self._held = bytes(self._held), bytearray()
            await to_thread.run_sync(self._writer.write, data)


async def receive_raw(request: Request, writer: StagedWriter, limit_bytes: int) -> StagedFile:
    """The whole body as one file."""
    kind = media_type(request)
    if kind.startswith("multipart/"):
        raise UnsupportedMedia("Send the bytes of the file alone, as `curl -T` does.")
    refuse_large(request, limit_bytes)
    receiver = Receiver(writer, limit_bytes)
    async for data in request.stream():
        await receiver.take(data)
    return await receiver.finish(kind or None)


@dataclass(frozen=True, slots=True)
class Form(Generic[Spec]):
    """A received form: the JSON of `spec`, what it was read as, and the staged `file`."""

    raw: Any
    spec: Spec
    staged: StagedFile


@dataclass
class _FormState(Generic[Spec]):
    part: PartBegin | None = None
    json: bytearray = field(default_factory=bytearray)
    raw: Any = None
    spec: Spec | None = None
    staged: StagedFile | None = None


class FormReader(Generic[Spec]):
    """Reads a form of a JSON part `spec` and, after it, a part `file`.

    `read_spec` parses the JSON as soon as it has arrived, so that a faulty one is refused before
    the file is read.
    """

    def __init__(
        self,
        request: Request,
        writer: StagedWriter,
        *,
        read_spec: Callable[[Any], Spec],
        spec_bytes: int,
        file_bytes: int,
    ) -> None:
        self._request = request
        self._read_spec = read_spec
        self._spec_bytes = spec_bytes
        self._receiver = Receiver(writer, file_bytes)
        self._state: _FormState[Spec] = _FormState()

    async def read(self) -> Form[Spec]:
        boundary = multipart.boundary_of(self._request.headers.get("content-type", ""))
        async for event in multipart.events(self._request.stream(), boundary):
            if isinstance(event, PartBegin):
                self._begin(event)
            elif isinstance(event, PartData):
                await self._take(event.data)
            else:
                await self._end()
        return self._complete()

    def _begin(self, part: PartBegin) -> None:
        state = self._state
        if part.name not in ("spec", "file"):
            raise _misplaced(part.name, "The form has only the parts `spec` and `file`.")
        if part.name == "file" and state.spec is None:
            raise _misplaced("file", "The part `spec` must come before `file`.")
        if (part.name == "spec" and state.spec is not None) or state.staged is not None:
            raise _misplaced(part.name, "Each part must come once, `spec` before `file`.")
        state.part = part

    async def _take(self, data: bytes) -> None:
        state = self._state
        assert state.part is not None
        if state.part.name == "file":
            await self._receiver.take(data)
            return
        state.json += data
        if len(state.json) > self._spec_bytes:
            raise TooLarge(f"The part `spec` may have at most {self._spec_bytes} bytes.")

    async def _end(self) -> None:
        state = self._state
        assert state.part is not None
        if state.part.name == "file":
            state.staged = await self._receiver.finish(state.part.media_type)
            return
        state.raw = parse_json(bytes(state.json))
        state.spec = await to_thread.run_sync(self._read_spec, state.raw)

    def _complete(self) -> Form[Spec]:
        state = self._state
        if state.spec is None:
            raise _misplaced("spec", "The form has no part `spec`.")
        if state.staged is None:
            raise _misplaced("file", "The form has no part `file`.")
        return Form(state.raw, state.spec, state.staged)


def _misplaced(name: str, message: str) -> Invalid:
    return Invalid.at(
        pointer(name[:LONGEST_HINT]),
        message,
        "Send multipart/form-data with `spec` (application/json) first, then `file`.",
    )


def _short(text: str | None) -> str | None:
    return None if text is None else text[:LONGEST_HINT]

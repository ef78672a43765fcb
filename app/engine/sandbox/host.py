"""How a host sends requests to a synthesizer's child, over a connected socket.

The child's process has `child.main` serve the other end, one request after another.
Starting it, limiting its time and memory, and ending it are the host's. For `fit` the host
sends `protocol.FIT`, then runs a `SessionServer` whose task and arrays are a `FitTask`'s.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.engine.method import CountsTable, Preflight, Problem, PublicChunks
from app.engine.privacy.wire import MOST_BYTES_FROM_CHILD, Channel, Frame, FrameError
from app.engine.sandbox import protocol
from app.engine.sandbox.protocol import (
    Check,
    Describe,
    Described,
    Failed,
    FormRead,
    Next,
    PublicChecked,
    Read,
    ReadForm,
    Sample,
)
from app.engine.schema import PrivacyUnit
from app.engine.table import Table


class ChildGaveUp(Exception):
    """The child failed at a request. `detail` is for the custodian alone."""

    def __init__(self, detail: str) -> None:
        super().__init__("the synthesizer gave up")
        self.detail = detail


def describe(connection: socket.socket, request: Describe) -> Described:
    """Raises `ChildGaveUp`, and `FrameError` for a reply that is none."""
    return Described.from_frame(_answered(connection, request.to_frame()))


def read_form(connection: socket.socket, request: ReadForm) -> FormRead:
    """Raises `ChildGaveUp`, and `FrameError` for a reply that is none."""
    return FormRead.from_frame(_answered(connection, request.to_frame()))


def check(connection: socket.socket, request: Check) -> Preflight:
    """Raises `ChildGaveUp`, and `FrameError` for a reply that is none."""
    return protocol.checked(_answered(connection, request.to_frame()))


def check_public(
    connection: socket.socket, request: Check, public: PublicChunks
) -> tuple[Problem, ...]:
    """What a synthesizer finds wrong with public rows, of which it reads as many as it wants.

    Raises `ChildGaveUp`, and `FrameError` for a reply that is none.
    """
    channel = Channel(connection, MOST_BYTES_FROM_CHILD)
    channel.send(request.to_frame("check_public"))
    reading: Iterator[Mapping[str, NDArray[Any]]] = iter(())
    while True:
        reply = protocol.reply_of(_received(channel))
        if isinstance(reply, PublicChecked):
            return reply.problems
        if isinstance(reply, Read):
            reading = iter(public.chunks(protocol.read_columns(reply, public.schema)))
        elif not isinstance(reply, Next):
            raise FrameError("this does not answer `check_public`")
        channel.send(protocol.chunk_frame(next(reading, None)))


def counts(connection: socket.socket, request: Sample) -> CountsTable:
    """The model's counts (`kind` is `counts`). Raises `ChildGaveUp` and `FrameError`."""
    return protocol.counts_of(_answered(connection, request.to_frame()), request.schema)


def sample(connection: socket.socket, request: Sample, most_rows: int) -> Iterator[Table]:
    """The rows of a sample in parts, checked against the dictionary as they come.

    At least one part comes, if with no rows. Raises `ChildGaveUp`, and `FrameError` for more
    than `most_rows` rows, another number than was asked for, codes outside the dictionary,
    changing columns, or an entity with more rows than the unit allows.
    """
    channel = Channel(connection, MOST_BYTES_FROM_CHILD)
    channel.send(request.to_frame())
    columns: list[str] | None = None
    tally = _EntityTally(request.unit, most_rows)
    rows = 0
    while (frame := _received(channel)).header.get("type") != "end":
        part = protocol.table_part(frame, request.schema, request.unit)
        columns = columns or list(part.codes)
        rows += part.rows
        if rows > most_rows or list(part.codes) != columns or not part.rows:
            raise FrameError("a sample has too many rows, or parts that differ")
        tally.add(part)
        yield part
    if request.rows not in (None, rows):
        raise FrameError("a sample has another number of rows than was asked for")
    if not rows:
        yield protocol.empty_table(frame, request.schema, request.unit)


class _EntityTally:
    """Counts the rows of each synthetic entity across the parts of a sample."""

    def __init__(self, unit: PrivacyUnit, most_rows: int) -> None:
        self._unit = unit
        self._most_entities = most_rows
        self._rows = np.zeros(0, dtype=np.int64)

    def add(self, part: Table) -> None:
        if part.entity is None:
            return
        if part.entity.max() >= self._most_entities:
            raise FrameError("entities are numbered without gaps")
        counted = np.bincount(part.entity, minlength=self._rows.size)
        counted[: self._rows.size] += self._rows
        self._rows = counted
        if self._rows.max() > self._unit.max_rows:
            raise FrameError("an entity has more rows than the unit allows")


def _answered(connection: socket.socket, request: Frame) -> Frame:
    channel = Channel(connection, MOST_BYTES_FROM_CHILD)
    channel.send(request)
    return _received(channel)


def _received(channel: Channel) -> Frame:
    frame = channel.receive()
    reply = protocol.reply_of(frame)
    if isinstance(reply, Failed):
        raise ChildGaveUp(reply.detail)
    return frame

"""The process that runs a synthesizer: it holds one socket and nothing else.

`main` serves requests of its host (see `protocol`), one after another, until the host goes.
Before it imports any third party's code it drops what it can: inherited descriptors but the
socket, more than a few new ones, core dumps and new privileges. Environment, working folder,
memory and time are set by whoever starts the process. Code that attacks the operating system
as the same user is not held by this.
"""

from __future__ import annotations

import ctypes
import os
import resource
import socket
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from numpy.typing import NDArray
from pydantic import ValidationError

from app.engine import compiled
from app.engine.catalog import registry
from app.engine.method import (
    Preflight,
    Problem,
)
from app.engine.privacy.session import RemoteSession
from app.engine.privacy.wire import MOST_BYTES_TO_CHILD, Channel, ChannelClosed, Frame
from app.engine.sandbox import protocol
from app.engine.sandbox.protocol import Check, Checked, Describe, Described, FitTask, Sample
from app.engine.schema import Schema
from app.engine.table import generator

_MOST_OPEN_FILES = 128
_PR_SET_NO_NEW_PRIVS = 38


def main(descriptor: int) -> None:
    """Serves requests on the inherited socket, until it is closed."""
    _drop_privileges(descriptor)
    registry.import_built_ins()
    compiled.get_ready()
    connection = socket.socket(fileno=descriptor)
    channel = Channel(connection, MOST_BYTES_TO_CHILD)
    try:
        while True:
            request = channel.receive()
            if request.header.get("type") == "fit":
                _fit(RemoteSession(connection))
            else:
                _reply(channel, request)
    except ChannelClosed:  # the host has gone, and with it whoever wanted to know
        return


def _drop_privileges(descriptor: int) -> None:
    os.closerange(3, descriptor)
    os.closerange(descriptor + 1, 65536)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (_MOST_OPEN_FILES, _MOST_OPEN_FILES))
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)


def _fit(session: RemoteSession) -> None:
    try:
        task = FitTask.from_json(session.task, session.arrays)
        synthesizer = registry.load(task.name)
        params = synthesizer.Params.model_validate(task.params)
        model = synthesizer.fit(session, params, task.public, task.seed, session.progress)
        data = model.dump()
        statement = protocol.statement(model.expected_errors())
    except ChannelClosed:
        raise
    except Exception as error:  # a third party may raise anything; its custodian reads it
        session.fail(_told(error))
        return
    session.finish(data, statement)


def _reply(channel: Channel, request: Frame) -> None:
    try:
        match request.header.get("type"):
            case "describe":
                channel.send(_described(Describe.from_frame(request.header)).to_frame())
            case "check":
                channel.send(_checked(Check.from_frame(request.header)).to_frame())
            case "check_public":
                channel.send(_public_checked(channel, Check.from_frame(request.header)))
            case "sample":
                _send_sample(channel, Sample.from_frame(request.header, request.arrays[0]))
            case _:
                channel.send(protocol.failure("there is no such operation"))
    except ChannelClosed:
        raise
    except Exception as error:
        channel.send(protocol.failure(_told(error)))


def _described(request: Describe) -> Described:
    synthesizer = registry.load(request.name)
    return Described(
        synthesizer.name,
        synthesizer.title,
        synthesizer.reference,
        synthesizer.Params.model_json_schema(),
    )


def _checked(check: Check) -> Checked:
    synthesizer = registry.load(check.name)
    try:
        params = synthesizer.Params.model_validate(check.form)
    except ValidationError as error:
        return Checked(None, Preflight(0, 0, 0.0, _form_problems(error)))
    preflight = synthesizer.check(
        check.schema, check.unit, params, check.loss, check.public, check.limits
    )
    plain = params.model_dump(mode="json", exclude_none=True)
    return Checked(
        plain,
        preflight,
        synthesizer.delta_set_aside(params, check.schema),
        synthesizer.looks_at_public_rows,
    )


def _public_checked(channel: Channel, check: Check) -> Frame:
    synthesizer = registry.load(check.name)
    params = synthesizer.Params.model_validate(check.form)
    if check.public is None:
        return protocol.public_checked_frame(())
    public = _HostsChunks(channel, check.public.schema)
    return protocol.public_checked_frame(
        synthesizer.check_public(check.schema, check.unit, params, check.loss, public)
    )


class _HostsChunks:
    """`PublicChunks` that the host hands over one by one."""

    def __init__(self, channel: Channel, schema: Schema) -> None:
        self._channel = channel
        self.schema = schema

    def chunks(self, columns: Sequence[str]) -> Iterator[dict[str, NDArray[Any]]]:
        self._channel.send(protocol.read_frame(columns))
        while (chunk := protocol.chunk_of(self._channel.receive())) is not None:
            yield chunk
            self._channel.send(protocol.NEXT)


def _form_problems(error: ValidationError) -> tuple[Problem, ...]:
    return tuple(
        Problem(
            "/params" + "".join(f"/{_escaped(str(step))}" for step in fault["loc"]),
            fault["msg"],
            "see the synthesizer's form",
        )
        for fault in error.errors(include_url=False, include_context=False, include_input=False)
    )


def _escaped(step: str) -> str:
    return step.replace("~", "~0").replace("/", "~1")


def _send_sample(channel: Channel, sample: Sample) -> None:
    synthesizer = registry.load(sample.name)
    model = synthesizer.load(sample.schema, sample.unit, sample.model)
    if sample.kind == "counts":
        channel.send(protocol.counts_frame(model.counts()))
        return
    rows = model.rows_to_ask(sample.rows, sample.most_rows)
    for part in protocol.table_parts(model.sample(rows, generator(sample.seed))):
        channel.send(part)


def _told(error: Exception) -> str:
    text = f"{type(error).__name__}: {error}"
    return text.encode(errors="replace").decode()  # a file's name may hold half characters

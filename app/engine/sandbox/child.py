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
from app.engine.json_pointer import pointer
from app.engine.method import Problem
from app.engine.privacy.session import RemoteSession
from app.engine.privacy.wire import MOST_BYTES_TO_CHILD, Channel, ChannelClosed, Frame
from app.engine.sandbox import answers, protocol
from app.engine.sandbox.protocol import (
    Check,
    Describe,
    Described,
    FitTask,
    FormRead,
    PublicChecked,
    Read,
    ReadForm,
    Sample,
)
from app.engine.schema import Schema
from app.engine.table import generator

# A running synthesizer opens few files: enough to import libraries, too few to exhaust a host.
_MOST_OPEN_FILES = 128
_PR_SET_NO_NEW_PRIVS = 38


def prepare() -> None:
    """Import what any synthesizer needs: in the process from which this one is forked."""
    registry.import_built_ins()
    compiled.get_ready()


def main(descriptor: int) -> None:
    """Serves requests on the inherited socket, until it is closed."""
    # Before any code of a third party is imported, which is what the limits are for.
    _drop_privileges(descriptor)
    prepare()
    connection = socket.socket(fileno=descriptor)
    channel = Channel(connection, MOST_BYTES_TO_CHILD)
    try:
        while True:
            request = channel.receive()
            if request.header.get("type") == "fit":
                _fit(RemoteSession(connection))
            else:
                _reply(channel, request)
    except ChannelClosed:  # the host has gone, and nobody is left to report to
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
        session.fail(_detail(error))
        return
    session.finish(data, statement)


def _reply(channel: Channel, request: Frame) -> None:
    try:
        match request.header.get("type"):
            case "describe":
                channel.send(_described(Describe.from_frame(request.header)).to_frame())
            case "read_form":
                channel.send(_form_read(ReadForm.from_frame(request.header)).to_frame())
            case "check":
                check = Check.from_frame(request.header)
                forecast = answers.preflight(registry.load(check.name), check)
                channel.send(protocol.checked_frame(forecast))
            case "check_public":
                channel.send(_public_checked(channel, Check.from_frame(request.header)))
            case "sample":
                _send_sample(channel, Sample.from_frame(request.header, request.arrays[0]))
            case _:
                channel.send(protocol.failure("there is no such operation"))
    except ChannelClosed:
        raise
    except Exception as error:
        channel.send(protocol.failure(_detail(error)))


def _described(request: Describe) -> Described:
    synthesizer = registry.load(request.name)
    return Described(
        synthesizer.name,
        synthesizer.title,
        synthesizer.reference,
        synthesizer.Params.model_json_schema(),
    )


def _form_read(request: ReadForm) -> FormRead:
    try:
        return answers.form_read(registry.load(request.name), request.form, request.schema)
    except ValidationError as error:
        return FormRead(None, _form_problems(error))


def _public_checked(channel: Channel, check: Check) -> Frame:
    if check.public is None:
        return PublicChecked(()).to_frame()
    public = _HostsChunks(channel, check.public.schema)
    problems = answers.public_problems(registry.load(check.name), check, public)
    return PublicChecked(problems).to_frame()


class _HostsChunks:
    """`PublicChunks` that the host sends one by one."""

    def __init__(self, channel: Channel, schema: Schema) -> None:
        self._channel = channel
        self.schema = schema

    def chunks(self, columns: Sequence[str]) -> Iterator[dict[str, NDArray[Any]]]:
        self._channel.send(Read(tuple(columns)).to_frame())
        while (chunk := protocol.chunk_of(self._channel.receive())) is not None:
            yield chunk
            self._channel.send(protocol.NEXT)


def _form_problems(error: ValidationError) -> tuple[Problem, ...]:
    return tuple(
        Problem(
            pointer("params", *fault["loc"]),
            fault["msg"],
            "see the synthesizer's form",
        )
        for fault in error.errors(include_url=False, include_context=False, include_input=False)
    )


def _send_sample(channel: Channel, sample: Sample) -> None:
    synthesizer = registry.load(sample.name)
    model = synthesizer.load(sample.schema, sample.unit, sample.model)
    if sample.kind == "counts":
        channel.send(protocol.counts_frame(model.counts()))
        return
    rows = model.rows_to_ask(sample.rows, sample.most_rows)
    for part in protocol.table_parts(model.sample(rows, generator(sample.seed))):
        channel.send(part)


def _detail(error: Exception) -> str:
    text = f"{type(error).__name__}: {error}"
    return text.encode(errors="replace").decode()  # a file's name may hold half characters

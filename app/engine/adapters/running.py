"""One run of a library: its process gets one request over a pipe, and answers once.

The process is a child of this one and stays inside what confines this one: where a synthesizer's
process has no network, no store and a limit of memory, so has the library, and it ends when the
group of processes is ended.
"""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from app.engine.adapters.budget import LibraryGuarantee
from app.engine.method.model_file import ModelFormatError, pack, unpack
from app.engine.privacy.wire import MOST_BYTES_FROM_CHILD, narrowed

RUNNER = Path(__file__).with_name("runner.py")
MOST_REPLY_BYTES = MOST_BYTES_FROM_CHILD
# No other variable reaches the library: the service's may hold keys.
_KEPT = ("PATH", "HOME", "TMPDIR", "LANG", "LC_ALL", "TZ")
# One thread, unless the synthesizer's process is given more.
_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


class LibraryFailed(Exception):
    """The library's process ended without a fitted model."""


@dataclass(frozen=True, slots=True)
class Order:
    """What to fit: a method with its options, and what it may spend."""

    library: str
    method: str
    options: Mapping[str, Any]
    guarantee: LibraryGuarantee

    def request(self, cells: Sequence[int], columns: Sequence[NDArray[np.int64]]) -> bytes:
        header = {
            "library": self.library,
            "method": self.method,
            "options": dict(self.options),
            "cells": list(cells),
            "epsilon": self.guarantee.epsilon,
            "delta": self.guarantee.delta,
            "rho": self.guarantee.rho,
        }
        return pack(header, {f"x{i}": narrowed(column) for i, column in enumerate(columns)})


def run(python: Path, request: bytes) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """The header and arrays of the reply, unchecked. Raises `LibraryFailed`."""
    process = subprocess.Popen(
        [str(python), "-I", str(RUNNER), str(os.getpid())],
        env=_environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        reply = _exchanged(process, request)
    finally:
        process.kill()
        process.wait()
    try:
        return unpack(reply)
    except ModelFormatError as error:
        raise LibraryFailed("the library's process answered what is no model") from error


def _exchanged(process: subprocess.Popen[bytes], request: bytes) -> bytes:
    assert process.stdin is not None
    assert process.stdout is not None
    # Written by a second thread: a library that answers before it has read all would wait for us to
    # read, and we for it.
    writer = threading.Thread(target=_write, args=(process.stdin, request), daemon=True)
    writer.start()
    with process.stdout:
        reply = process.stdout.read(MOST_REPLY_BYTES + 1)
    if len(reply) > MOST_REPLY_BYTES:
        raise LibraryFailed("the fitted model is too large to be kept")
    status = process.wait()
    writer.join()
    if status:
        raise LibraryFailed(f"the library's process ended with status {status}")
    return reply


def _write(pipe: IO[bytes], request: bytes) -> None:
    with suppress(BrokenPipeError), pipe:
        pipe.write(request)


def _environment() -> dict[str, str]:
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
    threads = {name: os.environ.get(name, "1") for name in _ONE_THREAD}
    return {**kept, **threads, "JAX_PLATFORMS": "cpu"}

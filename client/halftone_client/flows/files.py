"""Answers that are written to files, in bounded memory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from halftone_client.protocol import Call, Flow, Service, Sink, Write


@contextmanager
def whole_file(target: Path) -> Iterator[Sink]:
    """Where to write: the file stands at `target` once the block has ended without an error."""
    partial = target.with_name(target.name + ".part")

    @contextmanager
    def sink() -> Iterator[Write]:
        with partial.open("wb") as file:
            yield file.write

    try:
        yield sink
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)


def written(service: Service, call: Call, path: str | os.PathLike[str]) -> Flow[Path]:
    """Write the answer to `path`; never leaves half a file there."""
    target = Path(path)
    with whole_file(target) as sink:
        yield from service.call(replace(call, sink=sink))
    return target

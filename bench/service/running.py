"""A server of the bench's own: `halftone serve` on a free port of loopback."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

KEY = "hk_" + "b" * 43
ADMIN = {"Authorization": f"Bearer {KEY}"}


@contextlib.contextmanager
def serving(
    folder: Path,
    *,
    workers: int,
    module: str = "app.cli",
    settings: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """The address and process of a running server, ended when the block ends.

    `settings` are further ones of its environment.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", module, "serve", "--port", "0"],
        env={
            **os.environ,
            "HALFTONE_DATA": str(folder),
            "HALFTONE_ADMIN_KEY": KEY,
            "HALFTONE_WORKERS": str(workers),
            "HALFTONE_LOG_LEVEL": "WARNING",
            "PYTHONUNBUFFERED": "1",
            **settings,
        },
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if found := re.search(r"ready at (http://\S+)", line):
                yield found.group(1).rstrip("/"), process
                return
        raise RuntimeError("the server did not start")
    finally:
        process.terminate()
        process.wait(30)
        if process.stdout is not None:
            process.stdout.close()

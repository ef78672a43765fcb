"""Working folders of synthesizers' processes, and how those of dead workers are known.

A folder is locked for as long as its worker lives: the system frees the lock of a process that
is killed, in whatever container it ran.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from pathlib import Path

_PREFIX = "halftone-child-"
# A folder is not locked in the moment in which it is made.
_YOUNG_S = 60.0


class ChildFolder:
    """An empty folder, this process's until `close`."""

    def __init__(self) -> None:
        self._made = tempfile.TemporaryDirectory(prefix=_PREFIX)
        self.path = Path(self._made.name)
        self._lock = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(self._lock, fcntl.LOCK_EX)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._made.cleanup()
        os.close(self._lock)


def remove_left_behind(beside: Path | None = None) -> list[Path]:
    """Remove the folders whose workers died without doing so; which they were.

    `beside` is where folders are made. Only this user's own folders are looked at, and no link
    is followed.
    """
    place = Path(tempfile.gettempdir()) if beside is None else beside
    return [path for path in place.glob(f"{_PREFIX}*") if _removed(path)]


def _removed(path: Path) -> bool:
    try:
        folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        facts = os.fstat(folder)
        if facts.st_uid != os.geteuid() or time.time() - facts.st_mtime < _YOUNG_S:
            return False
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(path)
    except OSError:
        return False
    finally:
        os.close(folder)
    return True

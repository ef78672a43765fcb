"""Working folders of synthesizers' processes, and how those of dead workers are recognised.

A folder is locked as long as its worker lives. The system frees the lock of a process that is
killed, also if it ran in another container.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path

_PREFIX = "halftone-child-"


class ChildFolder:
    """An empty folder that belongs to this process until `close`."""

    def __init__(self) -> None:
        while True:
            self.path = Path(tempfile.mkdtemp(prefix=_PREFIX))
            # Until it is locked, it looks like one left behind, and may be removed as such.
            with contextlib.suppress(FileNotFoundError):
                self._lock = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
                fcntl.flock(self._lock, fcntl.LOCK_EX)
                if self.path.exists():
                    return
                os.close(self._lock)

    def close(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


def remove_left_behind(place: Path | None = None) -> list[Path]:
    """Remove the folders of workers that died without removing them; returns their paths.

    `place` is where folders are made. Only this user's own folders are considered, and no link is
    followed.
    """
    place = Path(tempfile.gettempdir()) if place is None else place
    return [path for path in place.glob(f"{_PREFIX}*") if _removed(path)]


def _removed(path: Path) -> bool:
    try:
        # The temporary folder is open to all users: a link placed there must not lead the removal
        # away.
        folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        if os.fstat(folder).st_uid != os.geteuid():
            return False
        # Fails with OSError while the worker lives.
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(path)
    except OSError:
        return False
    finally:
        os.close(folder)
    return True

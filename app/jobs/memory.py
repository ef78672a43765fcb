"""Keeping what a process holds in memory and environment from others of the same user."""

from __future__ import annotations

import ctypes
import resource
import sys

_PR_SET_DUMPABLE = 4


def close_memory() -> None:
    """Leave no core file; on Linux let no process of the same user attach to this one.

    Memory, environment and descriptors under /proc are then root's to read. It does not pass
    on to the programs that this process starts.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)

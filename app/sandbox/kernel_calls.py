"""Calls of Linux that Python's library does not have; the numbers are from the kernel's headers."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from functools import cache
from typing import Any

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38


@cache
def libc() -> Any:
    return ctypes.CDLL(None, use_errno=True)


def prctl(option: int, *arguments: int) -> None:
    """Raises `OSError`."""
    if libc().prctl(option, *(ctypes.c_ulong(each) for each in (*arguments, 0, 0, 0, 0)[:4])):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def become_subreaper() -> None:
    """Orphaned descendants become children of this process, on Linux."""
    if sys.platform == "linux":
        prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent() -> None:
    """Have the kernel kill this process when the thread that started it ends, on Linux."""
    if sys.platform == "linux":
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def refuse_new_privileges() -> None:
    """No program that this process starts has more rights than it, on Linux.

    Needed before a process confines itself, and stops set-uid programs from undoing that.
    """
    if sys.platform == "linux":
        prctl(_PR_SET_NO_NEW_PRIVS, 1)

"""Calls of Linux that Python's library does not have; the numbers are from the kernel's headers."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
from functools import cache
from pathlib import Path
from typing import Any, Literal

NewNamespace = Literal["user and pid", "pid"]

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38
_PR_CAPBSET_DROP = 24
_PR_CAP_AMBIENT, _AMBIENT_CLEAR_ALL = 47, 4
_CAPABILITIES_VERSION = 0x20080522
_CLONE_NEWUSER, _CLONE_NEWPID = 0x10000000, 0x20000000


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


class _CapabilitiesOf(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint32), ("pid", ctypes.c_int)]


# Effective, permitted and inheritable, twice 32 bits of each.
_Capabilities = ctypes.c_uint32 * 6


def drop_capabilities() -> None:
    """Give up every capability for good, also root's and those of a user namespace."""
    if sys.platform != "linux":
        return
    # Refused to a process without capabilities, which has none to drop; the numbers end where the
    # kernel knows no more.
    with contextlib.suppress(OSError):
        for capability in range(64):
            prctl(_PR_CAPBSET_DROP, capability)
    with contextlib.suppress(OSError):
        prctl(_PR_CAP_AMBIENT, _AMBIENT_CLEAR_ALL)
    whose = _CapabilitiesOf(_CAPABILITIES_VERSION, 0)
    if libc().capset(ctypes.byref(whose), ctypes.byref(_Capabilities())):
        raise OSError(ctypes.get_errno(), "capabilities could not be dropped")


def new_pid_namespace() -> NewNamespace | None:
    """Have the next child of this process be the first of a PID namespace of its own.

    Without root's rights this needs a user namespace, in which the user keeps its number. None if
    the kernel, or what confines this process, gives neither.
    """
    if sys.platform != "linux":
        return None
    user, group = os.geteuid(), os.getegid()
    if not libc().unshare(_CLONE_NEWUSER | _CLONE_NEWPID):
        # The group can be mapped only once no process may drop groups.
        for file, text in (
            ("setgroups", "deny"),
            ("uid_map", f"{user} {user} 1"),
            ("gid_map", f"{group} {group} 1"),
        ):
            Path("/proc/self", file).write_text(text)
        return "user and pid"
    return "pid" if not libc().unshare(_CLONE_NEWPID) else None


def has_pid_namespaces() -> bool:
    """Whether `new_pid_namespace` works here, tried in a process of its own."""
    pid = os.fork()
    if not pid:
        with contextlib.suppress(BaseException):
            if new_pid_namespace() is not None:
                first = os.fork()
                if not first:
                    os._exit(0 if os.getpid() == 1 else 1)
                os._exit(os.waitstatus_to_exitcode(os.waitpid(first, 0)[1]))
        os._exit(1)
    return os.waitpid(pid, 0)[1] == 0

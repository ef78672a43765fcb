"""What confines a synthesizer's process, before a third party's code is imported in it.

The process dies with its guard and leaves no core file. Its environment, folder and descriptors are
those of its plan, and it has no capability. On Linux it can open only local sockets, cannot look
into another process and makes no namespace (seccomp). If the kernel has Landlock (Linux 5.13), it
can read only code and libraries, write only its own empty folder, and connect to nothing (TCP from
Linux 6.7 on, abstract sockets from 6.12 on). It cannot read the service's folder, even if that
folder is next to the code. On other systems the separate process is the only protection.
"""

from __future__ import annotations

import ctypes
import errno
import importlib
import os
import resource
import select
import socket
import sys
import time
import traceback
from typing import Any, NoReturn

from app.sandbox.kernel_calls import die_with_parent, drop_capabilities, libc, refuse_new_privileges

# Numbers of Landlock's system calls, from the kernel's headers.
_LANDLOCK_CREATE_RULESET = 444
_LANDLOCK_ADD_RULE = 445
_LANDLOCK_RESTRICT_SELF = 446
_RULE_PATH_BENEATH = 1
_GET_VERSION = 1

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
# Rights that newer Landlock versions added must not be named to an older kernel, which would refuse
# the whole rule set.
_ALL_OF_FIRST_VERSION = (1 << 13) - 1
_REFER, _TRUNCATE, _IOCTL = 1 << 13, 1 << 14, 1 << 15
_FILE_RIGHTS = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE
_BIND_AND_CONNECT = 0b11
_SCOPE_SOCKETS_AND_SIGNALS = 0b11

_READ = _EXECUTE | _READ_FILE | _READ_DIR


# Of one synthesizer's process and all that it starts: enough for pools of libraries on a machine of
# many processors.
MOST_TASKS = 512
# Descriptors that a process may have inherited lie below it.
_MOST_DESCRIPTORS = 65536
# Opcodes of classic BPF, and the places of a system call's number, architecture and first argument
# in `struct seccomp_data`.
_PR_SET_SECCOMP, _MODE_FILTER = 22, 2
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER_AT, _ARCHITECTURE_AT, _FIRST_ARGUMENT_AT = 0, 4, 16
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050000 | errno.EPERM
# On x86-64, numbers from here on call a second table (x32), which would bypass the filter.
_OTHER_ABI = 0x40000000
# AUDIT_ARCH_*, and the column of the tables below.
_MACHINES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}
# Numbers on x86-64 and on ARM.
_SOCKET = (41, 198)
_CLONE = (56, 220)
_REFUSED = {
    # Look into other processes.
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "kcmp": (312, 272),
    "pidfd_getfd": (438, 438),
    # Open sockets without the call that the filter looks at.
    "io_uring_setup": (425, 425),
    # Change namespaces and what is mounted.
    "unshare": (272, 97),
    "setns": (308, 268),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "open_tree_attr": (467, 467),
    # Parts of the kernel that no synthesizer needs, and by which confinements were left before.
    "open_by_handle_at": (304, 265),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
}
# Its flags are behind a pointer, where a filter cannot look. C libraries then call `clone`.
_CLONE3 = 435
_NOT_THERE = 0x00050000 | errno.ENOSYS
# Every CLONE_NEW* that `clone` takes: in a user namespace of its own a process has all
# capabilities again.
_NEW_NAMESPACES = 0x7E020000


class _Filter(ctypes.Structure):
    _fields_ = [
        ("code", ctypes.c_uint16),
        ("if_true", ctypes.c_uint8),
        ("if_false", ctypes.c_uint8),
        ("operand", ctypes.c_uint32),
    ]


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_uint16), ("filters", ctypes.POINTER(_Filter))]


class _Ruleset(ctypes.Structure):
    _fields_ = [
        ("handled_access_fs", ctypes.c_uint64),
        ("handled_access_net", ctypes.c_uint64),
        ("scoped", ctypes.c_uint64),
    ]


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = [("allowed_access", ctypes.c_uint64), ("parent_fd", ctypes.c_int32)]


def main(plan: dict[str, Any], connection: int, guarded: int) -> NoReturn:
    """Become the process of `plan`, which serves `connection`. `guarded` is the guard's pipe."""
    status = 1
    try:
        _confine_self(plan, connection, guarded)
        # Replaced, not extended: a folder outside the plan must not supply a module.
        sys.path[:] = plan["import_from"]
        importlib.invalidate_caches()
        importlib.import_module(plan["module"]).main(connection)
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        # Not an exit of Python, which would go back through the code that forked this process.
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(status)


def _confine_self(plan: dict[str, Any], connection: int, guarded: int) -> None:
    os.setsid()
    die_with_parent()
    # The guard ended before that, so no signal will come: its end of the pipe is closed.
    if select.select([guarded], [], [], 0)[0]:
        os._exit(1)
    os.closerange(3, connection)
    os.closerange(connection + 1, _MOST_DESCRIPTORS)
    os.set_inheritable(connection, False)
    os.environ.clear()
    os.environ.update(plan["environment"])
    time.tzset()
    os.chdir(plan["folder"])
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if plan["memory_bytes"] is not None:
        resource.setrlimit(resource.RLIMIT_DATA, (plan["memory_bytes"],) * 2)
    _seed_generators()
    _set_threads()
    refuse_new_privileges()
    drop_capabilities()
    if sys.platform == "linux":
        _confine(libc(), plan)
        _refuse_calls(libc())


def _set_threads() -> None:
    """As many as the environment says: libraries were loaded where it said one."""
    named = {"blas": os.environ["OPENBLAS_NUM_THREADS"], "openmp": os.environ["OMP_NUM_THREADS"]}
    limits = {api: int(number) for api, number in named.items() if number.isdecimal()}
    if set(limits.values()) - {1}:
        importlib.import_module("threadpoolctl").threadpool_limits(limits)


def lacking() -> list[str]:
    """What this kernel does not give to confine a process, of Landlock and seccomp."""
    linux = sys.platform == "linux"
    landlock = linux and libc().syscall(_LANDLOCK_CREATE_RULESET, None, 0, _GET_VERSION) >= 1
    # PR_GET_SECCOMP (21) fails where the kernel has none.
    seccomp = linux and os.uname().machine in _MACHINES and libc().prctl(21, 0, 0, 0, 0) >= 0
    return [
        *([] if landlock else ["Landlock: it can read what the service's user can read"]),
        *([] if seccomp else ["seccomp: it can open sockets"]),
    ]


def limit_tasks() -> None:
    """Bound the processes and threads of this process's user namespace.

    Elsewhere the limit would count those of the service too, which has the same user.
    """
    resource.setrlimit(resource.RLIMIT_NPROC, (MOST_TASKS, MOST_TASKS))


def _seed_generators() -> None:
    """Seed numpy's global generator anew; a fork copies its state, so all would draw the same.

    Python and numba do this for their own at each fork. No noise of the kernel is drawn here, but
    a declared third party draws its own.
    """
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()


def _confine(libc: Any, plan: dict[str, Any]) -> None:
    version = libc.syscall(_LANDLOCK_CREATE_RULESET, None, 0, _GET_VERSION)
    if version < 1:
        return
    handled = _handled(version)
    ruleset = _Ruleset(
        handled,
        _BIND_AND_CONNECT if version >= 4 else 0,
        _SCOPE_SOCKETS_AND_SIGNALS if version >= 6 else 0,
    )
    # The struct grew with the versions; an older kernel refuses a longer one.
    size = 24 if version >= 6 else 16 if version >= 4 else 8
    rules = libc.syscall(_LANDLOCK_CREATE_RULESET, ctypes.byref(ruleset), size, 0)
    if rules < 0:
        return
    for path in plan["read"]:
        _allow(libc, rules, path, _READ)
    for path in plan["list"]:
        _allow(libc, rules, path, _READ_DIR)
    for path in plan["write"]:
        _allow(libc, rules, path, handled)
    if libc.syscall(_LANDLOCK_RESTRICT_SELF, rules, 0):
        sys.exit("the process could not be confined")
    os.close(rules)


def _handled(version: int) -> int:
    handled = _ALL_OF_FIRST_VERSION
    if version >= 2:
        handled |= _REFER
    if version >= 3:
        handled |= _TRUNCATE
    if version >= 5:
        handled |= _IOCTL
    return handled


def _allow(libc: Any, rules: int, path: str, access: int) -> None:
    try:
        opened = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    if not os.path.isdir(path):
        access &= _FILE_RIGHTS
    beneath = _PathBeneath(access, opened)
    libc.syscall(_LANDLOCK_ADD_RULE, rules, _RULE_PATH_BENEATH, ctypes.byref(beneath), 0)
    os.close(opened)


def _refuse_calls(libc: Any) -> None:
    """Refuse calls for other than local sockets, other processes and new namespaces."""
    machine = _MACHINES.get(os.uname().machine)
    if machine is None or sys.byteorder != "little":
        return
    architecture, column = machine
    # A jump counts the steps to skip if true, and if false. The architecture is checked first,
    # because a number means another call on another architecture.
    steps = [
        (_LOAD, 0, 0, _ARCHITECTURE_AT),
        (_EQUAL, 1, 0, architecture),
        (_RETURN, 0, 0, _REFUSE),
        (_LOAD, 0, 0, _NUMBER_AT),
        (_AT_LEAST, 0, 1, _OTHER_ABI),
        (_RETURN, 0, 0, _REFUSE),
        (_EQUAL, 0, 1, _CLONE3),
        (_RETURN, 0, 0, _NOT_THERE),
    ]
    for call in _REFUSED.values():
        steps += [(_EQUAL, 0, 1, call[column]), (_RETURN, 0, 0, _REFUSE)]
    steps += [
        (_EQUAL, 0, 3, _CLONE[column]),
        (_LOAD, 0, 0, _FIRST_ARGUMENT_AT),
        (_ANY_BIT, 0, 5, _NEW_NAMESPACES),
        (_RETURN, 0, 0, _REFUSE),
        (_EQUAL, 0, 3, _SOCKET[column]),
        (_LOAD, 0, 0, _FIRST_ARGUMENT_AT),
        (_EQUAL, 1, 0, int(socket.AF_UNIX)),
        (_RETURN, 0, 0, _REFUSE),
        (_RETURN, 0, 0, _ALLOW),
    ]
    filters = (_Filter * len(steps))(*(_Filter(*step) for step in steps))
    program = _Program(len(steps), filters)
    libc.prctl(_PR_SET_SECCOMP, _MODE_FILTER, ctypes.byref(program), 0, 0)

"""What a process keeps in memory: nothing for others of the same user, and no idle library."""

from __future__ import annotations

import ctypes
import resource
import sys

import pyarrow as pa

_PR_SET_DUMPABLE = 4


def close_memory() -> None:
    """Leave no core file; on Linux let no process of the same user attach to this one.

    Memory, environment and descriptors under /proc are then root's to read. It does not pass
    on to the programs that this process starts.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


class _NoPandas:
    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        del path, target
        if name == "pandas":
            raise ModuleNotFoundError(name)


def leave_pandas_out() -> None:
    """Have pyarrow do without pandas, 45 MB that no job uses.

    pyarrow imports it at its first array, to know a Series when it is handed one. It looks
    once, and here finds none; code that imports pandas later still gets it. Call it
    before other threads run.
    """
    sys.meta_path.insert(0, _NoPandas)
    try:
        pa.array([None])
    finally:
        sys.meta_path.remove(_NoPandas)

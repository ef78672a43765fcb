"""A worker's memory: closed to other processes of the same user, and without unused libraries."""

from __future__ import annotations

import ctypes
import resource
import sys

import pyarrow as pa

# From linux/prctl.h.
_PR_SET_DUMPABLE = 4


def close_memory() -> None:
    """Leave no core file; on Linux let no process of the same user attach to this one.

    Only root can then read memory, environment and descriptors under /proc. Programs that this
    process starts do not inherit it.
    """
    # A core file would hold private rows and keys.
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
    """Keep pyarrow from importing pandas, 45 MB that no job uses.

    pyarrow imports pandas at its first array, to recognise a Series. It tries only once, and here
    it fails; code that imports pandas later still gets it. Call this before other threads run.
    """
    sys.meta_path.insert(0, _NoPandas)
    try:
        pa.array([None])
    finally:
        sys.meta_path.remove(_NoPandas)

"""The machine code of compiled loops, stored next to their modules; imports numba.

See `app.engine.compiled`, which asks for it when a loop is first called.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from numba import njit
from numba.core.caching import CompileResultCacheImpl, FunctionCache, InTreeCacheLocator


class _Beside(InTreeCacheLocator):
    """Numba's own place next to the module, even if it is read-only."""

    @classmethod
    def from_function(cls, loop: Callable[..., Any], path: str) -> _Beside:
        return cls(loop, path)

    def get_source_stamp(self) -> str:
        """A hash of all modules with loops: machine code contains that of the loops it calls."""
        return _stamp_of_loops()


@lru_cache(maxsize=1)
def _stamp_of_loops() -> str:
    sources = [path.read_bytes() for path in sorted(Path(__file__).parent.rglob("*.py"))]
    loops = [source for source in sources if b"from app.engine.compiled import" in source]
    return sha256(b"".join(loops)).hexdigest()


class _Stored(CompileResultCacheImpl):
    _locator_classes = [_Beside]  # noqa: RUF012


class _Store(FunctionCache):
    _impl_class = _Stored

    def load_overload(self, signature: Any, target: Any) -> Any:
        with contextlib.suppress(OSError):
            return super().load_overload(signature, target)  # type: ignore[no-untyped-call]

    def save_overload(self, signature: Any, data: Any) -> None:
        with contextlib.suppress(OSError):
            super().save_overload(signature, data)  # type: ignore[no-untyped-call]


def dispatcher_of(loop: Callable[..., Any]) -> Any:
    """Numba's dispatcher, which loads or compiles the code of `loop` for each argument type.

    Loops release the global interpreter lock. Other threads must run meanwhile: they renew a
    lease, or end a run at its time limit.
    """
    dispatcher = njit(loop, nogil=True)
    dispatcher._cache = _Store(loop)  # type: ignore[no-untyped-call]
    return dispatcher

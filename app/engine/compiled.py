"""Compiled loops over integer arrays, whose machine code lies beside the modules.

`app.engine.warming` stores it at set-up. Later every process that may read the code finds it,
also one that can write nothing (a confined child, a read-only image); what was not stored, or
was stored for another processor, is compiled by each process for itself. Numba's store is as
trusted as the code it lies beside: only what can change the code can change it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar, cast

from numba import njit
from numba.core.caching import CompileResultCacheImpl, FunctionCache, InTreeCacheLocator

Loop = TypeVar("Loop", bound=Callable[..., Any])


class _Beside(InTreeCacheLocator):
    """Numba's own place beside the module, even where it can only be read."""

    @classmethod
    def from_function(cls, loop: Callable[..., Any], path: str) -> _Beside:
        return cls(loop, path)

    def get_source_stamp(self) -> str:
        """Of all modules with loops, since machine code holds that of the loops it calls."""
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


def compiled(loop: Loop) -> Loop:
    """Compiles `loop` by numba when it is first called; arguments are arrays and numbers."""
    dispatcher = njit(loop)
    dispatcher._cache = _Store(loop)  # type: ignore[no-untyped-call]
    return cast(Loop, dispatcher)

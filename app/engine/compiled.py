"""Compiled loops over arrays, with machine code stored next to the modules.

`app.engine.warming` stores it at set-up. Later every process that may read the code finds it,
also one that can write nothing (a confined child, a read-only image); what was not stored, or
was stored for another processor, is compiled by each process for itself. Numba's store is as
trusted as the code it lies beside: only what can change the code can change it.

Numba, which takes 60 MB of memory, is imported when the first loop is called, or by `get_ready`:
workers and servers import the modules of loops without ever calling one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, TypeVar, cast

Loop = TypeVar("Loop", bound=Callable[..., Any])

_made: list[_Compiled] = []


class _Compiled:
    """Can be called by Python and by other loops, as numba's own dispatcher can."""

    def __init__(self, loop: Callable[..., Any]) -> None:
        self._loop = loop

    def __call__(self, *arguments: Any) -> Any:
        return self.dispatcher(*arguments)

    @cached_property
    def dispatcher(self) -> Any:
        from app.engine.machine_code import dispatcher_of  # imports numba

        return dispatcher_of(self._loop)

    @property
    def _numba_type_(self) -> Any:
        """Numba reads this when a loop calls another: the type of the other's dispatcher."""
        return self.dispatcher._numba_type_


def compiled(loop: Loop) -> Loop:
    """Compiles `loop` by numba when it is first called; arguments are arrays and numbers."""
    made = _Compiled(loop)
    _made.append(made)
    return cast(Loop, made)


def get_ready() -> None:
    """Import numba now, so that the first call of a loop need not wait for it."""
    for each in _made:
        each.dispatcher  # noqa: B018  (made when it is looked at)

"""Compiled loops over integer arrays, kept between runs where the file system allows it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from numba import njit

Loop = TypeVar("Loop", bound=Callable[..., Any])


def compiled(loop: Loop) -> Loop:
    """Compiles `loop` by numba when it is first called; arguments are arrays and numbers.

    Machine code is stored beside the module or in the user's cache. Where neither can be
    written (a read-only image without a home), each process compiles for itself.
    """
    try:
        return cast(Loop, njit(cache=True)(loop))
    except RuntimeError:  # numba found no place to store it
        return cast(Loop, njit(loop))

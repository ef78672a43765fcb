"""Two pieces of work at once, on two processors where this process may use two.

Which thread does a piece never shows in what comes out: the pieces are the same with one
processor, where they are done one after the other.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache


def together(own: Callable[[], None], other: Callable[[], None]) -> None:
    """Does both; returns when both are done. They run compiled loops on cells of their own.

    Where the other thread has not begun when the first piece is done, as on a busy machine, it is
    not waited for.
    """
    thread = _other_thread() if processors() > 1 else None
    if thread is None:
        own()
        other()
        return
    waiting = thread.submit(other)
    try:
        own()
    finally:
        is_left = waiting.cancel()
        if not is_left:
            waiting.result()
    if is_left:
        other()


@cache
def processors() -> int:
    """How many this process may use; some systems only report how many there are."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@cache
def _other_thread() -> ThreadPoolExecutor | None:
    """None where the process may start no thread."""
    thread = ThreadPoolExecutor(1, thread_name_prefix="inference")
    try:
        thread.submit(int).result()
    except RuntimeError:
        return None
    return thread


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_other_thread.cache_clear)

"""Two pieces of work at the same time, if this process may use two processors.

The result never depends on which thread does a piece. With one processor, the same two pieces run
one after the other.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache


def run_both(own: Callable[[], None], other: Callable[[], None]) -> None:
    """Runs both and returns when both are done. They must write to separate memory.

    On a busy machine the other thread may not have begun when `own` is done. Then this thread
    runs `other` too, instead of waiting.
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
        # Also after an error: the other piece may still be writing to the caller's buffers.
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
    """None if the process cannot start a thread."""
    thread = ThreadPoolExecutor(1, thread_name_prefix="inference")
    try:
        thread.submit(int).result()
    except RuntimeError:
        return None
    return thread


# A forked process does not inherit the thread, so it must start its own.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_other_thread.cache_clear)

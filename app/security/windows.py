"""How often something happened lately: counts in windows of time, kept in this process."""

from __future__ import annotations

import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

# Windows kept at most, a few megabytes: an attacker with many names must not fill the memory.
_MOST_WINDOWS = 20_000

Name = TypeVar("Name", bound=Hashable)


@dataclass(slots=True)
class _Window:
    ends_at: float
    events: int = 0


class Windows(Generic[Name]):
    """Counts events by name; a name's first event opens a window of `window_s` seconds."""

    def __init__(self, window_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._window_s = window_s
        self._clock = clock
        self._windows: OrderedDict[Name, _Window] = OrderedDict()
        self._lock = threading.Lock()

    def count(self, *names: Name) -> None:
        with self._lock:
            for name in names:
                self._window(name).events += 1

    def left_s(self, name: Name, limit: int) -> int:
        """Whole seconds until a name that reached `limit` may go on; 0 below the limit."""
        with self._lock:
            window = self._windows.get(name)
            left_s = window.ends_at - self._clock() if window else 0.0
            if window is None or left_s <= 0 or window.events < limit:
                return 0
            return max(1, math.ceil(left_s))

    def _window(self, name: Name) -> _Window:
        moment = self._clock()
        window = self._windows.get(name)
        if window is None or window.ends_at <= moment:
            window = self._windows[name] = _Window(moment + self._window_s)
            self._windows.move_to_end(name)
            if len(self._windows) > _MOST_WINDOWS:
                self._windows.popitem(last=False)
        return window

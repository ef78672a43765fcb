"""A progress bar on standard error, drawn only where a person watches a terminal."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from typing import TextIO

Report = Callable[[float, str], None]
"""Called with a fraction in [0, 1] and the stage reached."""

_BAR_CELLS = 24


class ProgressBar:
    """Redraws one line; `close` ends it, so that what is printed next starts a fresh one."""

    def __init__(self, label: str, stream: TextIO | None = None) -> None:
        self._label = label
        self._stream = sys.stderr if stream is None else stream
        self._is_drawn = False

    def __call__(self, fraction: float, stage: str) -> None:
        if not self._stream.isatty():
            return
        done = round(_BAR_CELLS * min(max(fraction, 0.0), 1.0))
        bar = "█" * done + "·" * (_BAR_CELLS - done)
        line = f"{self._label} {bar} {fraction:4.0%} {stage}"
        width = shutil.get_terminal_size().columns - 1
        self._stream.write(f"\r{line[:width]:<{width}}")
        self._stream.flush()
        self._is_drawn = True

    def close(self) -> None:
        if self._is_drawn:
            self._stream.write("\n")
            self._stream.flush()
            self._is_drawn = False

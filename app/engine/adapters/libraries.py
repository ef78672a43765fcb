"""Which methods of which libraries are adapted, and which are left out and why."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

_HERE = Path(__file__).parent


@dataclass(frozen=True)
class Library:
    """A distribution that is installed by itself, from a lock file with hashes.

    `process_bytes`: the memory of its process before it holds any row; `row_bytes` and
    `value_bytes`: what it holds for each row, and for each of its values.
    """

    name: str
    distribution: str
    process_bytes: int
    row_bytes: int
    value_bytes: int

    @property
    def lock(self) -> Path:
        return _HERE / f"{self.name}.lock"

    @cached_property
    def digest(self) -> str:
        """Names the virtualenv, so that a changed lock is installed anew."""
        return hashlib.sha256(self.lock.read_bytes()).hexdigest()[:16]

    @cached_property
    def version(self) -> str:
        pinned = re.search(rf"(?m)^{re.escape(self.distribution)}==(\S+)", self.lock.read_text())
        assert pinned is not None
        return pinned.group(1)


LIBRARIES: Mapping[str, Library] = {
    "dpmm": Library("dpmm", "dpmm", 300 * 2**20, 64, 48),
    "smartnoise": Library("smartnoise", "smartnoise-synth", 600 * 2**20, 200, 64),
}

# Methods that are not offered: each takes something from the private table without noise.
LEFT_OUT: Mapping[str, str] = {
    "dpmm:privbayes": "it reads the exact number of rows, for the sensitivity of its scores",
    "smartnoise:dpctgan": "it reads the exact number of rows, for its rate of sampling",
    "smartnoise:dpgan": "it reads the exact number of rows, for its rate of sampling",
    "smartnoise:mst": "it reads the exact number of rows, to which its model is scaled",
    "smartnoise:mwem": "it reads the smallest and the largest value of each column",
    "smartnoise:pacsynth": "it takes the values of each column from the table",
    "smartnoise:patectgan": "it reads the exact frequencies of values and the number of rows",
    "smartnoise:pategan": "it reads the exact number of rows, for its number of teachers",
}


def library_of(name: str) -> Library:
    """Of an adapted method; raises `KeyError`."""
    return LIBRARIES[name.partition(":")[0]]

"""Recognising the same content: a keyed digest of a table's rows, in no order.

Each row of decoded cell texts is hashed under the key, and the hashes are summed modulo 2^64
in four lanes: a multiset hash (Clarke, Devadas, van Dijk, Gassend and Suh 2003, MSet-Add-Hash).
It does not depend on the order of rows or columns, on the dictionary, or on CSV, TSV, Parquet
or compression, and it needs no sort, so it takes one pass in bounded memory. A multiset, not a
set: a row that comes twice counts twice. The last step is an HMAC-SHA-256 over the sums, so that
nobody without the key can test a guessed table against a digest. It guards against mistakes; a
cell is held by 128 bits, so two different tables agree by chance about once in 2^64 pairs.
"""

from __future__ import annotations

import hashlib
import hmac
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from app.engine.encoding.cells import Cells, cells_of

LANES = 4
_LONGEST_HASH_KEY = 16


class ContentHasher:
    """Feed blocks with `update`; `digest` may be read at any time."""

    def __init__(self, key: bytes) -> None:
        if len(key) < 16:
            raise ValueError("a content key has at least 16 bytes")
        self._key = key
        self._sums = np.zeros(LANES, np.uint64)
        self._names: tuple[str, ...] | None = None
        self.rows = 0

    def update(self, block: pa.RecordBatch | pa.Table) -> None:
        """Adds the rows of a block; blocks of one table have the same columns."""
        names = _distinct(block.schema.names)
        if self._names is None:
            self._names = names
        if names != self._names:
            raise ValueError("the blocks of one table have the same columns")
        lanes = np.zeros((LANES, block.num_rows), np.uint64)
        for place, name in enumerate(names):
            self._add_column(lanes, name, cells_of(block.column(place), name))
        self._sums += np.array([_mix(lane).sum(dtype=np.uint64) for lane in lanes], np.uint64)
        self.rows += block.num_rows

    def _add_column(self, lanes: NDArray[np.uint64], name: str, cells: Cells) -> None:
        """Adds each cell's hash, times an odd secret of column and lane, to its row's lanes."""
        texts = canonical_texts(cells.texts).to_numpy(zero_copy_only=False)
        # Null and the empty text are the same content: formats spell null differently.
        texts = np.append(texts, "").astype(object)
        halves = [
            pd.util.hash_array(texts, hash_key=self._secret("cell", name, half), categorize=False)
            for half in ("left", "right")
        ]
        for lane in range(LANES):
            odd = np.frombuffer(self._secret("lane", name, str(lane)).encode()[:16], np.uint64) | 1
            mixed = _mix(halves[0] * odd[0] + halves[1] * odd[1])
            lanes[lane] += mixed[cells.indices]

    def _secret(self, *purpose: str) -> str:
        """16 ASCII characters derived from the key, as pandas wants a SipHash key."""
        message = "\0".join(purpose).encode()
        return hmac.new(self._key, message, hashlib.sha256).hexdigest()[:_LONGEST_HASH_KEY]

    def digest(self) -> bytes:
        """32 bytes."""
        names = "\0".join(sorted(self._names or ()))
        message = b"".join((self._sums.tobytes(), self.rows.to_bytes(8, "little"), names.encode()))
        return hmac.new(self._key, message, hashlib.sha256).digest()


def canonical_texts(texts: pa.StringArray) -> pa.StringArray:
    """Cell texts without surrounding blanks, and decimals without trailing zeros (7.0 is 7)."""
    texts = pc.utf8_trim_whitespace(texts)
    if not pc.any(pc.match_substring(texts, ".")).as_py():
        return texts
    texts = pc.replace_substring_regex(texts, r"^([+-]?[0-9]+\.[0-9]*?)0+$", r"\1")
    return pc.replace_substring_regex(texts, r"^([+-]?[0-9]+)\.$", r"\1")


def _distinct(names: Sequence[str]) -> tuple[str, ...]:
    """Names with a number where one comes again or is blank."""
    seen: Counter[str] = Counter()
    distinct = []
    for raw in names:
        name = raw.strip()
        seen[name] += 1
        distinct.append(name if name and seen[name] == 1 else f"{name}\0{seen[name]}")
    return tuple(distinct)


def _mix(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """A bijection that spreads every bit (the finaliser of SplitMix64, Steele et al. 2014)."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))

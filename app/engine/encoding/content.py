"""Recognising the same content: a keyed digest of a table's rows, in no order.

Each row of decoded cell texts is hashed under the key, and the hashes are summed modulo 2^64
in two lanes: a multiset hash (Clarke, Devadas, van Dijk, Gassend and Suh 2003, MSet-Add-Hash).
It does not depend on the order of rows or columns, on the dictionary, or on CSV, TSV, Parquet
or compression, and it needs no sort, so it takes one pass in bounded memory. A multiset, not a
set: a row that comes twice counts twice.

Cells are hashed by multiplication and mixing under secrets drawn from the key, fast rather
than cryptographic: two different tables agree by chance about once in 2^128, and one who does
not know the key cannot aim for it. The last step is an HMAC-SHA-256 over the sums, so that
nobody without the key can test a guessed table against a digest. It guards against mistakes.
"""

from __future__ import annotations

import hashlib
import hmac
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from app.engine.encoding.cells import Cells, Spans, cells_of, trimmed
from app.engine.rows import TableError

LANES = 2
_WORD = 8


class ContentHasher:
    """Feed blocks with `update`; `digest` may be read at any time."""

    def __init__(self, key: bytes) -> None:
        if len(key) < 16:
            raise ValueError("a content key has at least 16 bytes")
        self._key = key
        self._sums = np.zeros(LANES, np.uint64)
        self._names: tuple[str, ...] | None = None
        self._secrets: dict[str, NDArray[np.uint64]] = {}
        self.rows = 0

    def update(self, block: pa.RecordBatch | pa.Table) -> None:
        """Adds the rows of a block; blocks of one table have the same columns."""
        if self._names is None:
            self._names = _distinct(block.schema.names)
            self._secrets = {name: self._secret(name) for name in self._names}
        if _distinct(block.schema.names) != self._names:
            raise ValueError("the blocks of one table have the same columns")
        lanes = np.zeros((LANES, block.num_rows), np.uint64)
        for place, name in enumerate(self._names):
            self._add_column(lanes, name, _any_cells(block.column(place), name))
        self._sums += np.array([_mix(lane).sum(dtype=np.uint64) for lane in lanes], np.uint64)
        self.rows += block.num_rows

    def _add_column(self, lanes: NDArray[np.uint64], name: str, cells: Cells) -> None:
        # Null and the empty text are the same content: formats spell null differently.
        texts = pa.concat_arrays([canonical_texts(cells.texts), pa.array([""])])
        for lane, secret in enumerate(self._secrets[name]):
            lanes[lane] += hash_texts(texts, secret)[cells.indices]

    def _secret(self, name: str) -> NDArray[np.uint64]:
        """A word for each lane, of this column alone."""
        digest = hmac.new(self._key, b"column\0" + name.encode(), hashlib.sha256).digest()
        return np.frombuffer(digest, np.uint64)[:LANES]

    def digest(self) -> bytes:
        """32 bytes."""
        names = "\0".join(sorted(self._names or ()))
        message = b"".join((self._sums.tobytes(), self.rows.to_bytes(8, "little"), names.encode()))
        return hmac.new(self._key, b"table\0" + message, hashlib.sha256).digest()


def canonical_texts(texts: pa.StringArray) -> pa.StringArray:
    """Cell texts without surrounding blanks, and decimals without trailing zeros (7.0 is 7)."""
    texts = trimmed(texts)
    ends = Spans.of(texts).last_bytes()
    suspect = (ends == ord("0")) | (ends == ord("."))
    if not suspect.any():
        return texts
    mask = pa.array(suspect)
    few = texts.filter(mask)
    few = pc.replace_substring_regex(few, r"^([+-]?[0-9]+\.[0-9]*?)0+$", r"\1")
    few = pc.replace_substring_regex(few, r"^([+-]?[0-9]+)\.$", r"\1")
    return pc.replace_with_mask(texts, mask, few)


def hash_texts(texts: pa.StringArray, secret: np.uint64) -> NDArray[np.uint64]:
    """A keyed 64-bit hash of each text: its 8-byte words are mixed in, one after the other."""
    spans = Spans.of(texts)
    words = spans.words()
    hashes = _mix(spans.lengths.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) ^ secret)
    active = np.flatnonzero(spans.lengths)
    starts, left = spans.starts[active], spans.lengths[active]
    while len(active):
        shift = np.uint64(64) - np.minimum(left, _WORD).astype(np.uint64) * np.uint64(8)
        word = (words[starts] << shift) >> shift
        hashes[active] = _mix(hashes[active] + (word ^ secret))
        more = left > _WORD
        active, starts, left = active[more], starts[more] + _WORD, left[more] - _WORD
    return hashes


def _any_cells(array: pa.Array | pa.ChunkedArray, name: str) -> Cells:
    """The cells of a column of any type: lists, structs and bytes as Python writes them."""
    try:
        return cells_of(array, name)
    except TableError:
        values = (None if value is None else str(value) for value in array.to_pylist())
        return cells_of(pa.array(values, pa.string()), name)


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

"""Recognising the same content: a keyed digest of a table's rows, whatever their order.

Each row of decoded cell texts is hashed under the key, and the hashes are summed modulo 2^64
in two lanes: a multiset hash (Clarke, Devadas, van Dijk, Gassend and Suh 2003, MSet-Add-Hash).
It does not depend on the order of rows or columns, on the dictionary, on CSV, TSV, Parquet or
compression, or on the program that wrote the file (see `canonical_texts`). It needs no sort, so
one pass in bounded memory is enough. It is the hash of a multiset: a row that occurs twice
counts twice.

Cells are hashed by multiplication and mixing with secrets derived from the key. This is fast,
not cryptographic: two different tables agree by chance about once in 2^128, and nobody without
the key can choose tables that agree. The last step is an HMAC-SHA-256 over the sums, so that
nobody without the key can test a guessed table against a digest. The digest guards against
mistakes.
"""

from __future__ import annotations

import hashlib
import hmac
from collections import Counter
from collections.abc import Sequence
from decimal import Decimal

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
            raise ValueError("a content key must have at least 16 bytes")
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
            raise ValueError("the blocks of one table must have the same columns")
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
        """A secret word for each lane, different for each column."""
        digest = hmac.new(self._key, b"column\0" + name.encode(), hashlib.sha256).digest()
        return np.frombuffer(digest, np.uint64)[:LANES]

    def digest(self) -> bytes:
        """The digest of all rows so far, 32 bytes."""
        names = "\0".join(sorted(self._names or ()))
        message = b"".join((self._sums.tobytes(), self.rows.to_bytes(8, "little"), names.encode()))
        return hmac.new(self._key, b"table\0" + message, hashlib.sha256).digest()


def canonical_texts(texts: pa.StringArray) -> pa.StringArray:
    """Cell texts without surrounding blanks, in one spelling of each value.

    Programs that read a table and write it again write nulls, truth values, numbers and times in
    their own way. So the common words for null are the empty text, True is true, 007, +7, 7.0
    and 0.7e1 are 7, and 2020-01-02T00:00:00.000Z is 2020-01-02.
    """
    texts = trimmed(texts)
    spans = Spans.of(texts)
    for spelled_otherwise, rewritten in _SPELLINGS:
        suspect = spelled_otherwise(spans)
        if suspect.any():
            mask = pa.array(suspect)
            texts = pc.replace_with_mask(texts, mask, rewritten(texts.filter(mask)))
            spans = Spans.of(texts)
    return texts


_DIGITS = b"0123456789"
_NULLS = (
    "NA",
    "N/A",
    "n/a",
    "NaN",
    "nan",
    "-NaN",
    "-nan",
    "NULL",
    "null",
    "None",
    "<NA>",
    "#N/A",
    "#NA",
)


def _among(found: NDArray[np.uint8], marks: bytes) -> NDArray[np.bool_]:
    table = np.zeros(256, bool)
    table[list(marks)] = True
    listed: NDArray[np.bool_] = table[found]
    return listed


def _perhaps_word(spans: Spans) -> NDArray[np.bool_]:
    return (spans.lengths <= 5) & _among(spans.first_bytes(), b"Nn<#-TtFf")


def _words(texts: pa.StringArray) -> pa.StringArray:
    texts = pc.if_else(pc.is_in(texts, pa.array(_NULLS)), "", texts)
    truth = pc.match_substring_regex(texts, "^(?i:true|false)$")
    return pc.if_else(truth, pc.utf8_lower(texts), texts)


def _perhaps_odd_number(spans: Spans) -> NDArray[np.bool_]:
    """Numbers with a sign or mark in front, padding, an end in zeros, or an exponent."""
    first, second, last = spans.first_bytes(), spans.bytes_at(1), spans.last_bytes()
    padded = (first == ord("0")) & _among(second, _DIGITS)
    signed = _among(first, b"+.") | ((first == ord("-")) & _among(second, b".0"))
    ended = (last == ord("0")) | (last == ord("."))
    exponents = [_among(spans.bytes_at(-place), b"eE") for place in (2, 3, 4)]
    powered = (exponents[0] | exponents[1] | exponents[2]) & _among(last, _DIGITS)
    odd: NDArray[np.bool_] = padded | signed | ended | powered
    return odd


def _numbers(texts: pa.StringArray) -> pa.StringArray:
    exponents = pc.match_substring_regex(texts, _EXPONENT)
    if pc.any(exponents).as_py():
        written = [f"{Decimal(text):f}" for text in texts.filter(exponents).to_pylist()]
        texts = pc.replace_with_mask(texts, exponents, pa.array(written, pa.string()))
    for pattern, replacement in _PLAIN_NUMBERS:
        texts = pc.replace_substring_regex(texts, pattern, replacement)
    return texts


_EXPONENT = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)[eE][+-]?[0-9]{1,2}$"
_PLAIN_NUMBERS = (
    (r"^\+([0-9.])", r"\1"),
    (r"^(-?)\.([0-9]+)$", r"\10.\2"),
    (r"^([+-]?[0-9]+\.[0-9]*?)0+$", r"\1"),
    (r"^([+-]?[0-9]+)\.$", r"\1"),
    (r"^(-?)0+([0-9]+(\.[0-9]+)?)$", r"\1\2"),
    (r"^-0$", "0"),
)


def _perhaps_odd_moment(spans: Spans) -> NDArray[np.bool_]:
    """Moments with a T, a zone, or an end in zeros."""
    dated = (spans.bytes_at(4) == ord("-")) & (spans.bytes_at(7) == ord("-")) & (spans.lengths > 10)
    timed = (spans.bytes_at(2) == ord(":")) & (spans.bytes_at(5) == ord(":"))
    last = spans.last_bytes()
    odd: NDArray[np.bool_] = (dated | timed) & _among(last, b"Z0")
    odd |= dated & (spans.bytes_at(10) == ord("T"))
    return odd


def _moments(texts: pa.StringArray) -> pa.StringArray:
    for pattern, replacement in _PLAIN_MOMENTS:
        texts = pc.replace_substring_regex(texts, pattern, replacement)
    return texts


_PLAIN_MOMENTS = (
    (r"^([0-9]{4}-[0-9]{2}-[0-9]{2})T([0-9]{2}:)", r"\1 \2"),
    (r"(:[0-9]{2}(\.[0-9]+)?)(Z|[+-]00:?00)$", r"\1"),
    (r"(:[0-9]{2}\.[0-9]*?)0+$", r"\1"),
    (r"(:[0-9]{2})\.$", r"\1"),
    (r"^(([0-9-]{10} )?[0-9]{2}:[0-9]{2}):00$", r"\1"),
    (r"^([0-9-]{10}) 00:00$", r"\1"),
)

_SPELLINGS = (
    (_perhaps_word, _words),
    (_perhaps_odd_number, _numbers),
    (_perhaps_odd_moment, _moments),
)


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

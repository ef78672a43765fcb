"""What is seen of one column while a file is read, in bounded memory."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from app.engine.encoding.cells import Cells
from app.engine.encoding.content import hash_texts
from app.engine.encoding.occurrences import Occurrences
from app.engine.proposals.readings import Reading, marked_numbers, moments, plain_numbers

# With more distinct texts than this, a column is taken for free text.
MOST_CATEGORIES = 200
# Distinct texts of a column that are counted; of a longer column this many are a sample.
_MOST_COUNTED = 2**17
# Spellings of null that programs write. Two of them are words that a column may mean.
NULLS = ("", "N/A", "n/a", "NULL", "null", "NaN", "nan", "?", "-")
WORDS = ("None", "NA")
_PADDED = r"^0[0-9]+$"
_SECRET = np.uint64(0x9E3779B97F4A7C15)


@dataclass
class Evidence:
    """One column so far.

    present: rows that are not null, words among them. values: rows of each text, up to one more
    than `MOST_CATEGORIES` texts. rows_of_each: how often each distinct text occurs. code_like:
    distinct texts without blanks that have a digit.
    """

    nulls: tuple[str, ...] = NULLS
    may_be_null: tuple[str, ...] = WORDS
    rows: int = 0
    present: int = 0
    missing: Counter[str] = field(default_factory=Counter)
    words: Counter[str] = field(default_factory=Counter)
    values: Counter[str] = field(default_factory=Counter)
    occurrences: Occurrences = field(default_factory=lambda: Occurrences(_MOST_COUNTED))
    is_padded: bool = False
    distinct_seen: int = 0
    code_like: int = 0
    lengths: set[int] = field(default_factory=set)
    plain: list[Reading] = field(default_factory=plain_numbers)
    marked: list[Reading] | None = None
    moments: list[Reading] = field(default_factory=moments)

    def see(self, cells: Cells) -> None:
        counts = np.bincount(cells.indices, minlength=len(cells.texts) + 1)
        rows, nulls = counts[:-1], int(counts[-1])
        self.rows += int(counts.sum())
        self.missing[""] += nulls
        texts = pc.utf8_trim_whitespace(cells.texts)
        texts, rows = _only(texts, rows, rows > 0)
        is_null = np.asarray(pc.is_in(texts, pa.array(self.nulls)))
        self._count(self.missing, *_only(texts, rows, is_null))
        texts, rows = _only(texts, rows, ~is_null)
        is_word = np.asarray(pc.is_in(texts, pa.array(self.may_be_null, pa.string())))
        self._count(self.words, *_only(texts, rows, is_word))
        self._see_values(*_only(texts, rows, ~is_word))

    @staticmethod
    def _count(counter: Counter[str], texts: pa.StringArray, rows: NDArray[np.int64]) -> None:
        for text, count in zip(texts.to_pylist(), rows.tolist(), strict=True):
            counter[text] += count

    def _see_values(self, texts: pa.StringArray, rows: NDArray[np.int64]) -> None:
        if not len(texts):
            return
        self.present += int(rows.sum())
        if len(self.values) <= MOST_CATEGORIES:
            # One more text than may be categories shows that they are none.
            self._count(self.values, texts[: MOST_CATEGORIES + 1], rows[: MOST_CATEGORIES + 1])
        self.occurrences.add(hash_texts(texts, _SECRET), rows)
        self.distinct_seen += len(texts)
        is_code = pc.and_(
            pc.match_substring_regex(texts, "[0-9]"),
            pc.invert(pc.match_substring_regex(texts, r"\s")),
        )
        self.code_like += pc.sum(is_code).as_py()
        if len(self.lengths) < 4:
            self.lengths |= set(pc.unique(pc.utf8_length(texts)).to_pylist())
        self.is_padded |= bool(pc.any(pc.match_substring_regex(texts, _PADDED)).as_py())
        self._read(texts, rows)

    def _read(self, texts: pa.StringArray, rows: NDArray[np.int64]) -> None:
        before = [replace(each, examples=list(each.examples)) for each in self.plain]
        _see_all(self.plain, texts, rows, self.present)
        number = self.plain[1]
        if self.marked is None and (number.is_out or number.unreadable > before[1].unreadable):
            self.marked = marked_numbers(before)
        _see_all(self.marked or [], texts, rows, self.present)
        _see_all(self.moments, texts, rows, self.present)

    @property
    def reading(self) -> Reading | None:
        """The first way that reads the column; None for text."""
        compact, *others = self.moments
        found = [compact, *self.plain, *others, *(self.marked or [])]
        fitting = [each for each in found if each.accepts(self.present)]
        # Marks and formats that read every cell are better than fewer that pass some over.
        whole = [each for each in fitting if not each.unreadable]
        chosen = next(iter(whole or fitting), None)
        is_code = self.is_padded and chosen is not None and chosen.kind in ("integer", "number")
        return None if is_code else chosen

    def also_reads(self, form: str) -> bool:
        """Whether a date's other format reads the column as well."""
        return any(
            each.wire.get("format") == form and each.accepts(self.present) for each in self.moments
        )

    @property
    def distinct(self) -> int:
        return len(self.occurrences.counts)

    @property
    def rows_of_each(self) -> NDArray[np.int64]:
        return self.occurrences.counts

    @property
    def looks_like_codes(self) -> bool:
        return self.distinct_seen > 0 and self.code_like >= 0.9 * self.distinct_seen

    def is_named_id(self, name: str) -> bool:
        return bool(_ID_NAME.search(name) or name.endswith(("ID", "Id")))


_ID_NAME = re.compile(
    r"(?i)(^|[^a-z])(id|ids|uid|uuid|guid|pid|ssn|key|nr|no|number|num|code|identifier)([^a-z]|$)"
)


def _only(
    texts: pa.StringArray, rows: NDArray[np.int64], chosen: NDArray[np.bool_]
) -> tuple[pa.StringArray, NDArray[np.int64]]:
    if chosen.all():
        return texts, rows
    return texts.filter(pa.array(chosen)), rows[chosen]


def _see_all(
    readings: list[Reading], texts: pa.StringArray, rows: NDArray[np.int64], seen: int
) -> None:
    for reading in readings:
        if not reading.is_out:
            reading.see(texts, rows, seen)

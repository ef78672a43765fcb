"""What a file leaves open, guessed from its content: for proposals alone.

A guess depends on rows. So it is for the custodian, who declares it with the dataset, where the
file is read as declared.
"""

from __future__ import annotations

import codecs
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import BinaryIO

import charset_normalizer

from app.engine.files.dialect import DELIMITERS, after_lines, records_in
from app.engine.files.options import FileOptions
from app.engine.files.source import (
    SNIFFED_BYTES,
    SNIFFED_MAGIC_BYTES,
    bounded,
    chunks_of,
    compression_of,
    decompressed,
    encoding_of,
    peek,
    refuse_other_files,
    whole_text,
)
from app.engine.rows import quoted

# Encodings whose measure of disorder differs by less fit a text equally well.
_SLACK = 0.02
_SAMPLED_RECORDS = 100
_STEADY_SHARE = 0.8
_MOST_CANDIDATES = 4
_COMMON = ("cp1252", "cp1250", "cp1251", "koi8-r", "cp932", "gb18030")
_SHOWN_WORDS = 3
_SAMPLED_WORDS = 200
_SAMPLED_LINES = 1000


@dataclass(frozen=True)
class Guesses:
    """The options with a guess for each that the file does not say, and a note on each guess.

    `question` is set if several encodings fit and read the file differently. The options then
    have the first of them, for a draft: nobody but the custodian can decide.
    """

    options: FileOptions
    notes: tuple[str, ...] = ()
    question: str | None = None


def with_guesses(stream: BinaryIO, options: FileOptions) -> Guesses:
    """What the options leave open, guessed from the first part of the file.

    Raises `TableError` for a file that is no table.
    """
    head, chunks = peek(chunks_of(stream), SNIFFED_MAGIC_BYTES)
    if options.format == "parquet" or head[:4] == b"PAR1":
        return Guesses(options)
    # First: an archive or a picture would be taken for text of some unknown encoding.
    refuse_other_files(head)
    compression = options.compression or compression_of(head)
    head, _ = peek(bounded(decompressed(chunks, compression), options.max_bytes), SNIFFED_BYTES)
    encoding, mark = encoding_of(head, options.encoding, has_rows_first=options.has_rows_first)
    notes: list[str] = []
    question = None
    if options.encoding is None and encoding == "utf-8" and not _is_utf_8(head):
        readings = _readings(head)
        encoding = next(iter(readings))
        options = replace(options, encoding=encoding)
        if len(readings) > 1:
            question = _question(readings)
            notes.append(f"encoding {encoding}: one of several that fit, taken for this draft")
        else:
            (words,) = _telling_words(list(readings.values()))
            notes.append(f"encoding {encoding}: guessed, it reads {words}; check it")
    text = whole_text(head[mark:], encoding)
    if options.format != "jsonl" and options.delimiter is None and not options.rows_of_names:
        delimiter = _guessed_delimiter(after_lines(text, options.skip_rows), options.quote)
        options = replace(options, delimiter=delimiter)
        notes.append(f"delimiter {quoted(delimiter)}: guessed from the rows")
    return Guesses(options, tuple(notes), question)


def _is_utf_8(head: bytes) -> bool:
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return False
    return True


def _readings(head: bytes) -> dict[str, str]:
    """The text in each encoding that fits it; of those that read all bytes alike, in one.

    Windows-1252, the most common one, comes before those that fit as well.
    """
    found = charset_normalizer.from_bytes(head)
    best = found.best()
    alike = [match.encoding for match in found if best and match.chaos <= best.chaos + _SLACK]
    # A measure of disorder is no proof: common encodings are candidates where they make words.
    common = [name for name in _COMMON if _makes_words(_read(head, name))]
    names = sorted([*alike[:_MOST_CANDIDATES], *common], key=lambda name: name != "cp1252")
    readings: dict[str, str] = {}
    for name in names or ["latin-1"]:
        text = _read(head, name)
        if text and text not in readings.values():
            readings[codecs.lookup(name).name] = text
    return readings


def _read(head: bytes, encoding: str) -> str:
    """The text, without a character that is cut off; "" if it is not of this encoding."""
    try:
        return codecs.getincrementaldecoder(encoding)().decode(head)
    except UnicodeDecodeError:
        return ""


def _makes_words(text: str) -> bool:
    """Whether most words beyond ASCII can be shown, and do not mix letters of several scripts."""
    words = list(islice(_foreign_words(text), _SAMPLED_WORDS))
    return sum(map(_is_word, words)) > len(words) / 2


def _is_word(text: str) -> bool:
    return text.isprintable() and len({_script(mark) for mark in text if mark.isalpha()}) <= 1


def _script(letter: str) -> str:
    """The first word of the letter's name, such as LATIN."""
    return unicodedata.name(letter, "").partition(" ")[0]


def _foreign_words(text: str) -> Iterator[str]:
    return (word[0] for word in re.finditer(r"[^\s,;|\"]+", text) if not word[0].isascii())


def _question(readings: Mapping[str, str]) -> str:
    words = _telling_words(list(readings.values()))
    shown = "; ".join(f"{name} reads {own}" for name, own in zip(readings, words, strict=True))
    return (
        f"The file is not UTF-8, and encodings that fit it read it differently: {shown}. Declare"
        " the one that reads it rightly as `encoding`. This draft has the texts of the first; send"
        " the request again with `encoding` in its address for those of another."
    )


def _telling_words(texts: Sequence[str]) -> list[str]:
    """A few words of each text in quotes: those in which the texts differ, if there are several."""
    shown: list[dict[str, None]] = [{} for _ in texts]
    every = zip(*(text.split("\n") for text in texts), strict=False)
    telling_lines = (
        lines
        for lines in every
        if not lines[0].isascii() and (len(texts) == 1 or len(set(lines)) > 1)
    )
    for lines in islice(telling_lines, _SAMPLED_LINES):
        together = zip(*map(_foreign_words, lines), strict=False)
        telling = (words for words in together if len(texts) == 1 or len(set(words)) > 1)
        for own, word in zip(shown, next(telling, ()), strict=False):
            own[quoted(word)] = None
        if len(shown[0]) >= _SHOWN_WORDS:
            break
    return [", ".join(list(own)[:_SHOWN_WORDS]) or "other characters" for own in shown]


def _guessed_delimiter(text: str, quote: str | None) -> str:
    """The delimiter with the most cells, among those that give most records the same number."""

    def steady(mark: str) -> int:
        sample = records_in(text, mark, '"' if quote is None else quote, _SAMPLED_RECORDS)
        widths = Counter(map(len, sample))
        if not widths:
            return 0
        width, records = widths.most_common(1)[0]
        return width if records >= _STEADY_SHARE * len(sample) else 0

    return max(DELIMITERS, key=steady)

"""Text cut into whole records, and the rules of quotes that keep each record to itself.

A cell that starts with a quote ends at the next quote that is not doubled, and then a delimiter,
a line end or the end of the file must follow (RFC 4180). In a cell that is not in quotes a quote
is text, but may not be the last character. Otherwise the file is refused.

Why these rules: let a line be added to a file that is accepted. If the line has an even number of
quotes that open, close or are doubled, what follows it is read as before. If it has an odd number,
everything after it is read inside out: each quote that opened now closes, and the other way round.
A quote within a cell without quotes, which is followed by more text, then stands inside a quoted
cell and breaks the rules. So either a rule is broken, or the file ends within a quoted cell; both
refuse it. No line can therefore change how the lines of others are read, except that the whole
file is refused.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from app.engine.rows import refuse

# A missing quote would otherwise make the rest of a file one record in memory.
LONGEST_RECORD_BYTES = 1 << 20
# A piece is at most such a record and a chunk; decompressed and decoded chunks are the longest.
LONGEST_PIECE_BYTES = 8 << 20


class QuoteFault(Exception):
    """A quote breaks the rules. `before` is the text from the last whole record up to the quote."""

    def __init__(self, message: str, remedy: str) -> None:
        self.message = message
        self.remedy = remedy
        self.before = b""
        super().__init__(message)


def whole_records(chunks: Iterator[bytes], delimiter: str, quote: str) -> Iterator[bytes]:
    """The same UTF-8 text in pieces that end with a record, without empty pieces.

    `quote` is "" for a file without quotes. Raises `QuoteFault`, and `TableError` for a record
    that is too long.
    """
    rules = _Rules(delimiter, quote)
    rest = b""
    for chunk in chunks:
        rest += chunk
        end = rules.last_record_end(rest)
        if end:
            yield rest[:end]
            rest = rest[end:]
        if len(rest) > LONGEST_RECORD_BYTES:
            raise refuse(
                f"a row is longer than {LONGEST_RECORD_BYTES} bytes, or a quote is never closed",
                "check the quotes, or declare `quote`",
            )
    if rest:
        rules.check_last(rest)
        yield rest


class _Rules:
    def __init__(self, delimiter: str, quote: str) -> None:
        self._quote = quote.encode()
        self._ends_cell = np.zeros(256, bool)
        self._ends_cell[list(delimiter.encode() + b"\r\n")] = True
        # Before a quote that opens and after one that closes; or the other one of a doubled quote.
        self._may_be_beside = self._ends_cell.copy()
        self._may_be_beside[list(self._quote)] = True

    def last_record_end(self, text: bytes) -> int:
        """The length of all whole records at the start of a text that goes on."""
        quotes = self._structural(text, is_last=False)
        end = len(text)
        while True:
            # A carriage return at the end may be half of a line end.
            end = max(text.rfind(b"\n", 0, end), text.rfind(b"\r", 0, min(end, len(text) - 1)))
            opened = int(np.searchsorted(quotes, end))
            if end < 0 or opened % 2 == 0:
                return end + 1
            end = int(quotes[opened - 1])

    def check_last(self, text: bytes) -> None:
        quotes = self._structural(text, is_last=True)
        if len(quotes) % 2:
            raise _fault(text, int(quotes[-1]), "a quote is never closed", "close it, or double it")

    def _structural(self, text: bytes, *, is_last: bool) -> NDArray[np.int64]:
        """The places of all quotes that open, close or are doubled; they do so in turn."""
        if not self._quote or self._quote not in text:
            return np.zeros(0, np.int64)
        data = np.frombuffer(text, np.uint8)
        quotes = np.flatnonzero(data == self._quote[0])
        if self._are_all_structural(data, quotes):
            return quotes
        return np.array(self._walk(text, quotes.tolist(), is_last=is_last), np.int64)

    def _are_all_structural(self, data: NDArray[np.uint8], quotes: NDArray[np.int64]) -> bool:
        # What follows the text is not known yet: it is looked at again with the next chunk.
        opening, closing = quotes[0::2], quotes[1::2]
        before = self._may_be_beside[data[np.maximum(opening - 1, 0)]]
        after = self._may_be_beside[data[np.minimum(closing + 1, len(data) - 1)]]
        return bool(before.all() and after.all())

    def _walk(self, text: bytes, quotes: list[int], *, is_last: bool) -> list[int]:
        """The structural quotes of a text that has others too, or the first fault."""
        structural: list[int] = []
        is_open = False
        skipped = -1
        for place in quotes:
            if place == skipped:
                structural.append(place)
                continue
            follows = text[place + 1 : place + 2]
            is_followed = bool(follows) and not self._ends_cell[follows[0]]
            if is_open:
                structural.append(place)
                if follows == self._quote:
                    skipped = place + 1
                    continue
                if is_followed:
                    raise _fault(text, place, *_TEXT_AFTER)
                is_open = False
            elif not place or self._ends_cell[text[place - 1]]:
                structural.append(place)
                is_open = True
            elif not is_followed and (follows or is_last):
                raise _fault(text, place, *_QUOTE_AT_END)
        return structural


_TEXT_AFTER = (
    "text follows the closing quote of a cell",
    "double the quotes inside the cell, close the quote before, or declare `quote`",
)
_QUOTE_AT_END = (
    "a cell that is not in quotes ends with a quote",
    'put the cell in quotes and double the quote inside, or declare "quote": "" for a file'
    " without quotes",
)


def _fault(text: bytes, place: int, message: str, remedy: str) -> QuoteFault:
    fault = QuoteFault(message, remedy)
    fault.before = text[:place]
    return fault

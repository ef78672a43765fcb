"""Bytes that are not text in the encoding of a file, kept within the cell that has them.

Each such byte becomes one character of a plane that Unicode leaves to private use. So the rest
of the file is read as if the byte were not there, different bytes stay different, and the cell
can be told from every text that means something: it has no value, whatever it looks like.
"""

from __future__ import annotations

import codecs
from collections.abc import Collection

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

# The name of the error handler that writes escapes, for `errors` of Python's decoders.
ESCAPING = "halftone-escape"
# The last 256 characters of Unicode: of private use, but for two that are no characters.
_FIRST = 0x10FF00
_ESCAPED = r"[\x{10FF00}-\x{10FFFF}]"
# The first byte in UTF-8 of every character beyond 2^18, where almost none is assigned.
_RARE_BYTE = 0xF4
# In the order of how common they are in table files.
_LIKELY = ("cp1252", "cp1250", "iso8859-2", "cp1251", "cp850", "mac_roman", "cp932", "gb18030")


def _escape(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeDecodeError):
        raise error
    # Decoding goes on after the first byte: a delimiter or line end that follows stays one.
    # UTF-16 and UTF-32 are in step only after the whole unit.
    is_wide = error.encoding.startswith(("utf-16", "utf-32", "utf16", "utf32"))
    end = error.end if is_wide else error.start + 1
    return "".join(chr(_FIRST + byte) for byte in error.object[error.start : end]), end


codecs.register_error(ESCAPING, _escape)


def has_escapes(texts: pa.StringArray) -> NDArray[np.bool_]:
    """Which texts contain bytes that are not text, shape (texts,)."""
    data = texts.buffers()[2]
    if data is None or not (np.frombuffer(data, np.uint8) == _RARE_BYTE).any():
        return np.zeros(len(texts), bool)
    return np.asarray(pc.fill_null(pc.match_substring_regex(texts, _ESCAPED), fill_value=False))


def shown(text: str) -> str:
    """The text with its escaped bytes as hexadecimal numbers, for a message."""
    return "".join(f"\\x{ord(mark) - _FIRST:02x}" if ord(mark) >= _FIRST else mark for mark in text)


def likely_encoding(text: str, declared: Collection[str]) -> tuple[str, str] | None:
    """An encoding that could have been meant, and the text in it.

    Preferred is one that makes a declared value of the text.
    """
    raw = b"".join(
        bytes([ord(mark) - _FIRST]) if ord(mark) >= _FIRST else mark.encode() for mark in text
    )
    readings = [(name, found) for name in _LIKELY if (found := _read(raw, name)) is not None]
    declared_ones = [reading for reading in readings if reading[1].strip() in declared]
    return next(iter([*declared_ones, *readings]), None)


def _read(raw: bytes, encoding: str) -> str | None:
    try:
        text = raw.decode(encoding)
    except UnicodeDecodeError:
        return None
    return text if text.isprintable() else None

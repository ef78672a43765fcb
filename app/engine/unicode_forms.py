"""Texts that look alike but have other code points: composed (NFC) or decomposed (NFD).

They are different values. A problem that such a text causes says where they differ, because
nobody can see it.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

_MOST_SHOWN = 3


def difference(text: str, declared: Iterable[str]) -> str | None:
    """How a text is written where it equals a declared one only after Unicode normalisation.

    None if there is no such declared text. Blanks around the text do not count.
    """
    bare = text.strip()
    composed = unicodedata.normalize("NFC", bare)
    alike = (each for each in declared if unicodedata.normalize("NFC", each.strip()) == composed)
    twin = next(alike, bare).strip()
    return None if twin == bare else _told(bare, twin)


def equals_in_another_form(texts: pa.StringArray, declared: pa.StringArray) -> NDArray[np.bool_]:
    """Which texts equal a declared one only after Unicode normalisation, shape (texts,)."""
    if not len(declared) or (_is_ascii(texts) and _is_ascii(declared)):
        return np.zeros(len(texts), bool)
    bare = pc.utf8_trim_whitespace(texts)
    composed = pc.utf8_normalize(bare, "NFC")
    alike = pc.is_in(composed, pc.utf8_normalize(pc.utf8_trim_whitespace(declared), "NFC"))
    return np.asarray(pc.and_not(alike, pc.is_in(bare, declared)))


def _is_ascii(texts: pa.StringArray) -> bool:
    return bool(pc.all(pc.string_is_ascii(texts), min_count=0).as_py())


def _told(text: str, twin: str) -> str:
    own, theirs = _characters(text), _characters(twin)
    if len(own) != len(theirs):
        own, theirs = [text], [twin]
    pairs = dict.fromkeys(
        (here, there) for here, there in zip(own, theirs, strict=True) if here != there
    )
    return "; ".join(
        f"{unicodedata.normalize('NFC', here)} is written as {_code_points(here)} here,"
        f" {_code_points(there)} in the dictionary"
        for here, there in list(pairs)[:_MOST_SHOWN]
    )


def _characters(text: str) -> list[str]:
    """The text cut before each character that neither combines nor composes with those before."""
    found: list[str] = []
    for mark in text:
        if found and (unicodedata.combining(mark) or _composes(found[-1], mark)):
            found[-1] += mark
        else:
            found.append(mark)
    return found


def _composes(before: str, mark: str) -> bool:
    """Such as the parts of a Korean syllable, which are no combining marks."""
    alone = unicodedata.normalize("NFC", before)
    return len(unicodedata.normalize("NFC", before + mark)) <= len(alone)


def _code_points(text: str) -> str:
    return " ".join(f"U+{ord(mark):04X}" for mark in text)

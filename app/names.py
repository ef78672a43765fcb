"""Names that people read and compare: what may be in them, and which look alike.

After the profiles of Unicode Technical Standard 39: no character that is not seen, the scripts of
one way of writing, and a skeleton that is equal for names that look alike.
"""

from __future__ import annotations

import re
import unicodedata

# Characters that show nothing although their category is a letter, a mark or a symbol.
_BLANK = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
# Control, format, surrogate, private, unassigned; separators of lines and paragraphs.
_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
# They join letters and emoji, and are wanted there; a name that must be unique cannot have them.
_JOINERS = frozenset("\u200c\u200d")
# Letters of phonetic alphabets look like ordinary ones, and no name is written with them.
_PHONETIC = re.compile("[\u02b0-\u02b8\u1d00-\u1dbf\ua720-\ua7ff\uab30-\uab6f]")
# Unicode Standard Annex 31, table 5, by the first word of the names of characters.
# fmt: off
_SCRIPTS = frozenset({
    "ARABIC", "ARMENIAN", "BENGALI", "BOPOMOFO", "CJK", "CYRILLIC", "DEVANAGARI", "ETHIOPIC",
    "GEORGIAN", "GREEK", "GUJARATI", "GURMUKHI", "HANGUL", "HEBREW", "HIRAGANA", "KANNADA",
    "KATAKANA", "KATAKANA-HIRAGANA", "KHMER", "LAO", "LATIN", "MALAYALAM", "MYANMAR", "ORIYA",
    "SINHALA", "TAMIL", "TELUGU", "THAANA", "THAI", "TIBETAN",
})
# fmt: on
# The scripts that one way of writing mixes (UTS 39, "highly restrictive").
_TOGETHER = (
    frozenset({"LATIN", "CJK", "HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA"}),
    frozenset({"LATIN", "CJK", "BOPOMOFO"}),
    frozenset({"LATIN", "CJK", "HANGUL"}),
)
# More marks than any writing puts on a letter would run into the lines around.
_MOST_MARKS = 4

# From Unicode's confusables: what other scripts have of the shapes of Latin letters.
_ALIKE = str.maketrans(
    # Cyrillic, Greek, Armenian, then Latin itself.
    "АВЕЅІЈКМНОРСТУХҮԚԜӀасеіјорѕуүхһԁԛԝӏѵΑΒΕΖΗΙΚΜΝΟΡΤΥΧαιγκνορυχՍՏՕԼցհոսօզıɑɡɩɪ|",
    "ABESIJKMHOPCTYXYQWlaceijopsyyxhdqwlvABEZHIKMNOPTYXaiykvopuxUSOLghnuoqiagiil",
)
_HYPHENS = re.compile("[\u2010-\u2015\u2212\u30fc]")
_QUOTES = re.compile("[`\u00b4\u02b9-\u02bd\u2018-\u201b\u2032\u0384]")


def expect_visible(name: str) -> str:
    """The name. Raises `ValueError` for a character that is not seen, or turns others around."""
    for character in name:
        if unicodedata.category(character) in _UNSEEN and character not in _JOINERS:
            raise ValueError(f"a name has no control or invisible characters: {_named(character)}")
    return name


def expect_distinct_form(name: str) -> str:
    """The name in its composed form (NFC), fit to be told from every other by eye.

    Raises `ValueError` for what `expect_visible` refuses, and for blanks, joiners, phonetic
    letters, letters of scripts that are not written together, and heaps of marks.
    """
    name = unicodedata.normalize("NFC", expect_visible(name))
    marks = 0
    for character in name:
        if character in _JOINERS or _BLANK.match(character) or _PHONETIC.match(character):
            raise ValueError(f"this character cannot be told from others: {_named(character)}")
        marks = marks + 1 if unicodedata.category(character) == "Mn" else 0
        if marks > _MOST_MARKS:
            raise ValueError(f"a letter has at most {_MOST_MARKS} marks")
    scripts = {script_of(letter) for letter in unicodedata.normalize("NFKC", name)} - {""}
    if not scripts <= _SCRIPTS:
        raise ValueError("the letters of a name are of a script that is in everyday use")
    if len(scripts) > 1 and not any(scripts <= written for written in _TOGETHER):
        mixed = ", ".join(sorted(script.title() for script in scripts))
        raise ValueError(f"the letters of a name are of one script, not of {mixed}")
    return name


def script_of(letter: str) -> str:
    """The script by which Unicode names a letter; empty for what is no letter."""
    if not unicodedata.category(letter).startswith("L"):
        return ""
    return unicodedata.name(letter, "UNKNOWN").split()[0]


def look_alike(one: str, other: str) -> bool:
    """Whether readers could take one name for the other, in capitals or in small letters."""
    return any(a == b for a, b in zip(skeletons(one), skeletons(other), strict=True))


def skeletons(name: str) -> tuple[str, str]:
    """Texts of which one is equal for names that look alike: as written, and in small letters.

    A capital I is like a small l only as it is written; a name in capitals is like the same in
    small letters only after folding.
    """
    plain = unicodedata.normalize("NFKC", name)
    folded = unicodedata.normalize("NFKC", plain.casefold())
    return _shapes(plain.replace("I", "l")), _shapes(folded)


def _shapes(text: str) -> str:
    digits = "".join(
        str(unicodedata.decimal(each)) if unicodedata.category(each) == "Nd" else each
        for each in text
    )
    shaped = digits.translate(_ALIKE).casefold().translate(_ALIKE)
    shaped = _QUOTES.sub("'", _HYPHENS.sub("-", shaped))
    for written, alike in (("0", "o"), ("1", "l"), ("rn", "m"), ("vv", "w")):
        shaped = shaped.replace(written, alike)
    return " ".join(shaped.split())


def _named(character: str) -> str:
    return f"U+{ord(character):04X} {unicodedata.name(character, '')}".rstrip()

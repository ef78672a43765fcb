"""Names of principals can be told apart by eye, and names of people remain possible."""

from __future__ import annotations

import unicodedata

import pytest

from app.names import expect_distinct_form, expect_visible, look_alike

PEOPLE = [
    "Ada Lovelace",
    "Núñez, José María (HR)",
    "Đặng Thị Ngọc",
    "Ọlákúnlé",
    "Þórður Ǫrn",
    "O’Brien-Smith III",
    "Анна Ковалёва",
    "Ελένη Παπαδοπούλου",
    "Արամ Խաչատրյան",
    "محمد عبد الله",
    "שרה כהן",
    "अनिता शर्मा",
    "สมชาย ใจดี",
    "김철수",
    "山田 太郎 (Yamada)",
    "やまだ タロー",
    "team 7 🚀",
    "admin",
]
UNSEEN = {
    "zero-width space": "ad\u200bmin",
    "byte order mark": "admin\ufeff",
    "soft hyphen": "ad\u00admin",
    "right-to-left override": "\u202enimda",
    "isolate": "\u2066admin\u2069",
    "line separator": "ad\u2028min",
    "control": "ad\x85min",
    "tag": "admin\U000e0061",
    "private use": "admin\ue000",
    "unassigned": "admin\u0378",
}
NOT_DISTINCT = {
    "joiner": "ad\u200dmin",
    "filler": "ad\u3164min",
    "variation selector": "admin\ufe0f",
    "blank braille": "ad\u2800min",
    "grapheme joiner": "ad\u034fmin",
    "Cyrillic among Latin": "\u0430dmin",
    "Greek among Latin": "admi\u03bd",
    "Cherokee": "\u13aa\u13a0",
    "phonetic": "\u1d00dmin",
    "heaped marks": "admin" + "\u0301" * 9,
}
ALIKE = [
    ("admin", "Admin"),
    ("admin", "ADMIN"),
    ("admin", "\uff41dmin"),
    ("Ada", "Ada "),
    ("Alice", "AIice"),
    ("Alice", "A1ice"),
    ("Bob", "B0b"),
    ("BOB", "\u0412\u041e\u0412"),
    ("cope", "\u0441\u043e\u0440\u0435"),
    ("NATO", "\u039d\u0391\u03a4\u039f"),
    ("O'Brien", "O\u2019Brien"),
    ("Anna-Lena", "Anna\u2010Lena"),
    ("modern", "modem"),
    ("team 7", "team \u0667"),
    ("Jos\u00e9", "Jose\u0301"),
]
DIFFERENT = [("Lia", "Ila"), ("Jose", "José"), ("Ali", "All"), ("x1", "x2"), ("Anna", "Анна")]


@pytest.mark.parametrize("name", PEOPLE)
def test_names_of_people_and_teams_are_taken(name: str) -> None:
    assert expect_distinct_form(name) == unicodedata.normalize("NFC", name)
    assert [other for other in PEOPLE if look_alike(name, other)] == [name]


@pytest.mark.parametrize("name", UNSEEN.values(), ids=UNSEEN)
def test_no_name_has_characters_that_are_not_seen(name: str) -> None:
    with pytest.raises(ValueError, match="control or invisible"):
        expect_visible(name)
    with pytest.raises(ValueError, match="U\\+"):
        expect_distinct_form(name)


@pytest.mark.parametrize("name", NOT_DISTINCT.values(), ids=NOT_DISTINCT)
def test_a_name_that_must_be_unique_is_of_one_script_and_without_blanks(name: str) -> None:
    assert expect_visible(name) == name
    with pytest.raises(ValueError, match=r"letter|script|character"):
        expect_distinct_form(name)


@pytest.mark.parametrize(("one", "other"), ALIKE)
def test_names_that_look_alike_are_found(one: str, other: str) -> None:
    assert look_alike(one, other)


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_names_that_differ_to_the_eye_are_different(one: str, other: str) -> None:
    assert not look_alike(one, other)

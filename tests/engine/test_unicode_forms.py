"""Texts that look alike: what is said about those that differ in their code points alone."""

from __future__ import annotations

import io
import json
import unicodedata
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.engine.encoding import Encoder
from app.engine.files import TableError, open_table
from app.engine.schema import PrivacyUnit, Schema
from app.engine.unicode_forms import difference, equals_in_another_form

ACUTE = "é is written as U+0065 U+0301 here, U+00E9 in the dictionary"


def decomposed(text: str) -> str:
    return unicodedata.normalize("NFD", text)


@pytest.mark.parametrize(
    ("text", "declared", "told"),
    [
        (decomposed("José"), "José", ACUTE),
        ("José", decomposed("José"),
         "é is written as U+00E9 here, U+0065 U+0301 in the dictionary"),
        (decomposed(" éé "), "éé", ACUTE),
        ("\u212b", "Å", "Å is written as U+212B here, U+00C5 in the dictionary"),
        (decomposed("각"), "각",
         "각 is written as U+1100 U+1161 U+11A8 here, U+AC01 in the dictionary"),
        ("José", "José", None),
        ("Jose", "José", None),
    ],
)  # fmt: skip
def test_it_is_told_which_code_points_differ(text: str, declared: str, told: str | None) -> None:
    assert difference(text, ["x", declared]) == told
    texts, known = pa.array([text]), pa.array(["x", declared])
    assert equals_in_another_form(texts, known).tolist() == [told is not None]


@given(st.text(max_size=6))
def test_every_text_that_changes_in_its_forms_is_told(text: str) -> None:
    for form in ("NFC", "NFD"):
        other = unicodedata.normalize(form, text).strip()
        assert (difference(other, [text]) is None) == (other == text.strip())


def schema(**changes: Any) -> Schema:
    field = {"name": "città", "type": "string", "constraints": {"enum": ["Forlì", "Ravenna"]}}
    return Schema.parse({"fields": [{**field, **changes}]})


def encoded(data: str, declared: Schema) -> Encoder:
    reader = open_table(io.BytesIO(data.encode()), names=declared.names)
    encoder = Encoder(declared, PrivacyUnit.parse({"kind": "row"}), reader.layout)
    for block in reader:
        encoder.encode(block)
    return encoder


GRAVE = "is written as U+{:04X} U+0300 here, U+{:04X} in the dictionary"


@pytest.mark.parametrize(
    "data",
    ["città\nForlì\n", json.dumps({"città": "Forlì"}, ensure_ascii=False)],
    ids=["the header of a CSV file", "a key of JSON Lines"],
)
def test_a_name_in_another_form_is_told_with_its_code_points(data: str) -> None:
    with pytest.raises(TableError) as caught:
        encoded(decomposed(data), schema())
    (problem,) = caught.value.problems
    assert problem.column == "città"
    assert problem.message.endswith("à " + GRAVE.format(ord("a"), ord("à")))


def test_a_value_in_another_form_is_told_with_its_code_points() -> None:
    data = f"città\nForlì\n{decomposed('Forlì')}\nRavenna\nRoma\n"
    found = encoded(data, schema()).totals.problems
    alike, other = found.listed()
    assert alike.message.endswith("is not declared: ì " + GRAVE.format(ord("i"), ord("ì")))
    assert other.message == '"Roma" is not declared'


def test_values_in_another_form_are_counted_where_other_takes_them() -> None:
    data = f"città\nForlì\n{decomposed('Forlì')}\n{decomposed('Forlì')}\nRoma\n"
    (found,) = encoded(data, schema(other="Other")).totals.other_forms.values()
    assert found.cells == 2
    assert found.difference == "ì " + GRAVE.format(ord("i"), ord("ì"))


def test_a_header_in_another_encoding_is_told_by_the_encoding_that_has_the_declared_name() -> None:
    data = "città\nForlì\n".encode("cp850")
    with pytest.raises(TableError) as caught:
        open_table(io.BytesIO(data)).layout.bind(schema())
    assert "cp850" in caught.value.problems[0].remedy

"""Texts whose values are to be found get private numbers as they come."""

from __future__ import annotations

import pyarrow as pa
import pytest

from app.datasets import blocks
from app.engine.encoding import Encoder, TableError, found_texts
from app.engine.encoding.found_texts import LONGEST_FOUND, NO_NUMBER
from app.engine.schema import PrivacyUnit, Schema

SCHEMA = Schema.parse(
    {
        "fields": [{"name": "town", "type": "string", "values": "discover", "other": "Other"}],
        "missingValues": ["NA"],
    }
)


def encoded(encoder: Encoder, *towns: str | None) -> tuple[list[int], list[int]]:
    block = encoder.encode(pa.table({"town": pa.array(towns, pa.string())}))
    assert not block.problems
    return block.codes["town"].tolist(), block.numbers["town"].tolist()


def test_every_value_is_stored_as_other_and_numbered_beside_it() -> None:
    encoder = Encoder(SCHEMA, PrivacyUnit("row"))
    codes, numbers = encoded(encoder, "Ur", "NA", "Kish", " Ur ", None, "Other")
    assert codes == [0, 1, 0, 0, 1, 0]
    assert numbers == [0, NO_NUMBER, 1, 0, NO_NUMBER, NO_NUMBER]
    assert encoded(encoder, "Eridu", "Kish", "") == ([0, 0, 0], [2, 1, 3])
    assert encoder.texts["town"].texts == ("Ur", "Kish", "Eridu", "")
    assert encoded(encoder, None, "NA") == ([1, 1], [NO_NUMBER, NO_NUMBER])
    assert not encoder.totals.treated, "an undeclared value is what the column is made of"


def test_long_texts_stay_other() -> None:
    encoder = Encoder(SCHEMA, PrivacyUnit("row"))
    assert encoded(encoder, "x" * (LONGEST_FOUND + 1), "y" * LONGEST_FOUND)[1] == [NO_NUMBER, 0]


def test_too_many_texts_are_refused_without_telling_any(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(found_texts, "MOST_TEXTS", 2)
    encoder = Encoder(SCHEMA, PrivacyUnit("row"))
    encoded(encoder, "Ur", "Kish", "Ur")
    with pytest.raises(TableError) as error:
        encoded(encoder, "Eridu")
    assert "Eridu" not in str(error.value.problems)


def test_texts_come_back_from_their_bytes() -> None:
    texts = ("Ur", "", "Łódź \u0000 🙂", "a" * 5000)
    assert blocks.unpack_texts(blocks.pack_texts(texts)) == texts
    assert blocks.unpack_texts(blocks.pack_texts(())) == ()
    for damaged in (b"", b"\x00" * 9, blocks.pack_texts(texts)[:-3]):
        with pytest.raises(blocks.BlockError):
            blocks.unpack_texts(damaged)

"""The page about dictionaries names every key that the service reads."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from pathlib import Path

from app.datasets.schemas import DatasetIn
from app.engine.files import FileOptions
from app.engine.schema import QuantileBins, Schema
from app.engine.schema.fields import FIELD_KEYS

PAGE = (Path(__file__).parents[2] / "docs/reference/data-dictionary.md").read_text()


def keys_of_tables() -> set[str]:
    rows = re.findall(r"^\| (`[^|]*`) \|", PAGE, re.M)
    return set(re.findall(r"`(\w+)`", " ".join(rows)))


def test_every_key_of_declarations_fields_and_files_is_documented_and_no_other() -> None:
    declared = {field.alias or name for name, field in DatasetIn.model_fields.items()}
    options = {field.name for field in fields(FileOptions)} - {"max_bytes"}
    assert keys_of_tables() == declared | FIELD_KEYS | options


def test_the_examples_of_the_page_are_accepted() -> None:
    example, bought, found, rules = re.findall(r"```json\n(.*?)```", PAGE, re.S)
    assert Schema.parse(json.loads(example)).entity is not None
    assert Schema.parse({"fields": [json.loads(bought)]}).columns[0].bins == QuantileBins()
    assert Schema.parse({"fields": [json.loads(found)]}).columns[0].discovers == 1000
    assert {rule["kind"] for rule in json.loads(rules)} == {
        "sum", "at_least", "order", "forbidden", "implied", "lookup"
    }  # fmt: skip

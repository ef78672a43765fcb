"""A declaration with any one of its values spoiled is taken or refused by name, never a fault."""

from __future__ import annotations

import json
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest

from app.problems import HalftoneError, Invalid, MalformedRequest
from app.routers.dataset_spec import read_spec
from app.routers.wire import parse_json
from app.settings import Settings

SPEC: dict[str, Any] = {
    "name": "trips",
    "visibility": "private",
    "schema": {
        "fields": [
            {"name": "id", "type": "string", "role": "entity"},
            {
                "name": "day",
                "type": "date",
                "format": "%Y-%m-%d",
                "constraints": {"minimum": "2020-01-01", "maximum": "2020-12-31"},
                "bins": ["2020-01-01", "2020-06-01", "2020-12-31"],
                "undeclared": "null",
            },
            {"name": "year", "type": "year", "constraints": {"minimum": 1990, "maximum": 2020}},
            {"name": "paid", "type": "boolean", "trueValues": ["Y"], "falseValues": ["N"]},
            {
                "name": "fare",
                "type": "number",
                "constraints": {"minimum": 0, "maximum": 10, "required": False},
                "step": 0.5,
                "bins": 4,
                "special": [-1],
                "decimalChar": ",",
                "groupChar": ".",
                "bareNumber": False,
                "undeclared": "clip",
                "missingValues": ["-"],
                "column": 4,
            },
            {
                "name": "kind",
                "type": "integer",
                "constraints": {"enum": [1, 2, 3]},
                "other": 9,
                "title": "Kind",
            },
        ],
        "missingValues": [""],
        "constraints": [
            {"kind": "order", "columns": ["kind", "fare"], "strict": True},
            {"kind": "forbidden", "when": {"fare": {"maximum": 1}, "paid": [True]}},
            {"kind": "implied", "when": {"paid": [False]}, "then": {"kind": [None]}},
            {"kind": "lookup", "columns": ["kind", "paid"], "rows": [[1, True]]},
        ],
    },
    "unit": {"kind": "entity", "column": "id", "max_rows": 5},
    "max_total_rows": 1000,
    "budget": {"epsilon": 10, "delta": 1e-6},
    "accountant": "zcdp",
    "delta_for_approximate": 0,
    "file": {"format": "csv", "delimiter": ",", "header_rows": 1, "decimal": "."},
    "new_population": {"reason": "Another city."},
}

SPOILED = [
    "null", "true", "-1", "0", "1.0", "18446744073709551616", "1e308", "1e900", "-1e99999999999",
    "0.1000000000000000055511151231257827", '""', '"a"', '"1e5"', '"1e99999999999"', '"2020-02-30"',
    r'"\u0000"', r'"\ud800"', '"' + "x" * 20_000 + '"', "[]", "[[]]", "[null]", "[1, 0]", "{}",
    r'{"\ud800": 1}', '{"": null}', "9" * 5000, "[" * 2000 + "]" * 2000,
]  # fmt: skip
MARK = "\N{BULLET}"

Path = tuple[str | int, ...]


def places(node: Any, at: Path = ()) -> Iterator[Path]:
    yield at
    steps: dict[Any, Any] = {}
    if isinstance(node, dict | list):
        steps = node if isinstance(node, dict) else dict(enumerate(node))
    for step, below in steps.items():
        yield from places(below, (*at, step))


def with_text(at: Path, text: str) -> bytes:
    """The declaration as JSON, with this text in one place."""
    spoiled: Any = [deepcopy(SPEC)]
    holder, last = spoiled, 0
    for step in at:
        holder, last = holder[last], step  # type: ignore[assignment]
    holder[last] = MARK
    return json.dumps(spoiled[0], ensure_ascii=False).replace(f'"{MARK}"', text).encode()


def test_the_declaration_is_taken_as_it_is() -> None:
    assert read_spec(parse_json(json.dumps(SPEC).encode()), Settings()).name == "trips"


@pytest.mark.parametrize("text", SPOILED, ids=lambda text: text[:20])
def test_one_spoiled_value_is_no_fault_of_the_service(text: str) -> None:
    settings = Settings()
    for at in places(SPEC):
        try:
            read_spec(parse_json(with_text(at, text)), settings)
        except (Invalid, MalformedRequest) as error:
            can_be_answered(error)


def can_be_answered(error: HalftoneError) -> None:
    json.dumps(error.as_wire("/v1/datasets"), ensure_ascii=False).encode()
    assert all(fault.remedy for fault in error.errors)

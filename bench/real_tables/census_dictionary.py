"""The census excerpt's dictionary: NIST's JSON as the service imports it, and what that lacks.

What is added is public: the Census Bureau's codebook of 2019 (PUMS_Data_Dictionary_2019.pdf, to
which the JSON refers) and the meanings that the JSON itself gives.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from halftone_client import Halftone

from bench.shared_data import DATA

FILE = DATA / "census_ma/data_dictionary.json"


def _implied(when: dict[str, Any], **then: list[int | None]) -> dict[str, Any]:
    return {"kind": "implied", "when": when, "then": then}


_INDUSTRIES = [170, 370, 570, 770, 1070, 4070, 4670, 6070, 6470, 6870]
_INDUSTRIES += [7270, 7860, 7970, 8370, 8560, 8770, 9370, 9670, 9920]
_DOLLARS = [-9000, *range(0, 15_000, 2500), *range(15_000, 40_000, 5000)]
_DOLLARS += [*range(40_000, 80_000, 10_000), 80_000, 100_000, 120_000, 150_000]
_DOLLARS += [200_000, 300_000, 500_000]
_WEIGHTS = [*range(1, 201, 10), 221, 261, 301, 401, 600, 1000]
_AGES = [0, 3, 5, 10, 15, 16, *range(20, 100, 5)]

ADDED: dict[str, dict[str, Any]] = {
    # Single years are finer than 7,634 rows bear. The first edges are the ages at which the
    # JSON lets other columns begin.
    "AGEP": {"bins": _AGES},
    # The JSON lists no codes, but refers to the codebook. The edges are those of the categories
    # in INDP_CAT; the codes of a category lie side by side.
    "INDP": {
        "type": "integer",
        "constraints": {"minimum": 170, "maximum": 9920},
        "bins": _INDUSTRIES,
        "missingValues": ["", "N"],
    },
    # The importer chooses private bins where a range is wide, since it knows no scale. How the
    # incomes, ratios and weights of a survey are distributed is known from earlier surveys:
    # narrow bins where values are common, wide ones elsewhere, and no more bins than 7,634 rows
    # can fill. Many people have no income.
    "PINCP": {"bins": _DOLLARS, "special": [0]},
    "POVPIP": {"bins": 25},
    "PWGTP": {"bins": _WEIGHTS},
    "WGTP": {"bins": _WEIGHTS},
}
REPLACED: dict[str, dict[str, Any]] = {
    # A range by the JSON, but one figure for each area: a category whose values nobody lists.
    "DENSITY": {"type": "string", "values": {"discover": 50}, "other": "other"},
}
RULES: list[dict[str, Any]] = [
    # "less than 3 years old", "Less than 5 years old", "age less than 15 years",
    # "less than 15 years old", "less than 16 years old".
    _implied({"AGEP": {"minimum": 3}}, EDU=list(range(1, 13))),
    _implied({"AGEP": {"maximum": 4}}, DREM=[None], DPHY=[None]),
    _implied({"AGEP": {"maximum": 14}}, MSP=[None], PINCP=[None], PINCP_DECILE=[None]),
    _implied({"AGEP": {"maximum": 15}}, INDP=[None], INDP_CAT=[None]),
    # "Group quarters place holder record", "Group quarters", "N/A (GQ/vacant ...)".
    _implied({"HOUSING_TYPE": [2, 3]}, OWN_RENT=[0], WGTP=[0], NOC=[None], NPF=[None]),
    {"kind": "forbidden", "when": {"HOUSING_TYPE": [1], "OWN_RENT": [0]}},
]


def declaration(client: Halftone) -> dict[str, Any]:
    """What the table is uploaded with, its dictionary imported by the service."""
    imported = client.import_dictionary(json.loads(FILE.read_text()), "nist-dictionary")
    return {
        "name": "census-massachusetts-2019",
        "schema": completed(imported["schema"]),
        "unit": {"kind": "row"},
        "max_total_rows": 100_000,
        "budget": {"epsilon": "1000", "delta": "1e-3"},
    }


def completed(schema: Mapping[str, Any]) -> dict[str, Any]:
    """An imported dictionary with what it lacks."""
    return {
        **schema,
        "fields": [_completed(field) for field in schema["fields"]],
        "constraints": RULES,
    }


def _completed(field: Mapping[str, Any]) -> dict[str, Any]:
    name = field["name"]
    if name in REPLACED:
        return {"name": name, "title": field["title"], **REPLACED[name]}
    return {**field, **ADDED.get(name, {})}

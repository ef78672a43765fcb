"""The `data_dictionary.json` of NIST's Diverse Communities Data Excerpts.

A column has a `description`, and `values`: an object of codes with their meanings, or the ends of
a range, `min` and `max`, with codes beside it that are no part of it:

    {"SEX": {"description": "Person's gender", "values": {"1": "Male", "2": "Female"}},
     "POVPIP": {"description": "Income-to-poverty ratio",
                "values": {"min": 0, "max": 500, "501": "above 5 x poverty line", "N": "N/A"}}}

A code that means *not applicable* is a spelling of null (`missingValues`), another beside a range
a point mass of its own (`special`). For ranges with many values nothing public says where the
rows lie, so they get private bins; 0 within such a range is special too, since amounts are often 0.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from app.engine.schema.problems import ProblemLog
from app.engine.schema.scalars import check_keys

# A range of whole numbers with up to this many values has a cell for each; a longer one gets
# private bins.
MOST_OWN_CELLS = 100

_COLUMN_KEYS = ("description", "details", "link", "values")
_ENDS = ("min", "max")
_NOT_APPLICABLE = re.compile(r"\s*(n/a|not applicable)\b", re.IGNORECASE)
_WHOLE = re.compile(r"0|-?[1-9][0-9]{0,17}")
_NUMBER = re.compile(r"-?[0-9]{1,15}(\.[0-9]{1,12})?")


def import_nist_dictionary(dictionary: Any) -> dict[str, Any]:
    """The schema of the excerpts' `data_dictionary.json`; raises `SchemaError`.

    A column without `values` is free text, and the schema does not use it.
    """
    log = ProblemLog()
    if not isinstance(dictionary, Mapping) or not dictionary:
        log.add(
            "expected an object of columns, each with its description and values",
            "give the whole data_dictionary.json",
        )
        log.raise_if_any()
    fields = [_field(str(name), column, log.below(name)) for name, column in dictionary.items()]
    log.raise_if_any()
    return {"fields": fields, "missingValues": [""]}


def _field(name: str, column: Any, log: ProblemLog) -> dict[str, Any]:
    if not isinstance(column, Mapping):
        log.add("a column must be an object", 'write {"description": ..., "values": {...}}')
        return {}
    check_keys(column, _COLUMN_KEYS, log)
    prose = _prose(column, log)
    values = column.get("values")
    if values is None:
        return {"name": name, "type": "string", **prose}
    codes = _codes(values, log.below("values"))
    if codes is None:
        return {}
    missing = [
        code for code, meaning in codes.items() if not code or _NOT_APPLICABLE.match(meaning)
    ]
    kept = [code for code in codes if code not in missing]
    spellings = list(dict.fromkeys(["", *missing]))
    spelled: dict[str, Any] = {"missingValues": spellings} if missing else {}
    ranged = any(end in values for end in _ENDS)
    read = _range(values, kept, log.below("values")) if ranged else _enum(kept, log)
    limits = {"required": not missing, **read.pop("constraints", {})}
    meanings = "; ".join(f"{code}: {meaning}" for code, meaning in codes.items())
    described = ". ".join(text for text in (prose.pop("description", ""), meanings) if text)
    shown = {"description": described} if described else {}
    return {"name": name, **read, "constraints": limits, **spelled, **prose, **shown}


def _prose(column: Mapping[str, Any], log: ProblemLog) -> dict[str, str]:
    """`description` as our title; `details` and `link` as our description."""
    texts = {}
    for key in ("description", "details", "link"):
        text = column.get(key)
        if text is not None and not isinstance(text, str):
            log.add("expected a text", "put it in quotes, or remove it", key)
        elif text:
            texts[key] = text
    title = {"title": texts["description"]} if "description" in texts else {}
    more = ". ".join(texts[key].rstrip(".") for key in ("details", "link") if key in texts)
    return title | ({"description": more} if more else {})


def _codes(values: Any, log: ProblemLog) -> dict[str, str] | None:
    """Codes with their meanings, without the ends of a range; None if `values` is wrong."""
    if not isinstance(values, Mapping) or not values:
        log.add(
            "expected an object of codes with their meanings, or of `min` and `max`",
            'write {"1": "Yes", "2": "No"} or {"min": 0, "max": 99}',
        )
        return None
    codes = {}
    for code, meaning in values.items():
        if code in _ENDS:
            continue
        if not isinstance(meaning, str):
            log.add(
                "the meaning of a code must be a text",
                f'write {{"{code}": "what it means"}}; a range is {{"min": ..., "max": ...}}',
                str(code),
            )
            return None
        codes[str(code)] = meaning
    return codes


def _enum(codes: list[str], log: ProblemLog) -> dict[str, Any]:
    """Whole numbers if all codes are written as such (1, not 01), otherwise texts."""
    if not codes:
        log.add(
            "all codes mean not applicable, so the column has no category",
            "list the others",
            "values",
        )
        return {}
    if all(_WHOLE.fullmatch(code) for code in codes):
        return {"type": "integer", "constraints": {"enum": sorted(map(int, codes))}}
    return {"type": "string", "constraints": {"enum": codes}}


def _range(values: Mapping[str, Any], codes: list[str], log: ProblemLog) -> dict[str, Any]:
    ends = [_end(values, end, log) for end in _ENDS]
    special = [_point(code, log) for code in codes]
    least, most = ends
    if least is None or most is None or any(point is None for point in special):
        return {}
    if least > most:
        log.add("`max` is below `min`", "swap `min` and `max`", "max")
        return {}
    whole = all(isinstance(number, int) for number in (*ends, *special))
    private = not whole or most - least >= MOST_OWN_CELLS
    if private and least <= 0 <= most and 0 not in special:
        special.append(0)
    return {
        "type": "integer" if whole else "number",
        "constraints": {"minimum": least, "maximum": most},
        **({"special": special} if special else {}),
        **({"bins": "quantiles"} if private else {}),
    }


def _end(values: Mapping[str, Any], end: str, log: ProblemLog) -> int | float | None:
    number = values.get(end)
    if isinstance(number, int) and not isinstance(number, bool):
        return number
    if isinstance(number, float) and math.isfinite(number):
        return number
    log.add("a range needs the two numbers `min` and `max`", f'write "{end}": 0, say', end)
    return None


def _point(code: str, log: ProblemLog) -> int | float | None:
    if _WHOLE.fullmatch(code):
        return int(code)
    if _NUMBER.fullmatch(code):
        return float(code)
    log.add(
        "a code next to a range must be a number, or mean not applicable",
        'begin its meaning with "N/A", or list codes instead of the range',
        code,
    )
    return None

"""Records as JSON files, and how two of them differ."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

RECORDS = Path(__file__).with_name("records")

# A sum of floats in another order, or another processor's exponential, is no change of behaviour.
TOLERANCE = 1e-4


def recorded(name: str) -> Any:
    return json.loads((RECORDS / f"{name}.json").read_text())


def write_record(name: str, record: Any) -> None:
    """One line for each item, so that a change reads well in a diff."""
    RECORDS.mkdir(exist_ok=True)
    (RECORDS / f"{name}.json").write_text(_lines(record) + "\n")


def _lines(value: Any, depth: int = 0) -> str:
    indent = " " * (depth + 1)
    if isinstance(value, dict) and value and not depth:
        inside = [f"{indent}{json.dumps(key)}: {_lines(each, 1)}" for key, each in value.items()]
        return "{\n" + ",\n".join(inside) + "\n}"
    if isinstance(value, list) and value and depth < 2 and any(map(_is_nested, value)):
        inside = [f"{indent}{json.dumps(each)}" for each in value]
        return "[\n" + ",\n".join(inside) + "\n" + " " * depth + "]"
    return json.dumps(value)


def _is_nested(value: Any) -> bool:
    return isinstance(value, dict | list)


def differences(
    found: Any, golden: Any, place: str = "", *, tolerance: float = TOLERANCE
) -> list[str]:
    """Where two records differ: floats beyond the tolerance, anything else at all."""
    if isinstance(found, float) and isinstance(golden, float):
        near = math.isclose(found, golden, rel_tol=tolerance, abs_tol=tolerance)
        return [] if near else [f"{place}: {found} was {golden}"]
    if isinstance(found, dict) and isinstance(golden, dict) and found.keys() == golden.keys():
        places: list[Any] = list(golden)
    elif isinstance(found, list) and isinstance(golden, list) and len(found) == len(golden):
        places = list(range(len(golden)))
    else:
        return [] if found == golden else [f"{place}: {found!r} was {golden!r}"]
    return [
        difference
        for each in places
        for difference in differences(
            found[each], golden[each], f"{place}/{each}", tolerance=tolerance
        )
    ]

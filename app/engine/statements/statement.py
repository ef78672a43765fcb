"""A statement: what it says of columns, pairs and numbers, and the rules of its words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

CONFIDENCE = 0.9
# Largest upper ends of an interval. `good` leaves as much room again below a tenth, which no pair
# that is called good may pass.
GOOD = 0.05
USABLE = 0.15

Basis = Literal["measured", "implied by the model", "not measured"]
Verdict = Literal["good", "usable", "weak", "not measured"]
Interval = tuple[float, float]

RULES: Mapping[Verdict, str] = {
    "good": f"measured, and the upper end of the interval is at most {GOOD}",
    "usable": f"measured, and the upper end of the interval is at most {USABLE}",
    "weak": f"measured, and the upper end of the interval is above {USABLE}: the distance is large,"
    " or the noise too large to show that it is small",
    "not measured": "no noisy answer of the release is about it",
}


def verdict_of(basis: Basis, interval: Interval | None) -> Verdict:
    if basis != "measured" or interval is None:
        return "not measured"
    return "good" if interval[1] <= GOOD else "usable" if interval[1] <= USABLE else "weak"


@dataclass(frozen=True, slots=True)
class StatedDistance:
    """Total variation distance between the sample and the private table, for a column or a pair.

    distance: what is expected, None where it was not measured. cells: those it is taken over.
    sampling_error: the expected distance between the model and a sample of this size.
    """

    columns: tuple[str, ...]
    basis: Basis
    cells: int
    distance: float | None = None
    interval: Interval | None = None
    sampling_error: float | None = None
    note: str | None = None

    @property
    def verdict(self) -> Verdict:
        return verdict_of(self.basis, self.interval)

    def to_json(self) -> dict[str, Any]:
        return {
            "distance": _rounded(self.distance),
            "interval": None if self.interval is None else [_rounded(end) for end in self.interval],
            "verdict": self.verdict,
            "basis": self.basis,
            "cells": self.cells,
            "sampling_error": _rounded(self.sampling_error),
            "note": self.note,
        }


@dataclass(frozen=True, slots=True)
class StatedNumber:
    """A figure of the sample, and where the same figure of the private table lies.

    q: of a quantile, else None. value: None where the sample has no value to take it from.
    """

    statistic: Literal["mean", "quantile", "correlation"]
    columns: tuple[str, ...]
    q: float | None
    value: float | None
    basis: Basis
    interval: Interval | None = None
    note: str | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "statistic": self.statistic,
            "columns": list(self.columns),
            "q": self.q,
            "value": _shortened(self.value),
            "interval": None if self.interval is None else [_shortened(e) for e in self.interval],
            "basis": self.basis,
            "note": self.note,
        }


@dataclass(frozen=True, slots=True)
class Statement:
    """`unit`: what one privacy unit is. Each interval holds by itself with `CONFIDENCE`."""

    unit: Literal["rows", "entities"]
    rows: int
    columns: tuple[StatedDistance, ...]
    pairs: tuple[StatedDistance, ...]
    numbers: tuple[StatedNumber, ...]
    notes: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        return {
            "confidence": CONFIDENCE,
            "unit": self.unit,
            "rows": self.rows,
            "rules": dict(RULES),
            "columns": [{"column": each.columns[0], **each.to_json()} for each in self.columns],
            "pairs": [{"columns": list(each.columns), **each.to_json()} for each in self.pairs],
            "numbers": [each.to_json() for each in self.numbers],
            "notes": list(self.notes),
        }


def _rounded(value: float | None) -> float | None:
    """Four digits after the point: what is stated is not known better."""
    return None if value is None else round(float(value), 4)


def _shortened(value: float | None) -> float | None:
    """Eight significant digits, so that no rounding of a sum shows."""
    return None if value is None else float(f"{value:.8g}")

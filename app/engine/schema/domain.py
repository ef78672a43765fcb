"""Reading the domain of a column: scale, special values, undeclared values, bins."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, cast

from app.engine.schema.column import MOST_CELLS, QuantileBins, Undeclared
from app.engine.schema.problems import ProblemLog
from app.engine.schema.scalars import ValueReader
from app.engine.schema.scale import MOST_CODES, Categories, Linear, Scale, default_step
from app.engine.schema.values import TypeName, Value, tick, to_wire

# Limits on what a dictionary may list, so that reading one stays within a request's memory.
MOST_BINS_LISTED = 100_000
MOST_SPECIAL = 1000
# What one step of a type is; numbers have no unit.
_UNITS = {"date": "days", "datetime": "seconds", "time": "seconds", "year": "years"}
_CLOCK_STEPS = (60, 3600, 86_400)


def wide_enough_step(kind: TypeName, minimum: Decimal, maximum: Decimal) -> Decimal:
    """A round step with which a range has few enough points: a power of ten, or a clock's unit."""
    length = maximum - minimum
    for step in _CLOCK_STEPS if kind in ("datetime", "time") else ():
        if length // step < MOST_CODES:
            return Decimal(step)
    return Decimal(10) ** ((length / MOST_CODES).adjusted() + 1)


def _spacing(kind: TypeName, step: Decimal) -> str:
    unit = _UNITS.get(kind)
    return f"{to_wire(step)} {unit}" if unit else str(to_wire(step))


@dataclass(frozen=True)
class DomainReader:
    """Reads the domain keys of a field. A wrong key is logged and keeps its default.

    `limits` is the field's `constraints` object.
    """

    wire: Mapping[str, Any]
    limits: Mapping[str, Any]
    values: ValueReader

    @property
    def kind(self) -> TypeName:
        return self.values.kind

    @property
    def log(self) -> ProblemLog:
        return self.values.log

    def scale(self) -> Scale | None:
        limits = self.limits
        if self.kind == "boolean":
            for key in ("enum", "minimum", "maximum"):
                if key in limits:
                    self.log.add(
                        "a boolean is false or true", f"leave `{key}` out", "constraints", key
                    )
            return Categories((False, True))
        if "enum" in limits:
            return self._categories()
        return self._range()

    def _categories(self) -> Scale | None:
        for key in ("minimum", "maximum"):
            if key in self.limits:
                self.log.add(
                    "`enum` already lists every value", f"leave `{key}` out", "constraints", key
                )
        if "bins" in self.wire:
            self.log.add("each category already has a cell of its own", "leave `bins` out", "bins")
        values = self.values.values(self.limits["enum"], "constraints", "enum")
        return None if values is None else Categories(tuple(values))

    def _range(self) -> Scale | None:
        ends = self._ends()
        step = self._step()
        if ends is None:
            return None
        minimum, maximum = ends
        if maximum < minimum:
            self.log.add(
                "the maximum lies below the minimum", "swap them", "constraints", "maximum"
            )
            return None
        declared = step is not None
        if step is None:
            is_number = self.kind == "number"
            step = default_step(minimum, maximum) if is_number else Decimal(1)
        if (maximum - minimum) // step >= MOST_CODES:
            enough = wide_enough_step(self.kind, minimum, maximum)
            self.log.add(
                f"the range has more than 2^32 - 1 points, {_spacing(self.kind, step)} apart",
                f'narrow it, or declare a larger "step", such as {to_wire(enough)}: values are then'
                f" kept as the nearest of points {_spacing(self.kind, enough)} apart",
                "constraints",
                "maximum",
            )
            return None
        return Linear(self.kind, minimum, maximum, step, declared)

    def _ends(self) -> tuple[Decimal, Decimal] | None:
        ends: list[Decimal] = []
        # Only times have natural ends. All other ranges are declared, so that they are public.
        for key, natural in (("minimum", 0), ("maximum", 86_399)):
            if key in self.limits:
                value = self.values.value(self.limits[key], "constraints", key)
                ends += [] if value is None else [tick(value)]
            elif self.kind == "time":
                ends.append(Decimal(natural))
            else:
                self.log.add(
                    f"a column of type {self.kind} needs a public {key}",
                    "give `minimum` and `maximum`, or list its values in `enum`",
                    "constraints",
                    key,
                )
        return (ends[0], ends[1]) if len(ends) == 2 else None

    def _step(self) -> Decimal | None:
        if "step" not in self.wire:
            return None
        kind: TypeName = "number" if self.kind == "number" else "integer"
        step = ValueReader(kind, (), self.log).value(self.wire["step"], "step")
        if step is not None and tick(step) <= 0:
            unit = _UNITS.get(self.kind)
            self.log.add(
                "`step` must be positive",
                "give the distance between two values" + (f", in {unit}" if unit else ""),
                "step",
            )
            return None
        return None if step is None else tick(step)

    def treatments(self, scale: Scale, nullable: bool) -> dict[str, Any]:
        other = None
        if self.wire.get("other") is not None:
            other = self.values.value(self.wire["other"], "other")
        return {
            "special": self._special(scale),
            "other": other,
            "undeclared": self._undeclared(scale, nullable),
            "bins": self._bins(scale),
        }

    def _special(self, scale: Scale) -> tuple[Value, ...]:
        if "special" not in self.wire:
            return ()
        if not isinstance(scale, Linear):
            self.log.add(
                "each category already has a cell of its own", "leave `special` out", "special"
            )
            return ()
        return self.values.values(self.wire["special"], "special", most=MOST_SPECIAL) or ()

    def _undeclared(self, scale: Scale, nullable: bool) -> Undeclared:
        has_other = self.wire.get("other") is not None
        choice = self.wire.get("undeclared", "other" if has_other else "reject")
        problem = None
        if choice not in ("other", "null", "clip", "reject"):
            problem = ("unknown treatment", "use other, null, clip or reject")
        elif choice == "other" and not has_other:
            problem = (
                "undeclared values cannot become `other`: it is not declared",
                "declare `other`",
            )
        elif choice == "null" and not nullable:
            problem = (
                "a required column has no null",
                'choose another treatment, or "required": false',
            )
        elif choice == "clip" and not isinstance(scale, Linear):
            problem = ("values can be clipped only to a range", "use other, null or reject")
        if problem:
            self.log.add(*problem, "undeclared")
            return "reject"
        return cast(Undeclared, choice)

    def _bins(self, scale: Scale) -> int | tuple[Value, ...] | QuantileBins | None:
        raw = self.wire.get("bins")
        if raw is None or not isinstance(scale, Linear):
            if raw is not None and self.kind == "boolean":
                self.log.add("a boolean has a cell for each value", "leave `bins` out", "bins")
            return None
        if isinstance(raw, list):
            return self._edges(raw, scale)
        if raw == "quantiles" or isinstance(raw, Mapping):
            return self._quantiles(raw)
        if not isinstance(raw, int) or isinstance(raw, bool) or not 1 <= raw <= MOST_CELLS:
            self.log.add(
                f'`bins` is a count from 1 to {MOST_CELLS}, a list of edges, or "quantiles"',
                "write one of the three",
                "bins",
            )
            return None
        return raw

    def _quantiles(self, raw: Any) -> QuantileBins | None:
        if raw == "quantiles":
            return QuantileBins()
        count = raw.get("quantiles")
        try:
            if set(raw) != {"quantiles"} or type(count) is not int:
                raise ValueError("the number of quantile bins must be a whole number")
            return QuantileBins(count)
        except ValueError as error:
            self.log.add(str(error), 'write {"quantiles": 20}, or "quantiles"', "bins")
            return None

    def _edges(self, raw: list[Any], scale: Linear) -> tuple[Value, ...] | None:
        if not raw or len(raw) > MOST_BINS_LISTED:
            self.log.add(
                f"expected 1 to {MOST_BINS_LISTED} edges",
                "give fewer edges, or a number of bins",
                "bins",
            )
            return None
        values = [self.values.value(edge, "bins", i) for i, edge in enumerate(raw)]
        edges = [value for value in values if value is not None]
        if len(edges) != len(raw):
            return None
        places = [tick(edge) for edge in edges]
        for index, place in enumerate(places):
            if not scale.minimum <= place <= scale.maximum:
                self.log.add(
                    "an edge must lie between minimum and maximum",
                    "correct the edge",
                    "bins",
                    index,
                )
            if index and place <= places[index - 1]:
                self.log.add(
                    "edges must increase strictly", "sort them and remove duplicates", "bins", index
                )
        return tuple(edges)

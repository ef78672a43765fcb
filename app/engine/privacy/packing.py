"""The parts of questions on the wire: groupings and arrays travel once, beside the JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from app.engine.grouping import Grouping
from app.engine.privacy.declared import (
    EntityFunction,
    FeatureClasses,
    RowNumber,
    function_from_json,
)
from app.engine.privacy.queries import (
    Candidate,
    Contribution,
    Count,
    GridReference,
    Keys,
    Parts,
    Quantile,
    Query,
    QuestionRefused,
    Rule,
    Sum,
    TupleCount,
    TupleNumber,
    Tuples,
)
from app.engine.privacy.query_fields import Fields, all_integers, integer, number, one_of, text
from app.engine.privacy.references import Reference, narrowed_reference, on_grid
from app.engine.privacy.wire import FrameError, narrowed

T = TypeVar("T")
MOST_COLUMNS = 4096
_MOST_GROUPED = 2**20
_MOST_GROUPED_TOGETHER = 2**22
_COUNT = {"columns", "groupings", "rule", "limit", "norm"}
_RULES: tuple[Rule, ...] = ("rows", "distinct", "one", "clipped")


@dataclass
class Packing:
    """Collects the groupings and arrays of a question; equal groupings travel once."""

    groupings: list[dict[str, Any]] = field(default_factory=list)
    arrays: list[NDArray[Any]] = field(default_factory=list)
    _numbers: dict[Grouping, int] = field(default_factory=dict)
    _vectors: dict[tuple[tuple[int, ...], bytes], int] = field(default_factory=dict)

    def query(self, query: Query) -> dict[str, Any]:
        match query:
            case Count():
                return self.count(query)
            case Sum():
                return {
                    "sum": query.value,
                    "low": float(query.low),
                    "high": float(query.high),
                    **self._cells(query.columns, query.groupings),
                }
            case TupleCount():
                return {"tuples": self._tuples(query.tuples), "limit": query.limit}

    def count(self, count: Count) -> dict[str, Any]:
        contribution = count.contribution
        wire = {
            **self._cells(count.columns, count.groupings),
            "rule": contribution.rule,
            "limit": contribution.limit,
            "norm": None if contribution.norm is None else float(contribution.norm),
        }
        if count.function is not None:
            wire["function"] = self._function(count.function)
        return wire

    def quantile(self, query: Quantile) -> dict[str, Any]:
        wire: dict[str, Any] = {"q": float(query.q), "grid": len(self.arrays)}
        self.arrays.append(np.array(query.grid, dtype=np.float64))
        match query.of:
            case RowNumber():
                return wire | {"of": {"rows": query.of.most}}
            case TupleNumber():
                return wire | {"of": {"tuples": self._tuples(query.of.tuples)}}
            case column if query.regular_only:
                return wire | {"of": {"regular": column}}
            case column:
                return wire | {"of": {"column": column}}

    def keys(self, query: Keys) -> dict[str, Any]:
        return {**self._cells(query.columns, query.groupings), "limit": query.limit}

    def candidate(self, candidate: Candidate) -> dict[str, Any]:
        return {
            "count": self.count(candidate.count),
            "reference": self._reference(candidate.reference),
            "weight": float(candidate.weight),
            "bias": float(candidate.bias),
        }

    def _reference(self, reference: Reference) -> dict[str, Any]:
        """A whole array travels as integers of its grid; equal vectors travel once."""
        if not isinstance(reference, GridReference) and len(reference) == 1:
            reference = on_grid(reference[0])
        if isinstance(reference, GridReference):
            reference = narrowed_reference(reference)
            self.arrays += [reference.steps, narrowed(reference.apart)]
            return {"cells": len(self.arrays) - 2, "apart": len(self.arrays) - 1}
        return {"factors": [self._vector(_as_float(factor)) for factor in reference]}

    def _vector(self, vector: NDArray[np.float64]) -> int:
        number = self._vectors.setdefault((vector.shape, vector.tobytes()), len(self.arrays))
        if number == len(self.arrays):
            self.arrays.append(vector)
        return number

    def _cells(self, columns: Sequence[str], groupings: Mapping[str, Grouping]) -> dict[str, Any]:
        numbers = {name: self._grouping(grouping) for name, grouping in groupings.items()}
        return {"columns": list(columns), "groupings": numbers}

    def _tuples(self, tuples: Tuples) -> dict[str, Any]:
        self.arrays.append(tuples.items)
        return {
            **self._cells(tuples.columns, tuples.groupings),
            "items": len(self.arrays) - 1,
            "parts": {name: _parts_to_wire(parts) for name, parts in tuples.parts.items()},
        }

    def _function(self, function: EntityFunction) -> dict[str, Any]:
        wire = function.to_json()
        if isinstance(function, FeatureClasses):
            for feature, each in zip(function.features, wire["features"], strict=True):
                if feature.grouping is not None:
                    each["grouping"] = self._grouping(feature.grouping)
        return wire

    def _grouping(self, grouping: Grouping) -> int:
        number = self._numbers.get(grouping)
        if number is None:
            number = self._numbers[grouping] = len(self.groupings)
            self.groupings.append(grouping.to_json())
        return number


def _as_float(factor: Any) -> NDArray[np.float64]:
    array = np.asarray(factor)
    if array.dtype.kind not in "fiu":
        raise QuestionRefused("a reference holds numbers")
    return array.astype(np.float64)


@dataclass(frozen=True)
class Unpacking:
    groupings: tuple[Grouping, ...]
    arrays: tuple[NDArray[Any], ...]

    @classmethod
    def of(cls, wire: Fields, arrays: tuple[NDArray[Any], ...]) -> Unpacking:
        listed = wire.items("groupings")
        # A short text can stand for a long grouping: the sum is bounded, not only each.
        stated = [each.get("regular", 0) for each in listed if isinstance(each, dict)]
        if sum(map(integer, stated)) > _MOST_GROUPED_TOGETHER:
            raise QuestionRefused("the groupings have too many cells")
        return cls(tuple(_grouping(each) for each in listed), arrays)

    def query(self, value: Any) -> Query:
        if isinstance(value, dict) and "sum" in value:
            wire = Fields(value, {"sum", "low", "high", "columns", "groupings"})
            name, low, high = wire.text("sum"), wire.number("low"), wire.number("high")
            columns, groupings = self._cells(wire)
            return allowed(lambda: Sum(name, low, high, columns, groupings))
        if isinstance(value, dict) and "tuples" in value:
            wire = Fields(value, {"tuples", "limit"})
            tuples, limit = self._tuples(wire.value("tuples")), wire.integer("limit")
            return allowed(lambda: TupleCount(tuples, limit))
        return self.count(value)

    def count(self, value: Any) -> Count:
        has_function = isinstance(value, dict) and "function" in value
        wire = Fields(value, _COUNT | {"function"} if has_function else _COUNT)
        columns, groupings = self._cells(wire)
        function = self._function(wire.mapping("function")) if has_function else None
        return Count(columns, groupings, _contribution(wire), function)

    def quantile(self, value: Any) -> Quantile:
        wire = Fields(value, {"q", "grid", "of"})
        q, grid = wire.number("q"), self._pick(self.arrays, wire.value("grid"))
        if grid.ndim != 1 or grid.dtype != np.float64:
            raise FrameError("a grid is a vector of 64-bit floats")
        numbers = wire.mapping("of")
        points, of = tuple(grid.tolist()), self._numbers(numbers)
        return allowed(lambda: Quantile(of, q, points, regular_only="regular" in numbers))

    def keys(self, value: Any) -> Keys:
        wire = Fields(value, {"columns", "groupings", "limit"})
        columns, groupings = self._cells(wire)
        limit = wire.integer("limit")
        return allowed(lambda: Keys(columns, groupings, limit))

    def _numbers(self, value: dict[str, Any]) -> RowNumber | TupleNumber | str:
        if "rows" in value:
            most = Fields(value, {"rows"}).integer("rows")
            return allowed(lambda: RowNumber(most))
        if "tuples" in value:
            return TupleNumber(self._tuples(Fields(value, {"tuples"}).value("tuples")))
        key = "regular" if "regular" in value else "column"
        return Fields(value, {key}).text(key)

    def _cells(self, wire: Fields) -> tuple[tuple[str, ...], dict[str, Grouping]]:
        columns = tuple(text(name) for name in wire.items("columns"))
        if len(columns) > MOST_COLUMNS:
            raise FrameError("a query names too many columns")
        return columns, {
            text(name): self._pick(self.groupings, number)
            for name, number in wire.mapping("groupings").items()
        }

    def _tuples(self, value: Any) -> Tuples:
        wire = Fields(value, {"columns", "groupings", "items", "parts"})
        columns, groupings = self._cells(wire)
        parts = {text(name): _parts_from_wire(each) for name, each in wire.mapping("parts").items()}
        items = self._pick(self.arrays, wire.value("items"))
        if items.dtype != np.int32:
            raise FrameError("tuples are 32-bit integers")
        return allowed(lambda: Tuples(columns, groupings, items, parts))

    def _function(self, value: dict[str, Any]) -> EntityFunction:
        return allowed(
            lambda: function_from_json(value, lambda number: self._pick(self.groupings, number))
        )

    def candidate(self, value: Any) -> Candidate:
        wire = Fields(value, {"count", "reference", "weight", "bias"})
        return Candidate(
            self.count(wire.value("count")),
            self._reference(wire.mapping("reference")),
            wire.number("weight"),
            wire.number("bias"),
        )

    def _reference(self, value: dict[str, Any]) -> Reference:
        if "cells" in value:
            wire = Fields(value, {"cells", "apart"})
            cells = self._pick(self.arrays, wire.value("cells"))
            apart = self._pick(self.arrays, wire.value("apart"))
            return allowed(lambda: GridReference(cells, apart))
        numbers = Fields(value, {"factors"}).items("factors")
        if len(numbers) > MOST_COLUMNS:
            raise FrameError("a reference has too many factors")
        factors = tuple(self._pick(self.arrays, number) for number in numbers)
        if any(factor.dtype != np.float64 for factor in factors):
            raise FrameError("a reference holds 64-bit floats")
        return factors

    @staticmethod
    def _pick(items: Sequence[T], number: Any) -> T:
        index = integer(number)
        if not 0 <= index < len(items):
            raise FrameError("a number points outside the frame")
        return items[index]


def allowed(make: Callable[[], T]) -> T:
    """What `make` makes; a `QuestionRefused` of the same words where it raises `ValueError`."""
    try:
        return make()
    except ValueError as error:
        raise QuestionRefused(str(error)) from None


def _parts_to_wire(parts: Parts) -> dict[str, Any]:
    return {
        "names": list(parts.names),
        "sizes": [len(numbers) for numbers in parts.of_cell],
        "numbers": [number for numbers in parts.of_cell for number in numbers],
    }


def _parts_from_wire(value: Any) -> Parts:
    wire = Fields(value, {"names", "sizes", "numbers"})
    names = tuple(text(name) for name in wire.items("names"))
    numbers = iter([integer(number) for number in wire.items("numbers")])
    sizes = [integer(size) for size in wire.items("sizes")]
    of_cell = tuple(tuple(islice(numbers, max(size, 0))) for size in sizes)
    return allowed(lambda: Parts(names, of_cell))


def _contribution(wire: Fields) -> Contribution:
    rule = one_of(_RULES, wire.text("rule"))
    limit = wire.value("limit")
    norm = wire.value("norm")
    limit = None if limit is None else integer(limit)
    norm = None if norm is None else number(norm)
    return allowed(lambda: Contribution(rule, limit, norm))


def _grouping(value: Any) -> Grouping:
    known = {"tail", "regular", "edges", "merge"}
    if not isinstance(value, dict) or not {"tail"} < set(value) <= known:
        raise FrameError("this is no grouping")
    for name in ("edges", "merge"):
        if name in value and not all_integers(value[name]):
            raise FrameError("this is no grouping")
    for name in ("tail", "regular"):
        if name in value and not 0 <= integer(value[name]) <= _MOST_GROUPED:
            raise QuestionRefused("a grouping has too many cells")
    try:
        return Grouping.from_json(value)
    except (ValueError, KeyError, OverflowError):
        raise QuestionRefused("a grouping is malformed") from None

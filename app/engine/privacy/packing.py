"""What questions point to on the wire: groupings and arrays travel once, beside the JSON.

The JSON names a grouping by its number in the header's list and an array by its number in the
frame. A `Packing` is the context in which a question is written, an `Unpacking` that in which
it is read: their methods are those that the forms name (see `forms.in_frame`). Numbers that
point nowhere and arrays of a wrong type are a `FrameError`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, NotRequired, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, Tag

from app.engine.grouping import Grouping
from app.engine.privacy.declared import (
    EntityFunction,
    FeatureClasses,
    RowNumber,
    function_from_json,
)
from app.engine.privacy.forms import Items, Reader, Shape, Whole, discriminated_by
from app.engine.privacy.queries import (
    FactorsForm,
    GridForm,
    GridReference,
    Quantile,
    QuantileForm,
    QuestionRefused,
    Reference,
    TupleNumber,
)
from app.engine.privacy.references import narrowed_reference, numbers, on_grid
from app.engine.privacy.wire import FrameError, narrowed

T = TypeVar("T")
# A cell for each of a million codes, and four such columns: some 100 MB of Python's integers.
_MOST_GROUPED = 2**20
_MOST_GROUPED_TOGETHER = 2**22
# Half of what int64 holds, so that the differences of any two codes do too.
_Code = Annotated[int, Field(gt=-(2**62), lt=2**62)]


class _TailForm(Shape):
    tail: Whole
    merge: NotRequired[Items[_Code]]


class _RegularGroupingForm(_TailForm):
    """A cell for each of `regular` codes."""

    regular: Whole


class _CutGroupingForm(_TailForm):
    edges: Items[_Code]


GroupingForm = Annotated[
    Annotated[_RegularGroupingForm, Tag("regular")] | Annotated[_CutGroupingForm, Tag("edges")],
    discriminated_by("regular", "edges"),
]
_GROUPINGS = Reader[Sequence[Any]](Items[GroupingForm])
_TUPLES = Reader[TupleNumber](TupleNumber)


@dataclass
class Packing:
    """Collects the groupings and arrays of a question; equal groupings travel once."""

    groupings: list[Any] = field(default_factory=list)
    arrays: list[NDArray[Any]] = field(default_factory=list)
    _numbers: dict[Any, int] = field(default_factory=dict)
    # Thousands of candidates share few objects, and an id is found sooner than a hash is made.
    # The question outlives its packing, so that no id comes twice.
    _seen: dict[int, int] = field(default_factory=dict)

    def grouping(self, grouping: Grouping) -> int:
        number = self._seen.get(id(grouping))
        if number is None:
            number = self._numbers.setdefault(grouping, len(self.groupings))
            self._seen[id(grouping)] = number
            if number == len(self.groupings):
                self.groupings.append(grouping.to_json())
        return number

    def items(self, items: NDArray[np.int32]) -> int:
        self.arrays.append(items)
        return len(self.arrays) - 1

    def reference(self, reference: Reference) -> GridForm | FactorsForm:
        """A whole array travels as integers of its grid; equal vectors travel once."""
        if not isinstance(reference, GridReference) and len(reference) == 1:
            reference = on_grid(reference[0])
        if isinstance(reference, GridReference):
            reference = narrowed_reference(reference)
            self.arrays += [reference.steps, narrowed(reference.apart)]
            return {"cells": len(self.arrays) - 2, "apart": len(self.arrays) - 1}
        return {"factors": tuple(map(self._vector, reference))}

    def _vector(self, factor: NDArray[np.float64]) -> int:
        number = self._seen.get(id(factor))
        if number is None:
            vector = numbers(factor)
            number = self._numbers.setdefault((vector.shape, vector.tobytes()), len(self.arrays))
            self._seen[id(factor)] = number
            if number == len(self.arrays):
                self.arrays.append(vector)
        return number

    def function(self, function: EntityFunction | None) -> dict[str, Any] | None:
        if function is None:
            return None
        wire = function.to_json()
        if isinstance(function, FeatureClasses):
            for feature, each in zip(function.features, wire["features"], strict=True):
                if feature.grouping is not None:
                    each["grouping"] = self.grouping(feature.grouping)
        return wire

    def quantile(self, query: Quantile) -> dict[str, Any]:
        grid = len(self.arrays)
        self.arrays.append(np.array(query.grid, dtype=np.float64))
        of: Any
        match query.of:
            case RowNumber():
                of = {"rows": query.of.most}
            case TupleNumber():
                of = _TUPLES.write(query.of, self)
            case column:
                of = {"regular" if query.regular_only else "column": column}
        return {"q": float(query.q), "grid": grid, "of": of}


@dataclass(frozen=True)
class Unpacking:
    """Gives what the parts of a question name by number."""

    groupings: tuple[Grouping, ...]
    arrays: tuple[NDArray[Any], ...]

    @classmethod
    def of(cls, groupings: Any, arrays: tuple[NDArray[Any], ...]) -> Unpacking:
        forms = _GROUPINGS(groupings)
        # A short text can stand for a long grouping. So all are bounded before any is made, each
        # and together; a negative number among them would otherwise make room for others.
        for form in forms:
            if not all(0 <= form.get(name, 0) <= _MOST_GROUPED for name in ("tail", "regular")):
                raise QuestionRefused("a grouping has too many cells")
        if sum(form.get("regular", 0) for form in forms) > _MOST_GROUPED_TOGETHER:
            raise QuestionRefused("the groupings have too many cells")
        return cls(tuple(map(_grouping, forms)), arrays)

    def grouping(self, number: int) -> Grouping:
        return _pick(self.groupings, number)

    def items(self, number: int) -> NDArray[np.int32]:
        items = _pick(self.arrays, number)
        if items.dtype != np.int32:
            raise FrameError("tuples are 32-bit integers")
        return items

    def reference(self, form: GridForm | FactorsForm) -> Reference:
        if "cells" in form:
            return GridReference(
                _pick(self.arrays, form["cells"]), _pick(self.arrays, form["apart"])
            )
        factors = tuple(_pick(self.arrays, number) for number in form["factors"])
        if any(factor.dtype != np.float64 for factor in factors):
            raise FrameError("a reference holds 64-bit floats")
        return factors

    def function(self, form: dict[str, Any]) -> EntityFunction:
        return function_from_json(form, self._numbered_grouping)

    def _numbered_grouping(self, number: Any) -> Grouping:
        if type(number) is not int:
            raise FrameError("a function names its groupings by number")
        return self.grouping(number)

    def quantile(self, form: QuantileForm) -> Quantile:
        grid, of = _pick(self.arrays, form["grid"]), form["of"]
        if grid.ndim != 1 or grid.dtype != np.float64:
            raise FrameError("a grid is a vector of 64-bit floats")
        points = tuple(grid.tolist())
        if isinstance(of, RowNumber | TupleNumber):
            return Quantile(of, form["q"], points)
        if "regular" in of:
            return Quantile(of["regular"], form["q"], points, regular_only=True)
        return Quantile(of["column"], form["q"], points)


def _pick(items: Sequence[T], number: int) -> T:
    if not 0 <= number < len(items):
        raise FrameError("a number points outside the frame")
    return items[number]


def _grouping(form: Any) -> Grouping:
    try:
        return Grouping.from_json(form)
    except ValueError:
        raise QuestionRefused("a grouping is malformed") from None

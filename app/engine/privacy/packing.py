"""The parts of questions on the wire: groupings and arrays travel once, beside the JSON.

The JSON names a grouping by its number in the header's list and an array by its number in the
frame. Decoding has two kinds of failure: what has not the form of a part is a `FrameError`, and
a part of the right form that is not allowed a `QuestionRefused`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Annotated, Any, NotRequired, TypeVar, final

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
from app.engine.privacy.forms import Form, Items, Whole, discriminated_by
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
from app.engine.privacy.references import Reference, narrowed_reference, numbers, on_grid
from app.engine.privacy.wire import FrameError, narrowed

T = TypeVar("T")
MOST_COLUMNS = 4096
_MOST_GROUPED = 2**20
_MOST_GROUPED_TOGETHER = 2**22
# Half of what int64 holds, so that the differences of any two codes do too.
_Code = Annotated[int, Field(gt=-(2**62), lt=2**62)]


class _TailForm(Form):
    tail: Whole
    merge: NotRequired[Items[_Code]]


class RegularGroupingForm(_TailForm):
    """A cell for each of `regular` codes."""

    regular: Whole


class CutGroupingForm(_TailForm):
    edges: Items[_Code]


GroupingForm = Annotated[
    Annotated[RegularGroupingForm, Tag("regular")] | Annotated[CutGroupingForm, Tag("edges")],
    discriminated_by("regular", "edges"),
]


class CellsForm(Form):
    columns: Annotated[Items[str], Field(max_length=MOST_COLUMNS)]
    groupings: dict[str, Whole]


@final
class CountForm(CellsForm):
    rule: Rule
    limit: Whole | None
    norm: float | None
    function: NotRequired[dict[str, Any]]


@final
class SumForm(CellsForm):
    sum: str
    low: float
    high: float


class PartsForm(Form):
    """`numbers` of all cells in a row, of which each cell has as many as `sizes` says."""

    names: Items[str]
    sizes: Items[Whole]
    numbers: Items[Whole]


class TuplesForm(CellsForm):
    items: Whole
    parts: dict[str, PartsForm]


@final
class TupleCountForm(Form):
    tuples: TuplesForm
    limit: Whole


QueryForm = Annotated[
    Annotated[SumForm, Tag("sum")]
    | Annotated[TupleCountForm, Tag("tuples")]
    | Annotated[CountForm, Tag("rule")],
    discriminated_by("sum", "tuples", "rule"),
]


class KeysForm(CellsForm):
    limit: Whole


@final
class NumbersOfRowsForm(Form):
    rows: Whole


@final
class NumbersOfTuplesForm(Form):
    tuples: TuplesForm


@final
class RegularValuesForm(Form):
    regular: str


@final
class ValuesOfColumnForm(Form):
    column: str


class QuantileForm(Form):
    q: float
    grid: Whole
    of: Annotated[
        Annotated[NumbersOfRowsForm, Tag("rows")]
        | Annotated[NumbersOfTuplesForm, Tag("tuples")]
        | Annotated[RegularValuesForm, Tag("regular")]
        | Annotated[ValuesOfColumnForm, Tag("column")],
        discriminated_by("rows", "tuples", "regular", "column"),
    ]


@final
class GridReferenceForm(Form):
    cells: Whole
    apart: Whole


@final
class FactorsForm(Form):
    factors: Annotated[Items[Whole], Field(max_length=MOST_COLUMNS)]


ReferenceForm = Annotated[
    Annotated[GridReferenceForm, Tag("cells")] | Annotated[FactorsForm, Tag("factors")],
    discriminated_by("cells", "factors"),
]


class CandidateForm(Form):
    count: CountForm
    reference: ReferenceForm
    weight: float
    bias: float


@dataclass
class Packing:
    """Collects the groupings and arrays of a question; equal groupings travel once."""

    groupings: list[Any] = field(default_factory=list)
    arrays: list[NDArray[Any]] = field(default_factory=list)
    _numbers: dict[Grouping, int] = field(default_factory=dict)
    _vectors: dict[tuple[tuple[int, ...], bytes], int] = field(default_factory=dict)

    def query(self, query: Query) -> CountForm | SumForm | TupleCountForm:
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

    def count(self, count: Count) -> CountForm:
        contribution = count.contribution
        cells = self._cells(count.columns, count.groupings)
        form: CountForm = {
            "columns": cells["columns"],
            "groupings": cells["groupings"],
            "rule": contribution.rule,
            "limit": contribution.limit,
            "norm": None if contribution.norm is None else float(contribution.norm),
        }
        if count.function is not None:
            form["function"] = self._function(count.function)
        return form

    def quantile(self, query: Quantile) -> QuantileForm:
        grid = len(self.arrays)
        self.arrays.append(np.array(query.grid, dtype=np.float64))
        return {"q": float(query.q), "grid": grid, "of": self._numbers_of(query)}

    def _numbers_of(
        self, query: Quantile
    ) -> NumbersOfRowsForm | NumbersOfTuplesForm | RegularValuesForm | ValuesOfColumnForm:
        match query.of:
            case RowNumber():
                return {"rows": query.of.most}
            case TupleNumber():
                return {"tuples": self._tuples(query.of.tuples)}
            case column if query.regular_only:
                return {"regular": column}
            case column:
                return {"column": column}

    def keys(self, query: Keys) -> KeysForm:
        return {**self._cells(query.columns, query.groupings), "limit": query.limit}

    def candidate(self, candidate: Candidate) -> CandidateForm:
        return {
            "count": self.count(candidate.count),
            "reference": self._reference(candidate.reference),
            "weight": float(candidate.weight),
            "bias": float(candidate.bias),
        }

    def _reference(self, reference: Reference) -> GridReferenceForm | FactorsForm:
        """A whole array travels as integers of its grid; equal vectors travel once."""
        if not isinstance(reference, GridReference) and len(reference) == 1:
            reference = on_grid(reference[0])
        if isinstance(reference, GridReference):
            reference = narrowed_reference(reference)
            self.arrays += [reference.steps, narrowed(reference.apart)]
            return {"cells": len(self.arrays) - 2, "apart": len(self.arrays) - 1}
        return {"factors": [self._vector(numbers(factor)) for factor in reference]}

    def _vector(self, vector: NDArray[np.float64]) -> int:
        number = self._vectors.setdefault((vector.shape, vector.tobytes()), len(self.arrays))
        if number == len(self.arrays):
            self.arrays.append(vector)
        return number

    def _cells(self, columns: Sequence[str], groupings: Mapping[str, Grouping]) -> CellsForm:
        places = {name: self._grouping(grouping) for name, grouping in groupings.items()}
        return {"columns": list(columns), "groupings": places}

    def _tuples(self, tuples: Tuples) -> TuplesForm:
        self.arrays.append(tuples.items)
        return {
            "items": len(self.arrays) - 1,
            **self._cells(tuples.columns, tuples.groupings),
            "parts": {name: _parts_form(parts) for name, parts in tuples.parts.items()},
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


@dataclass(frozen=True)
class Unpacking:
    """Makes the parts of a question from their forms, and what these name by number."""

    groupings: tuple[Grouping, ...]
    arrays: tuple[NDArray[Any], ...]
    _contributions: dict[tuple[Rule, int | None, float | None], Contribution] = field(
        default_factory=dict
    )

    @classmethod
    def of(cls, groupings: Sequence[Any], arrays: tuple[NDArray[Any], ...]) -> Unpacking:
        # A short text can stand for a long grouping. So all are bounded before any is made, each
        # and together; a negative number among them would otherwise make room for others.
        for form in groupings:
            if not all(0 <= form.get(name, 0) <= _MOST_GROUPED for name in ("tail", "regular")):
                raise QuestionRefused("a grouping has too many cells")
        if sum(form.get("regular", 0) for form in groupings) > _MOST_GROUPED_TOGETHER:
            raise QuestionRefused("the groupings have too many cells")
        return cls(tuple(map(_grouping, groupings)), arrays)

    def query(self, form: CountForm | SumForm | TupleCountForm) -> Query:
        if "sum" in form:
            columns, groupings = self._cells(form)
            name, low, high = form["sum"], form["low"], form["high"]
            return allowed(lambda: Sum(name, low, high, columns, groupings))
        if "tuples" in form:
            tuples, limit = self._tuples(form["tuples"]), form["limit"]
            return allowed(lambda: TupleCount(tuples, limit))
        return self.count(form)

    def count(self, form: CountForm) -> Count:
        function = self._function(form["function"]) if "function" in form else None
        contribution = self._contribution((form["rule"], form["limit"], form["norm"]))
        return Count(*self._cells(form), contribution, function)

    def _contribution(self, fields: tuple[Rule, int | None, float | None]) -> Contribution:
        # Thousands of candidates have the same few, and checking each takes longer than looking.
        if fields not in self._contributions:
            self._contributions[fields] = allowed(lambda: Contribution(*fields))
        return self._contributions[fields]

    def quantile(self, form: QuantileForm) -> Quantile:
        q, of, grid = form["q"], form["of"], self._pick(self.arrays, form["grid"])
        if grid.ndim != 1 or grid.dtype != np.float64:
            raise FrameError("a grid is a vector of 64-bit floats")
        points = tuple(grid.tolist())
        if "regular" in of:
            column = of["regular"]
            return allowed(lambda: Quantile(column, q, points, regular_only=True))
        return allowed(lambda: Quantile(self._numbers_of(of), q, points))

    def _numbers_of(
        self, form: NumbersOfRowsForm | NumbersOfTuplesForm | ValuesOfColumnForm
    ) -> RowNumber | TupleNumber | str:
        if "rows" in form:
            return RowNumber(form["rows"])
        if "tuples" in form:
            return TupleNumber(self._tuples(form["tuples"]))
        return form["column"]

    def keys(self, form: KeysForm) -> Keys:
        return allowed(lambda: Keys(*self._cells(form), form["limit"]))

    def candidate(self, form: CandidateForm) -> Candidate:
        reference = self._reference(form["reference"])
        return Candidate(self.count(form["count"]), reference, form["weight"], form["bias"])

    def _reference(self, form: GridReferenceForm | FactorsForm) -> Reference:
        if "cells" in form:
            cells = self._pick(self.arrays, form["cells"])
            apart = self._pick(self.arrays, form["apart"])
            return allowed(lambda: GridReference(cells, apart))
        factors = tuple(self._pick(self.arrays, number) for number in form["factors"])
        if any(factor.dtype != np.float64 for factor in factors):
            raise FrameError("a reference holds 64-bit floats")
        return factors

    def _cells(self, form: CellsForm) -> tuple[tuple[str, ...], dict[str, Grouping]]:
        return tuple(form["columns"]), {
            name: self._pick(self.groupings, number) for name, number in form["groupings"].items()
        }

    def _tuples(self, form: TuplesForm) -> Tuples:
        parts = {name: _parts(each) for name, each in form["parts"].items()}
        items = self._pick(self.arrays, form["items"])
        if items.dtype != np.int32:
            raise FrameError("tuples are 32-bit integers")
        return allowed(lambda: Tuples(*self._cells(form), items, parts))

    def _function(self, form: dict[str, Any]) -> EntityFunction:
        return allowed(lambda: function_from_json(form, self._numbered_grouping))

    def _numbered_grouping(self, number: Any) -> Grouping:
        if type(number) is not int:
            raise FrameError("a function names its groupings by number")
        return self._pick(self.groupings, number)

    @staticmethod
    def _pick(items: Sequence[T], number: int) -> T:
        if not 0 <= number < len(items):
            raise FrameError("a number points outside the frame")
        return items[number]


def allowed(make: Callable[[], T]) -> T:
    """What `make` makes; a `QuestionRefused` of the same words where it raises `ValueError`."""
    try:
        return make()
    except ValueError as error:
        raise QuestionRefused(str(error)) from None


def _parts_form(parts: Parts) -> PartsForm:
    return {
        "names": list(parts.names),
        "sizes": [len(each) for each in parts.of_cell],
        "numbers": [number for each in parts.of_cell for number in each],
    }


def _parts(form: PartsForm) -> Parts:
    rest = iter(form["numbers"])
    of_cell = tuple(tuple(islice(rest, max(size, 0))) for size in form["sizes"])
    return allowed(lambda: Parts(tuple(form["names"]), of_cell))


def _grouping(form: Any) -> Grouping:
    try:
        return Grouping.from_json(form)
    except ValueError:
        raise QuestionRefused("a grouping is malformed") from None

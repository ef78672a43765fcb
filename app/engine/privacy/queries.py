"""The questions that a session answers and the answers that it gives: plain, checked values.

A question names columns, how their stored codes are grouped into cells, and how much one
privacy unit may contribute. Nothing here touches private rows or draws noise; both ends of
the pipe import it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain, islice, pairwise
from typing import Annotated, Any, ClassVar, Literal, final

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, Tag

from app.engine.grouping import Grouping
from app.engine.privacy.declared import EntityFunction, RowNumber
from app.engine.privacy.forms import (
    Elsewhere,
    Form,
    Items,
    Shape,
    Whole,
    discriminated_by,
    in_frame,
    wired,
)

# The grid, in counts, on which distances are measured and noised: 1 / `sensitivity.GRID`.
SCORE_STEP = 1 / 1024

Rule = Literal["rows", "distinct", "one", "clipped"]
Noise = Literal["gaussian", "laplace"]
# More than a dictionary may have.
MOST_COLUMNS = 4096
Columns = Annotated[Items[str], Field(max_length=MOST_COLUMNS)]
Groupings = Mapping[str, Annotated[Grouping, in_frame(Whole, "grouping")]]
_L1 = Annotated[float, Field(alias="l1")]
_L2 = Annotated[float, Field(alias="l2")]


@dataclass(frozen=True, slots=True)
class Contribution(Form):
    """How much one privacy unit adds to a histogram (the table of contribution rules).

    `limit` is m of `distinct`, `norm` is c of `clipped`; other rules take neither.
    """

    rule: Rule = "rows"
    limit: Whole | None = None
    norm: float | None = None

    def __post_init__(self) -> None:
        if (self.rule == "distinct") != (self.limit is not None):
            raise ValueError("`distinct`, and only `distinct`, takes a limit")
        if (self.rule == "clipped") != (self.norm is not None):
            raise ValueError("`clipped`, and only `clipped`, takes a norm")
        if self.limit is not None and self.limit < 1:
            raise ValueError("the limit is at least 1")
        if self.norm is not None and not (math.isfinite(self.norm) and self.norm > 0):
            raise ValueError("the norm is a positive number")


@dataclass(frozen=True, slots=True)
class Count(Form):
    """One histogram over the cells of `columns`, in C order of the columns given.

    No column at all counts the unit's rows (`rows`) or the units (`one`) in a single cell.
    A column without an entry in `groupings` is grouped as its dictionary says. With a
    `function` there are no columns and the rule is `one`: each unit counts once, in the cell
    that the function gives its rows.
    """

    _may_lack: ClassVar = {"function": None}
    _inline: ClassVar = ("contribution", ("rule", "limit", "norm"))
    columns: Columns = ()
    groupings: Groupings = field(default_factory=dict)
    contribution: Contribution = Contribution()
    function: Annotated[EntityFunction | None, in_frame(dict[str, Any], "function")] = None

    @classmethod
    def of_units(cls, function: EntityFunction) -> Count:
        """How many units a declared function puts in each of its cells."""
        return cls(contribution=Contribution("one"), function=function)


@dataclass(frozen=True, slots=True)
class Sum(Form):
    """For each cell of `columns` the sum of a numeric column over the unit's rows (`rows`).

    Values are clipped to the public bounds `low` and `high` and taken on the column's grid,
    whose distance is `Measurement.step`. Rows where it is null add nothing.
    """

    value: Annotated[str, Field(alias="sum")]
    low: float
    high: float
    columns: Columns = ()
    groupings: Groupings = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low < self.high):
            raise ValueError("the bounds of a sum are finite, and the lower is below the upper")

    @property
    def contribution(self) -> Contribution:
        return Contribution("rows")


@dataclass(frozen=True, slots=True)
class Parts:
    """The cells of a column as sets of public parts, such as the tags in `red;blue`.

    `of_cell` lists for each cell the numbers of its parts, rising; they are places in `names`.
    """

    names: tuple[str, ...]
    of_cell: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        if not self.names or len(set(self.names)) != len(self.names):
            raise ValueError("parts have names, each its own")
        for parts in self.of_cell:
            if any(not 0 <= part < len(self.names) for part in parts):
                raise ValueError("a cell has a part that has no name")
            if any(before >= after for before, after in pairwise(parts)):
                raise ValueError("the parts of a cell must be strictly increasing")

    @property
    def most_of_cell(self) -> int:
        """How many parts a cell has at most."""
        return max(map(len, self.of_cell), default=0)


class _PartsForm(Shape):
    """`numbers` of all cells in a row, of which each cell has as many as `sizes` says."""

    names: Items[str]
    sizes: Items[Whole]
    numbers: Items[Whole]


def _parts_of(form: _PartsForm) -> Parts:
    rest = iter(form["numbers"])
    return Parts(form["names"], tuple(tuple(islice(rest, max(n, 0))) for n in form["sizes"]))


def _parts_form(parts: Parts) -> _PartsForm:
    numbers = tuple(chain.from_iterable(parts.of_cell))
    return {"names": parts.names, "sizes": tuple(map(len, parts.of_cell)), "numbers": numbers}


@dataclass(frozen=True, eq=False)
class Tuples(Form):
    """A public list of combinations of cells, all of the same length.

    Item `offsets[i] + cell` says that `columns[i]` is in that cell, where `offsets` are the
    running sums of the columns' cells. `items` is int32, shape (tuples, length): each row
    rises strictly and no row occurs twice. A unit *holds* a tuple if one of its rows has
    all its items. A column in `parts` has an item for each part instead of each cell, and a
    row has the items of all parts of its cell.
    """

    columns: Columns
    groupings: Groupings
    items: Annotated[NDArray[np.int32], in_frame(Whole, "items")]
    parts: Mapping[str, Annotated[Parts, wired(_PartsForm, _parts_of, _parts_form)]] = field(
        default_factory=dict
    )

    def __post_init__(self) -> None:
        items = np.asarray(self.items)
        if items.ndim != 2 or not items.shape[1] or items.dtype.kind not in "iu":
            raise ValueError("tuples are rows of integers")
        object.__setattr__(self, "items", np.ascontiguousarray(items, dtype=np.int32))

    @property
    def length(self) -> int:
        return int(self.items.shape[1])

    @property
    def width(self) -> int:
        """The most items that a row can have."""
        return sum(
            self.parts[name].most_of_cell if name in self.parts else 1 for name in self.columns
        )

    def __len__(self) -> int:
        return len(self.items)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Tuples)
            and (self.columns, dict(self.groupings)) == (other.columns, dict(other.groupings))
            and dict(self.parts) == dict(other.parts)
            and np.array_equal(self.items, other.items)
        )

    def __hash__(self) -> int:
        return hash((self.columns, self.items.tobytes()))


@dataclass(frozen=True, slots=True)
class TupleCount(Form):
    """How many units hold each tuple, each counting at most `limit` of those that it holds,
    drawn uniformly without replacement."""

    tuples: Tuples
    limit: Whole

    def __post_init__(self) -> None:
        if self.limit < 1:
            raise ValueError("the limit is at least 1")

    @property
    def columns(self) -> tuple[str, ...]:
        return self.tuples.columns

    @property
    def groupings(self) -> Mapping[str, Grouping]:
        return self.tuples.groupings

    @property
    def contribution(self) -> Contribution:
        return Contribution("distinct", self.limit)


Query = Count | Sum | TupleCount
QueryForm = Annotated[
    Annotated[Sum, Tag("sum")]
    | Annotated[TupleCount, Tag("tuples")]
    | Annotated[Count, Tag("rule")],
    discriminated_by("sum", "tuples", "rule"),
]


@dataclass(frozen=True, slots=True)
class TupleNumber(Form):
    """How many of the listed tuples a unit holds: one number for each unit."""

    tuples: Tuples


@dataclass(frozen=True, slots=True)
class Quantile:
    """The `q`-quantile, as a point of the public `grid` (strictly rising).

    Of the rows or tuples of each unit (one number a unit; of `RowNumber` the cell, so that
    numbers end at `most`), or of the numbers in a column, nulls left out (one a row). With
    `regular_only` special values and `other` are left out too: what remains is of the scale.
    """

    of: RowNumber | TupleNumber | str
    q: float
    grid: tuple[float, ...]
    regular_only: bool = False

    def __post_init__(self) -> None:
        if self.regular_only and not isinstance(self.of, str):
            raise ValueError("only the values of a column can be regular")
        if not 0 <= self.q <= 1:
            raise ValueError("a quantile lies between 0 and 1")
        rises = all(before < after for before, after in pairwise(self.grid))
        if not self.grid or not rises or not all(map(math.isfinite, self.grid)):
            raise ValueError("the grid of a quantile is finite and rises strictly")


@final
class _RegularForm(Shape):
    regular: str


@final
class _ColumnForm(Shape):
    column: str


class QuantileForm(Shape):
    q: float
    grid: Whole
    of: Annotated[
        Annotated[RowNumber, Tag("rows")]
        | Annotated[TupleNumber, Tag("tuples")]
        | Annotated[_RegularForm, Tag("regular")]
        | Annotated[_ColumnForm, Tag("column")],
        discriminated_by("rows", "tuples", "regular", "column"),
    ]


@dataclass(frozen=True, slots=True)
class Keys(Form):
    """The combinations of cells that many units have, of which each enters at most `limit`."""

    columns: Columns
    groupings: Groupings = field(default_factory=dict)
    limit: Whole = 1

    def __post_init__(self) -> None:
        if not self.columns or self.limit < 1:
            raise ValueError("keys are of some column, and their limit is at least 1")

    @property
    def contribution(self) -> Contribution:
        return Contribution("distinct", self.limit)


@dataclass(frozen=True, slots=True)
class Values(Form):
    """The values of a column that many units have, of which each enters at most `limit`."""

    column: str
    limit: Whole = 1

    def __post_init__(self) -> None:
        if self.limit < 1:
            raise ValueError("the limit is at least 1")

    @property
    def contribution(self) -> Contribution:
        return Contribution("distinct", self.limit)


@dataclass(frozen=True, eq=False)
class GridReference:
    """A public reference rounded to a grid, in steps of `SCORE_STEP`.

    steps: signed integers of any type, of the count's shape. apart: signed integers, shape
    (2, n): flat places, rising strictly, and the steps that stand there instead, so that a few
    large cells do not make all the others wide. Raises `ValueError` for anything else.
    """

    steps: NDArray[np.signedinteger[Any]]
    apart: NDArray[np.signedinteger[Any]] = field(
        default_factory=lambda: np.zeros((2, 0), dtype=np.int8)
    )

    def __post_init__(self) -> None:
        if self.steps.dtype.kind != "i" or self.apart.dtype.kind != "i":
            raise ValueError("steps are signed integers")
        if self.apart.ndim != 2 or len(self.apart) != 2:
            raise ValueError("steps that stand apart come with their places")
        places = self.apart[0]
        if not (places[1:] > places[:-1]).all():
            raise ValueError("the places of a reference must be strictly increasing")
        if len(places) and not 0 <= places[0] <= places[-1] < self.steps.size:
            raise ValueError("a place of a reference lies outside it")


Reference = tuple[NDArray[np.float64], ...] | GridReference


@final
class GridForm(Shape):
    cells: Whole
    apart: Whole


@final
class FactorsForm(Shape):
    factors: Annotated[Items[Whole], Field(max_length=MOST_COLUMNS)]


_ReferenceForm = Annotated[
    Annotated[GridForm, Tag("cells")] | Annotated[FactorsForm, Tag("factors")],
    discriminated_by("cells", "factors"),
]


@dataclass(frozen=True, slots=True)
class Candidate(Form):
    """How far a count is from a public reference, to be scored or selected.

    The distance is `L1(count, reference)`, in counts, after rounding the reference to 1/1024 of
    a count. `reference` holds the factors of an outer product: one array of the count's shape,
    or one vector for each of its columns. In a selection the score is `weight * distance +
    bias`; for scores a candidate of twice the weight has half the noise, and there is no bias.
    """

    count: Count
    reference: Annotated[Reference, in_frame(_ReferenceForm, "reference")]
    weight: float = 1.0
    bias: float = 0.0


@dataclass(frozen=True, slots=True)
class Measurement(Form):
    """A noisy histogram, the published product of a question.

    values: int64, shape `shape` (cells per column, cells of the function, or tuples; `()` for
    a total). `scale` is sigma of a discrete Gaussian or b of a discrete Laplace, and
    `standard_error` the noise's standard deviation, both in units of `values`: counts, or
    for a sum `step`s of its column. Sensitivities are of this histogram alone, in the same
    units, between datasets that differ by one unit added or removed.
    """

    _may_lack: ClassVar = {"step": 1.0}
    count: Elsewhere[Query]
    values: Elsewhere[NDArray[np.int64]]
    noise: Noise
    scale: float
    standard_error: float
    l1_sensitivity: _L1
    l2_sensitivity: _L2
    step: float = 1.0

    @property
    def columns(self) -> tuple[str, ...]:
        return self.count.columns

    @property
    def shape(self) -> tuple[int, ...]:
        return self.values.shape

    @property
    def variance(self) -> float:
        return self.standard_error**2


@dataclass(frozen=True, slots=True)
class Discovered(Form):
    """Keys whose noisy count reached `threshold`, in rising order, with their noisy counts.

    keys: int64, shape (n, columns), a cell of each column. values: int64, shape (n,).
    """

    query: Elsewhere[Keys]
    keys: Elsewhere[NDArray[np.int64]]
    values: Elsewhere[NDArray[np.int64]]
    scale: float
    standard_error: float
    threshold: Whole
    l1_sensitivity: _L1
    l2_sensitivity: _L2


@dataclass(frozen=True, slots=True)
class FoundValues(Form):
    """Values whose noisy count reached `threshold`, sorted, with their noisy counts.

    values: int64, shape (texts,).
    """

    query: Elsewhere[Values]
    texts: Elsewhere[tuple[str, ...]]
    values: Elsewhere[NDArray[np.int64]]
    scale: float
    standard_error: float
    threshold: Whole
    l1_sensitivity: _L1
    l2_sensitivity: _L2


@dataclass(frozen=True, eq=False)
class Scored(Form):
    """Noisy distances of candidates from their public references: one joint measurement.

    Arrays have shape (candidates,) and are in counts. values: float64, whole steps of
    `SCORE_STEP`; unbiased, so a small distance may come out negative. scale: sigma or b of each
    value's noise; standard_error: its standard deviation. `counts`, `weights` and
    `reference_totals` repeat the question: weights as they were used, 1 for the heaviest, and
    the counts that each reference sums to. Sensitivities are of the distances times their
    weights, between datasets that differ by one unit added or removed.
    """

    counts: Elsewhere[tuple[Count, ...]]
    weights: Elsewhere[NDArray[np.float64]]
    reference_totals: Elsewhere[NDArray[np.float64]]
    values: Elsewhere[NDArray[np.float64]]
    noise: Noise
    scale: Elsewhere[NDArray[np.float64]]
    standard_error: Elsewhere[NDArray[np.float64]]
    l1_sensitivity: _L1
    l2_sensitivity: _L2


class SessionError(Exception):
    """A session could not answer. Its text never holds anything made from private rows."""


class BudgetExhausted(SessionError):
    """The question costs more than the session has left."""


class QuestionRefused(SessionError):
    """The question is malformed, or not allowed in this session (public facts only)."""


class KernelFailure(SessionError):
    """The kernel could not answer. It always reads the same; the cause is `__cause__`,
    for the custodian alone."""

    def __init__(self) -> None:
        super().__init__("the kernel could not answer; the session has ended")

"""A column: its declared domain, and the codes that store its values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from app.engine.grouping import Grouping
from app.engine.schema.scale import DEFAULT_BINS, MOST_CODES, Categories, Linear, Scale
from app.engine.schema.values import TypeName, Value, at_tick, from_wire, text, tick

if TYPE_CHECKING:
    import pyarrow as pa

# A marginal over one column then has at most 8 MB of counts.
MOST_CELLS = 2**20
# Private bins are found by splitting at quantiles; each split costs budget.
MOST_QUANTILE_BINS = 256
# The number of values that `"values": "discover"` stands for, and the most that may be declared.
USUAL_MOST_FOUND = 1000
MOST_FOUND = 100_000
NULL_LABEL = "null"

Undeclared = Literal["other", "null", "clip", "reject"]


@dataclass(frozen=True)
class TextFormat:
    """How values are written in a text file (Frictionless Table Schema).

    `formats` are strptime patterns; without any, ISO 8601. `missing` lists the spellings of
    missing values; None means those of the table.
    """

    formats: tuple[str, ...] = ()
    decimal_char: str = "."
    group_char: str | None = None
    bare_number: bool = True
    true_values: tuple[str, ...] = ("true", "True", "TRUE", "1")
    false_values: tuple[str, ...] = ("false", "False", "FALSE", "0")
    missing: tuple[str, ...] | None = None


@dataclass(frozen=True)
class QuantileBins:
    """Private bins with about equal numbers of rows; every run that uses them measures them again.

    They cover the regular values only. There are at most `count` of them.
    """

    count: int = DEFAULT_BINS

    def __post_init__(self) -> None:
        if not 2 <= self.count <= MOST_QUANTILE_BINS:
            raise ValueError(f"the number of quantile bins must be 2 to {MOST_QUANTILE_BINS}")


@dataclass(frozen=True)
class Column:
    """A usable column: its type, domain and bins.

    Codes are in this order: the regular values of the scale in their public order; a code for
    each value of `special`; a code for `other`, unless it has a code already; and a code for null,
    the missing value, if `nullable`.

    With `discovers` no value is public: all values are `other` until a run discovers the most
    frequent ones, at most `discovers` of them (see `with_values`).
    """

    name: str
    type: TypeName
    scale: Scale
    special: tuple[Value, ...] = ()
    other: Value | None = None
    nullable: bool = True
    bins: int | tuple[Value, ...] | QuantileBins | None = None
    discovers: int | None = None
    undeclared: Undeclared = "reject"
    text_format: TextFormat = field(default_factory=TextFormat)
    position: int | None = None
    title: str | None = None
    description: str | None = None

    def __post_init__(self) -> None:
        if len(set(self.special)) != len(self.special):
            raise ValueError("a special value must not be declared twice")
        if self.discovers is None:
            if not self.regular:
                raise ValueError("a column needs at least one value")
        elif self.regular or self.other is None or self.special:
            raise ValueError(
                "a column with discovered values needs `other`, and no declared or special values"
            )
        if self.undeclared == "other" and self.other is None:
            raise ValueError("undeclared values can become `other` only if `other` is declared")
        if self.undeclared == "null" and not self.nullable:
            raise ValueError("a required column has no null")
        if self.undeclared == "clip" and not isinstance(self.scale, Linear):
            raise ValueError("values can be clipped only to a range")
        if self.codes > MOST_CODES:
            raise ValueError("a column has at most 2^32 - 1 codes")
        if self._most_cells > MOST_CELLS:
            raise ValueError(f"a column of more than {MOST_CELLS} values needs bins")
        if isinstance(self.bins, tuple):
            self._cut(self.bins)
        if isinstance(self.bins, QuantileBins) and not self.ranged:
            raise ValueError("only a range can have quantile bins")

    def with_values(self, found: Sequence[str]) -> Column:
        """The column with these discovered values; raises `ValueError` if it may not have them."""
        if self.discovers is None or len(found) > self.discovers or self.other in found:
            raise ValueError(f"`{self.name}` cannot have these discovered values")
        discovers = None if found else self.discovers
        return replace(self, scale=Categories(tuple(found)), discovers=discovers)

    @property
    def regular(self) -> int:
        """How many codes stand for values of the scale; they come first."""
        return self.scale.regular

    @cached_property
    def other_code(self) -> int | None:
        """The code of `other`, which may be that of a declared value."""
        if self.other is None:
            return None
        if self.other in self.special:
            return self.regular + self.special.index(self.other)
        declared = self.scale.code(self.other)
        # A declared value keeps its code, so that one value never has two codes.
        return self.regular + len(self.special) if declared is None else declared

    @cached_property
    def _own_other(self) -> bool:
        return self.other_code is not None and self.other_code == self.regular + len(self.special)

    @property
    def null_code(self) -> int | None:
        return self.regular + len(self.special) + self._own_other if self.nullable else None

    @property
    def tail(self) -> int:
        """How many codes follow the regular ones: special values, other, null."""
        return len(self.special) + self._own_other + self.nullable

    @property
    def codes(self) -> int:
        return self.regular + self.tail

    @property
    def dtype(self) -> np.dtype[Any]:
        """The smallest unsigned type that holds every code."""
        return np.min_scalar_type(self.codes - 1)

    @cached_property
    def tail_values(self) -> tuple[Value | None, ...]:
        """The value of each tail code in order; None is null."""
        other = (self.other,) if self._own_other else ()
        return (*self.special, *other, *([None] if self.nullable else []))

    @property
    def ranged(self) -> bool:
        """Whether the regular values are points of a range, which can be cut into bins."""
        return isinstance(self.scale, Linear)

    @property
    def has_numbers(self) -> bool:
        """Whether its values have places on a number line: all but text do."""
        return self.type != "string"

    @property
    def _most_cells(self) -> int:
        """An upper bound on the cells of `grouping`, without making it."""
        if self.bins is None:
            is_binned = self.ranged and self.type not in ("integer", "year")
            return (DEFAULT_BINS if is_binned else self.regular) + self.tail
        if isinstance(self.bins, QuantileBins):
            return self.bins.count + self.tail
        return (self.bins if isinstance(self.bins, int) else len(self.bins) + 1) + self.tail

    @cached_property
    def grouping(self) -> Grouping:
        """The cells of the dictionary: declared bins, one cell per value, or 20 equal bins.

        Where a run does not measure private bins, as many equal bins take their place.
        """
        if isinstance(self.bins, QuantileBins):
            return self._cut(self.bins.count)
        if self.bins is not None:
            return self._cut(self.bins)
        if isinstance(self.scale, Categories) or self.type in ("integer", "year"):
            return Grouping.identity(self.regular, self.tail)
        return self.scale.equal(DEFAULT_BINS, self.tail)

    def group(self, bins: int | Sequence[Any]) -> Grouping:
        """Cells by a number of equal bins or by edges (values, or their JSON form).

        Bins are closed on the left, the last one on both sides. Minimum and maximum are always
        edges. Raises `ValueError` for a column of categories and for edges out of range.
        """
        if isinstance(bins, int):
            return self._cut(bins)
        return self._cut(tuple(self._edge(edge) for edge in bins))

    def _edge(self, edge: Any) -> Value:
        formats = self.text_format.formats
        is_moment = not isinstance(edge, str | int | float)
        return edge if is_moment else from_wire(self.type, edge, formats)

    def _cut(self, bins: int | tuple[Value, ...]) -> Grouping:
        if not isinstance(self.scale, Linear):
            raise ValueError(f"`{self.name}` has categories, which cannot be cut into bins")
        if not isinstance(bins, int):
            return self.scale.cut_at(bins, self.tail)
        if not 1 <= bins <= MOST_CELLS:
            raise ValueError(f"the number of bins must be 1 to {MOST_CELLS}")
        return self.scale.equal(bins, self.tail)

    def labels(self, grouping: Grouping | None = None) -> list[str]:
        """A public label for each cell of a grouping of this column (its own by default)."""
        cut = self.grouping if grouping is None else grouping
        if (cut.regular, cut.tail) != (self.regular, self.tail):
            raise ValueError(f"the grouping does not fit `{self.name}`")
        bounds = zip(cut.edges, cut.edges[1:], strict=False)
        base = [self._label(first, end) for first, end in bounds]
        base += [
            f"{text(value)} (special)"
            if value in self.special
            else NULL_LABEL
            if value is None
            else text(value)
            for value in self.tail_values
        ]
        if cut.merge is None:
            return base
        merged: list[list[str]] = [[] for _ in range(cut.cells)]
        for cell, label in zip(cut.merge, base, strict=True):
            merged[cell].append(label)
        return [" | ".join(labels) for labels in merged]

    def _label(self, first: int, end: int) -> str:
        if isinstance(self.scale, Linear):
            return self.scale.label(first, end)
        return " | ".join(text(value) for value in self.scale.values[first:end])

    def decode(self, codes: NDArray[Any]) -> pa.Array:
        """Typed values of stored codes (any integer dtype): bool, int64, float64, string,
        date32, timestamp[s] or time32[s]; null for the code of null. Shape (rows,)."""
        # Imported here because the processes of synthesizers run without pyarrow.
        from app.engine.schema import arrow

        if isinstance(self.scale, Linear):
            return arrow.from_ticks(self.type, *self.places(codes))
        return arrow.taken(self._dictionary, self._checked(codes))

    @cached_property
    def _dictionary(self) -> pa.Array:
        from app.engine.schema import arrow  # as above

        values = self.scale.values if isinstance(self.scale, Categories) else ()
        return arrow.to_arrow(self.type, (*values, *self.tail_values))

    def places(self, codes: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        """Places on the number line (see `values.tick`) and a mask of nulls, both shape (rows,).

        Raises `TypeError` for a column of text.
        """
        wide = self._checked(codes)
        if isinstance(self.scale, Linear):
            places = self.scale.places(wide)
            for offset, value in enumerate(self.tail_values):
                places[wide == self.regular + offset] = self.place_of(value)
        else:
            values = (*self.scale.values, *self.tail_values)
            places = np.array([self.place_of(value) for value in values])[wide]
        null = np.zeros(len(wide), bool) if self.null_code is None else wide == self.null_code
        return places, null

    @cached_property
    def decimals(self) -> int:
        """How many decimal places write every value of a column of numbers exactly."""
        listed = self.scale.values if isinstance(self.scale, Categories) else ()
        values = [tick(value) for value in (*listed, *self.tail_values) if value is not None]
        own = self.scale.decimals if isinstance(self.scale, Linear) else 0
        return max([own, *(-int(value.normalize().as_tuple().exponent) for value in values)])

    @cached_property
    def largest_place(self) -> Decimal:
        """The largest absolute value of a column of numbers."""
        scale = self.scale
        ends = (scale.minimum, scale.maximum) if isinstance(scale, Linear) else scale.values
        return max(abs(tick(value)) for value in (*ends, *self.tail_values) if value is not None)

    def whole_places(self, codes: NDArray[Any], decimals: int, dtype: Any) -> NDArray[Any]:
        """Places times 10^decimals as whole numbers of `dtype`, 0 for null; shape (rows,).

        Exact, where `decimals` is that of the column or larger and `dtype` holds the numbers.
        """
        wide = self._checked(codes)
        if isinstance(self.scale, Linear):
            whole = self.scale.whole_places(wide.astype(dtype), decimals)
            for offset, value in enumerate(self.tail_values):
                whole[wide == self.regular + offset] = _whole_place(value, decimals)
            return whole
        values = (*self.scale.values, *self.tail_values)
        return np.array([_whole_place(value, decimals) for value in values], dtype)[wide]

    def _checked(self, codes: NDArray[Any]) -> NDArray[np.int64]:
        wide = codes.astype(np.int64)
        if wide.size and not 0 <= wide.min() <= wide.max() < self.codes:
            raise ValueError(f"codes of `{self.name}` must be 0 to {self.codes - 1}")
        return wide

    def place_of(self, value: Value | None) -> int | float:
        """The place of a value, 0 for null: a float for numbers, else an int."""
        place = tick(value) if value is not None else Decimal(0)
        return float(place) if self.type == "number" else int(place)

    def text_at(self, place: float) -> str:
        """The text of the value at a place on the number line."""
        value = at_tick(self.type, Decimal(repr(place)))
        written = text(value)
        return f"{Decimal(written):f}" if isinstance(value, Decimal) else written

    def code(self, value: Value | None) -> int | None:
        """The code of a value (None stands for null); None if the value is not declared."""
        if value is None:
            return self.null_code
        if value in self.special:
            return self.regular + self.special.index(value)
        declared = self.scale.code(value)
        return self.other_code if declared is None and value == self.other else declared

    @property
    def step(self) -> float:
        """The distance between adjoining points of a range; 0 for categories."""
        return float(self.scale.step) if isinstance(self.scale, Linear) else 0.0


def _whole_place(value: Value | None, decimals: int) -> int:
    return 0 if value is None else int(tick(value).scaleb(decimals))


@dataclass(frozen=True)
class EntityColumn:
    """The column with the ids of the privacy unit. Its values are never stored."""

    name: str
    type: TypeName
    text_format: TextFormat = field(default_factory=TextFormat)
    position: int | None = None
    title: str | None = None
    description: str | None = None


@dataclass(frozen=True)
class LeftOut:
    """A field that is declared but not used, and the reason."""

    name: str
    type: str
    reason: str
    position: int | None = None

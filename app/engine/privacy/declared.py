"""Functions of one unit's rows, declared as data: what a unit may be counted by.

The kernel evaluates them (see `functions`) on the bounded rows of each unit alone, and each
gives every possible unit exactly one cell. They are data, never code: numbers, tables,
cut points and a fixed list of features. What they hold is public, made without private rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Annotated, Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from app.engine.grouping import Grouping
from app.engine.privacy.class_labels import class_labels
from app.engine.privacy.forms import Form, Whole

FeatureKind = Literal["rows", "rows_per", "std_per", "distinct", "top_share", "share_count", "mean"]
Floats = NDArray[np.float64]
# Each column of a mixture takes memory for every row, and a full covariance 64^2 numbers for each
# component.
MOST_MIXED = 64
MOST_FEATURES = 32
_KINDS: tuple[FeatureKind, ...] = get_args(FeatureKind)


@dataclass(frozen=True, slots=True)
class RowNumber(Form):
    """How many rows a unit has: cells 1..`most`, of which the last is "`most` or more"."""

    most: Annotated[Whole, Field(alias="rows")]

    def __post_init__(self) -> None:
        if self.most < 1:
            raise ValueError("a row number has at least one cell")

    @property
    def columns(self) -> tuple[str, ...]:
        return ()

    @property
    def cells(self) -> int:
        return self.most

    @property
    def labels(self) -> tuple[str, ...]:
        return (*(str(number) for number in range(1, self.most)), f"{self.most} or more")

    def to_json(self) -> dict[str, Any]:
        return {"function": "row_number", "most": self.most}


@dataclass(frozen=True, eq=False)
class MixtureMode:
    """The component that a unit's rows belong to most often; ties are broken at random.

    A row is the vector x of its values in `columns`, scaled to (x - centre) / scale, and
    belongs to its likeliest component of a Gaussian mixture. With K components over d
    columns: `centre`, `scale` (d,); `weights` (K,); `means` (K, d); `precisions` (K, d) for
    diagonal or (K, d, d) for full covariances, as scikit-learn's `precisions_cholesky_`.
    Rows with a null there have no vote; a unit of such rows alone is in component 0.
    """

    columns: tuple[str, ...]
    centre: Floats
    scale: Floats
    weights: Floats
    means: Floats
    precisions: Floats

    def __post_init__(self) -> None:
        for name in ("centre", "scale", "weights", "means", "precisions"):
            object.__setattr__(self, name, np.array(getattr(self, name), dtype=np.float64))
        width, count = len(self.columns), len(self.weights)
        shapes = [array.shape for array in self._arrays]
        full = (count, width, width)
        if width > MOST_MIXED:
            raise ValueError(f"a mixture is over at most {MOST_MIXED} columns")
        if not width or not count or shapes[:4] != [(width,), (width,), (count,), (count, width)]:
            raise ValueError("the arrays of a mixture have its components and columns")
        if shapes[4] not in ((count, width), full):
            raise ValueError("precisions are diagonal or full")
        if not all(np.isfinite(array).all() for array in self._arrays):
            raise ValueError("a mixture holds finite numbers")
        if (self.scale <= 0).any() or (self.weights <= 0).any():
            raise ValueError("scales and weights are positive")
        diagonal = np.diagonal(self.precisions, axis1=1, axis2=2) if self.is_full else None
        if ((self.precisions if diagonal is None else diagonal) <= 0).any():
            raise ValueError("precisions are positive")

    @property
    def _arrays(self) -> tuple[Floats, ...]:
        return (self.centre, self.scale, self.weights, self.means, self.precisions)

    @property
    def is_full(self) -> bool:
        return self.precisions.ndim == 3

    @property
    def cells(self) -> int:
        return len(self.weights)

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(f"component {number}" for number in range(self.cells))

    @cached_property
    def _key(self) -> tuple[Any, ...]:
        return (self.columns, *(array.tobytes() for array in self._arrays))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MixtureMode) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def to_json(self) -> dict[str, Any]:
        return {
            "function": "mixture_mode",
            "columns": list(self.columns),
            "centre": self.centre.tolist(),
            "scale": self.scale.tolist(),
            "weights": self.weights.tolist(),
            "means": self.means.tolist(),
            "precisions": self.precisions.tolist(),
        }


@dataclass(frozen=True, slots=True)
class Feature:
    """A number made of one unit's rows. `grouping` cuts `column`, else its dictionary does.

    rows          how many rows
    rows_per      rows divided by the number of distinct cells of `column` among them
    std_per       standard deviation (of the whole, not of a sample) of the rows in each of
                  the distinct cells of `column`
    distinct      how many distinct cells of `column`
    top_share     share of the rows in the `rank`-th most frequent cell of `column`, 0 if none
    share_count   how many cells of `column` hold a share of the rows above `above`
    mean          mean of the numbers in `column`, nulls left out; 0 if none is left
    """

    kind: FeatureKind
    column: str | None = None
    rank: int = 1
    above: float = 0.0
    grouping: Grouping | None = None

    def __post_init__(self) -> None:
        if (self.kind == "rows") != (self.column is None):
            raise ValueError("each feature but `rows` is of a column")
        if self.rank < 1 or (self.rank != 1 and self.kind != "top_share"):
            raise ValueError("`top_share` takes a rank, from 1")
        if not 0 <= self.above <= 1 or (self.above and self.kind != "share_count"):
            raise ValueError("`share_count` takes a share to pass, from 0 to 1")
        if self.grouping is not None and self.kind in ("rows", "mean"):
            raise ValueError("`rows` and `mean` look at no cells")

    @property
    def label(self) -> str:
        """How the feature reads, such as `top_share(zone, 2)`."""
        if self.column is None:
            return self.kind
        more = {"top_share": f", {self.rank}", "share_count": f", {self.above:g}"}
        return f"{self.kind}({self.column}{more.get(self.kind, '')})"

    def to_json(self) -> dict[str, Any]:
        grouping = None if self.grouping is None else self.grouping.to_json()
        return {
            "kind": self.kind,
            "column": self.column,
            "rank": self.rank,
            "above": self.above,
            "grouping": grouping,
        }


@dataclass(frozen=True, slots=True)
class FeatureClasses:
    """The class of a unit by cut features.

    `cuts[i]` (strictly rising, may be empty) cut feature i into len + 1 intervals, closed on
    the left. `classes` maps the C-order number of the intervals to a class; classes are
    numbered from 0 and each occurs.
    """

    features: tuple[Feature, ...]
    cuts: tuple[tuple[float, ...], ...]
    classes: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.features or len(self.features) != len(self.cuts):
            raise ValueError("there are cuts for each feature")
        if len(self.features) > MOST_FEATURES:
            raise ValueError(f"a class is made of at most {MOST_FEATURES} features")
        for cuts in self.cuts:
            if not all(math.isfinite(cut) for cut in cuts) or any(
                after <= before for before, after in pairwise(cuts)
            ):
                raise ValueError("cuts must be finite and strictly increasing")
        if len(self.classes) != math.prod(self.shape):
            raise ValueError("each combination of intervals has a class")
        found = sorted(set(self.classes))
        if found != list(range(len(found))):
            raise ValueError("classes are numbered from 0 without gaps")

    @property
    def shape(self) -> tuple[int, ...]:
        """Intervals of each feature."""
        return tuple(len(cuts) + 1 for cuts in self.cuts)

    @property
    def columns(self) -> tuple[str, ...]:
        named = [feature.column for feature in self.features if feature.column is not None]
        return tuple(dict.fromkeys(named))

    @property
    def cells(self) -> int:
        return max(self.classes) + 1

    @property
    def labels(self) -> tuple[str, ...]:
        return class_labels([each.label for each in self.features], self.cuts, self.classes)

    def to_json(self) -> dict[str, Any]:
        return {
            "function": "feature_classes",
            "features": [feature.to_json() for feature in self.features],
            "cuts": [list(cuts) for cuts in self.cuts],
            "classes": list(self.classes),
        }


EntityFunction = RowNumber | MixtureMode | FeatureClasses


def function_from_json(
    wire: Mapping[str, Any], grouping_of: Callable[[Any], Grouping] = Grouping.from_json
) -> EntityFunction:
    """The function of `to_json`. Raises `ValueError` for anything else."""
    try:
        return _read(dict(wire), grouping_of)
    except (TypeError, LookupError, OverflowError, AttributeError):
        raise ValueError("this is no function of a unit's rows") from None


def _read(fields: dict[str, Any], grouping_of: Callable[[Any], Grouping]) -> EntityFunction:
    match fields.pop("function"):
        case "row_number":
            return RowNumber(int(fields.pop("most")))
        case "mixture_mode":
            columns = tuple(map(str, fields.pop("columns")))
            return MixtureMode(columns, **fields)
        case "feature_classes":
            return FeatureClasses(
                tuple(_feature(dict(each), grouping_of) for each in fields["features"]),
                tuple(tuple(map(float, cuts)) for cuts in fields["cuts"]),
                tuple(map(int, fields["classes"])),
            )
    raise ValueError("this is no function of a unit's rows")


def _feature(fields: dict[str, Any], grouping_of: Callable[[Any], Grouping]) -> Feature:
    grouping = fields.pop("grouping")
    column, rank, above = fields["column"], fields["rank"], fields["above"]
    if fields["kind"] not in _KINDS or not isinstance(column, str | None):
        raise ValueError("this is no feature")
    if type(rank) is not int or type(above) not in (int, float):
        raise ValueError("this is no feature")
    return Feature(**fields, grouping=None if grouping is None else grouping_of(grouping))

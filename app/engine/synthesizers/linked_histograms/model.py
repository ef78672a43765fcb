"""The fitted model of `linked_histograms`, and how rows are drawn and paired."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from app.engine.method import Model
from app.engine.method.model_file import ModelFormatError, number, pack, unpack
from app.engine.method.model_file import weights as stored_weights
from app.engine.privacy.wire import narrowed
from app.engine.schema import Column, PrivacyUnit, Schema
from app.engine.synthesizers.linked_histograms.expected import cells_of
from app.engine.synthesizers.linked_histograms.plan import Link, Plan, Total
from app.engine.synthesizers.linked_histograms.weights import Weights
from app.engine.table import Table

Codes = dict[str, NDArray[np.int64]]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class LinkedHistogramsModel(Model):
    """`weights` of each group, `expected` of each link (shape (cells,)), and the size.

    `lengths` are the weights of entities with 1, 2, ... rows, None on a row unit.
    """

    schema: Schema
    plan: Plan
    entities: int
    lengths: NDArray[np.float64] | None
    weights: tuple[Weights, ...]
    expected: tuple[NDArray[np.float64], ...]

    @property
    def mean_rows(self) -> float:
        """Rows of an entity; 1 on a row unit."""
        if self.lengths is None:
            return 1.0
        cells = Weights.of(self.lengths)
        return float(cells.values @ (cells.cells + 1) / cells.values.sum())

    @property
    def noisy_rows(self) -> int:
        return math.ceil(self.entities * self.mean_rows)

    def sample(self, rows: int | None, rng: np.random.Generator) -> Table:
        """Entities get their numbers of rows, then each group is drawn, then linked.

        With `rows`, there are as many entities as keep the noisy mean of rows per entity.
        """
        owner, entities = self._owners(rows, rng)
        codes: Codes = {}
        for group, weights in zip(self.plan.groups, self.weights, strict=True):
            if group.per == "entity":
                drawn = group.expand(weights.draw(entities, rng), rng)
                codes |= {name: column[owner] for name, column in drawn.items()}
            else:
                codes |= group.expand(weights.draw(len(owner), rng), rng)
        for link, expected in zip(self.plan.links, self.expected, strict=True):
            codes |= self._linked(link, expected, codes, rng)
        for total in self.plan.totals:
            codes[total.total] = total_codes(self.schema, total, codes)
        return Table(codes, len(owner), None if self.lengths is None else owner)

    def _owners(self, rows: int | None, rng: np.random.Generator) -> tuple[Ints, int]:
        """The entity of each row, and how many entities there are."""
        if self.lengths is None:
            number = self.entities if rows is None else rows
            return np.arange(number, dtype=np.int64), number
        most = len(self.lengths)
        cells = Weights.of(self.lengths)
        entities = self.entities
        if rows is not None:
            entities = min(max(round(rows / self.mean_rows), -(-rows // most)), rows)
        lengths = cells.draw(entities, rng) + 1
        if rows is not None:
            lengths = _adding_up_to(lengths, rows, most, rng)
        return np.repeat(np.arange(entities, dtype=np.int64), lengths), entities

    def _linked(
        self, link: Link, expected: NDArray[np.float64], codes: Codes, rng: np.random.Generator
    ) -> Codes:
        """The columns of the link's group, in the order of the expected values of the rows."""
        values = _ranks(self.schema.column(link.value), codes[link.value], rng)
        means = expected[cells_of(link.given, codes)]
        order, mean_order = _sorted(values, rng), _sorted(means, rng)
        paired: Codes = {}
        for name in self.plan.groups[link.group].axes.names:
            column = np.empty_like(codes[name])
            column[mean_order] = codes[name][order]
            paired[name] = column
        return paired

    def dump(self) -> bytes:
        header = {
            "model": "linked_histograms",
            "plan": self.plan.to_json(),
            "entities": self.entities,
        }
        arrays: dict[str, NDArray[np.int64] | NDArray[np.float64]] = {}
        if self.lengths is not None:
            arrays["lengths"] = self.lengths
        for i, weights in enumerate(self.weights):
            arrays[f"cells_{i}"] = narrowed(weights.cells)
            arrays[f"weights_{i}"] = weights.values
        for i, expected in enumerate(self.expected):
            arrays[f"expected_{i}"] = expected
        return pack(header, arrays)

    @classmethod
    def load(cls, schema: Schema, unit: PrivacyUnit, data: bytes) -> LinkedHistogramsModel:
        header, arrays = unpack(data)
        plan = Plan.from_json(header.get("plan"), schema)
        lengths = None
        if (plan.most_rows is None) != (unit.kind == "row"):
            raise ModelFormatError("the stored model is of another privacy unit")
        if plan.most_rows is not None:
            if not 1 <= plan.most_rows <= unit.max_rows:
                raise ModelFormatError("the stored model is of another privacy unit")
            lengths = stored_weights(arrays, "lengths", (plan.most_rows,))
        weights = []
        for i, group in enumerate(plan.groups):
            cells = arrays.get(f"cells_{i}")
            if cells is None or cells.ndim != 1 or cells.dtype.kind != "i" or not len(cells):
                raise ModelFormatError(f"the stored model has no valid `cells_{i}`")
            wide = cells.astype(np.int64)
            if wide[0] < 0 or wide[-1] >= group.axes.cells or (np.diff(wide) <= 0).any():
                raise ModelFormatError(f"`cells_{i}` of the stored model are not rising cells")
            values = stored_weights(arrays, f"weights_{i}", cells.shape)
            if not values.all():
                raise ModelFormatError(f"`weights_{i}` of the stored model are not positive")
            weights.append(Weights(wide, values))
        expected = tuple(
            _finite(arrays, f"expected_{i}", link.given.cells) for i, link in enumerate(plan.links)
        )
        return cls(schema, plan, number(header, "entities"), lengths, tuple(weights), expected)


def _finite(arrays: dict[str, NDArray[np.float64]], name: str, size: int) -> NDArray[np.float64]:
    array = arrays.get(name)
    if array is None or array.shape != (size,) or array.dtype != np.float64:
        raise ModelFormatError(f"the stored model has no valid `{name}`")
    if not np.isfinite(array).all():
        raise ModelFormatError(f"`{name}` of the stored model holds impossible values")
    return array


def _adding_up_to(lengths: Ints, rows: int, most: int, rng: np.random.Generator) -> Ints:
    """Lengths of 1 to `most` that add up to `rows`, changed at random as little as can be."""
    changed = lengths.copy()
    while missing := rows - int(changed.sum()):
        step = 1 if missing > 0 else -1
        free = np.flatnonzero(changed < most if missing > 0 else changed > 1)
        changed[rng.permutation(free)[: abs(missing)]] += step
    return changed


def _ranks(column: Column, codes: Ints, rng: np.random.Generator) -> NDArray[np.float64]:
    """Numbers to sort by; a null gets the number of a random row."""
    places, null = column.places(codes)
    values = places.astype(np.float64)
    if null.any() and not null.all():
        values[null] = rng.choice(values[~null], int(null.sum()))
    return values


def _sorted(values: NDArray[np.float64], rng: np.random.Generator) -> Ints:
    """An order that sorts the values, ties at random."""
    return np.lexsort((rng.random(len(values)), values)).astype(np.int64)


def total_codes(schema: Schema, total: Total, codes: Codes) -> Ints:
    """Codes of the sum of the parts, held within the range of the total.

    Where a part is null, so is the total (its `other` value, or its minimum, if it has no
    null); where a part is a special value that the total has too, the total is that value.
    """
    column = schema.column(total.total)
    scale = column.scale
    rows = len(codes[total.parts[0]])
    value, missing = np.zeros(rows), np.zeros(rows, dtype=np.bool_)
    special = np.full(rows, -1, dtype=np.int64)
    for name in total.parts:
        part = schema.column(name)
        places, null = part.places(codes[name])
        value += places
        missing |= null
        for i, point in enumerate(part.special):
            if point in column.special:
                special[codes[name] == part.regular + i] = column.special.index(point)
    low = float(column.place_of(scale.value(0)))
    summed = np.rint((value - low) / column.step).astype(np.int64)
    made = np.clip(summed, 0, column.regular - 1)
    made = np.where(special >= 0, column.regular + special, made)
    absent = column.null_code if column.null_code is not None else column.other_code
    return np.where(missing, 0 if absent is None else absent, made)

"""What `aggregate_seeded` keeps, and how rows are made of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from app.engine.columns.axes import Axes
from app.engine.columns.table_size import Size
from app.engine.inference.projection import onto_simplex
from app.engine.inference.rounding import apportion
from app.engine.method import Model
from app.engine.method.model_file import ModelFormatError, number, pack, unpack
from app.engine.method.model_file import counts as stored_counts
from app.engine.privacy.queries import Parts
from app.engine.privacy.wire import narrowed
from app.engine.schema import PrivacyUnit, Schema
from app.engine.synthesizers.aggregate_seeded.aggregates import Aggregates
from app.engine.synthesizers.aggregate_seeded.completion import affinities, complete, whole_records
from app.engine.synthesizers.aggregate_seeded.layout import Layout
from app.engine.synthesizers.aggregate_seeded.params import Completion
from app.engine.synthesizers.aggregate_seeded.synthesis import Rules, synthesised
from app.engine.table import Table

_MOST_ROWS = 20_000_000


@dataclass(frozen=True, slots=True)
class RowOptions:
    """The fields of the form that sampling needs."""

    use_synthetic_counts: bool
    weight_selection_percentile: float
    scale_factor: float
    rows: int | None
    complete: Completion

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, wire: Any) -> RowOptions:
        try:
            options = cls(
                bool(wire["use_synthetic_counts"]),
                float(wire["weight_selection_percentile"]),
                float(wire["scale_factor"]),
                None if wire["rows"] is None else number(wire, "rows", least=1, most=_MOST_ROWS),
                wire["complete"],
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ModelFormatError("the stored model has no valid options") from error
        if options.complete not in get_args(Completion):
            raise ModelFormatError("the stored model has no valid options")
        percentile, scale = options.weight_selection_percentile, options.scale_factor
        if not (0 < percentile <= 100 and 0 < scale <= 1000):
            raise ModelFormatError("the stored model has no valid options")
        return options


@dataclass(frozen=True)
class AggregateSeededModel(Model):
    """The kept combinations, the noisy size of the table, and how to make rows.

    `unseen` is the count that stands for a pair that was not kept, where a row is completed.
    `in_pairs`, shape (items,), holds the counts of each item's pairs; None where only its own
    count matters.
    """

    layout: Layout
    aggregates: Aggregates
    size: Size
    options: RowOptions
    unseen: float
    in_pairs: NDArray[np.int64] | None = None

    @property
    def noisy_rows(self) -> int:
        return self.size.rows if self.options.rows is None else self.options.rows

    def sample(self, rows: int | None, rng: np.random.Generator) -> Table:
        """As many rows; fewer only where `complete` is `counted`."""
        records = self.records(self.noisy_rows if rows is None else rows, rng)
        groupings = self.layout.axes.groupings
        cells = self.layout.cells(records)
        codes = {name: groupings[name].expand(cells[name], rng) for name in groupings}
        return Table(codes, len(records), self.size.deal(len(records), rng))

    def records(self, rows: int, rng: np.random.Generator) -> NDArray[np.int32]:
        """Items of each synthetic row in each column, -1 for none, in random order."""
        scale = self.options.scale_factor * rows / max(self._units, 1)
        available = self._available(rows, scale, rng)

        def make(stock: NDArray[np.int64], number: int) -> NDArray[np.int32]:
            return synthesised(
                self.aggregates,
                self.layout.axis,
                stock,
                number,
                Rules(self.options.use_synthetic_counts, self.options.weight_selection_percentile),
                int(rng.integers(2**63)),
                scale,
            )

        if self.options.complete == "counted":
            records = whole_records(make, self.layout.required, available, rows)
            rng.shuffle(records)
            return records
        records = make(available, rows)
        open_columns = self._completed_columns()
        if open_columns.size and (records[:, open_columns] < 0).any():
            self._complete(records, open_columns, available, int(rng.integers(2**63)))
        rng.shuffle(records)
        return records

    def long_form(self, schema: Schema) -> Iterator[tuple[int, str, int]]:
        """Each kept combination: its length, `column:value` joined by `;`, and its count."""
        parts = self.layout.parts
        texts = [
            f"{name}:{label}"
            for name, grouping in self.layout.axes.groupings.items()
            for label in (
                parts[name].names if name in parts else schema.column(name).labels(grouping)
            )
        ]
        for level in self.aggregates.levels:
            for items, count in zip(level.items.tolist(), level.counts.tolist(), strict=True):
                yield level.length, ";".join(texts[item] for item in items), count

    @property
    def _units(self) -> int:
        """Counts are of units: entities, or rows on a row unit."""
        return self.size.rows if self.size.entities is None else self.size.entities

    def _completed_columns(self) -> NDArray[np.int64]:
        return self.layout.fillable if self.options.complete == "all" else self.layout.required

    def _single_counts(self) -> NDArray[np.int64]:
        counts = np.zeros(self.layout.most_items, dtype=np.int64)
        singles = self.aggregates.levels[0]
        counts[singles.items[:, 0]] = singles.counts
        return counts

    def _available(self, rows: int, scale: float, rng: np.random.Generator) -> NDArray[np.int64]:
        """How often each item may be used: by its count; in a required column `rows` in all."""
        counts = self._single_counts()
        available: NDArray[np.int64] = np.rint(counts * scale).astype(np.int64)
        for column in self.layout.required:
            mine = self.layout.axis == column
            if counts[mine].any() and rows:
                available[mine] = apportion(self._shares(counts[mine], mine), rows, rng)
        return available

    def _shares(self, counts: NDArray[np.int64], mine: NDArray[np.bool_]) -> NDArray[np.float64]:
        """Shares of a column's items: the mean of those by their counts and by their pairs."""
        units = max(self._units, 1)
        shares = onto_simplex(counts.astype(np.float64), units) / units
        if self.in_pairs is None:
            return shares
        in_pairs = np.where(counts > 0, self.in_pairs[mine], 0)
        return (shares + in_pairs / in_pairs.sum()) / 2 if in_pairs.any() else shares

    def _complete(
        self,
        records: NDArray[np.int32],
        columns: NDArray[np.int64],
        available: NDArray[np.int64],
        seed: int,
    ) -> None:
        affinity = affinities(self.aggregates, self.layout.axis, self._units, self.unseen)
        complete(records, columns, self.layout.axis, available, self._fallback(), affinity, seed)

    def _fallback(self) -> NDArray[np.int64]:
        """Weights for a required column whose counts are used up; equal ones if it has none."""
        counts = self._single_counts()
        fallback = np.zeros(len(counts), dtype=np.int64)
        for column in self.layout.required:
            mine = self.layout.axis == column
            fallback[mine] = counts[mine] if counts[mine].any() else 1
        return fallback

    def dump(self) -> bytes:
        header = {
            "model": "aggregate_seeded",
            "axes": self.layout.axes.to_json(),
            "absent": list(self.layout.absent),
            "parts": {name: _parts_to_json(parts) for name, parts in self.layout.parts.items()},
            "length": self.aggregates.length,
            "size": self.size.to_json(),
            "making": self.options.to_json(),
            "unseen": self.unseen,
        }
        arrays = {
            name: array if name.startswith("items") else narrowed(array)
            for name, array in self.aggregates.to_arrays().items()
        }
        if self.in_pairs is not None:
            arrays["in_pairs"] = narrowed(self.in_pairs)
        return pack(header, arrays)

    @classmethod
    def load(cls, schema: Schema, unit: PrivacyUnit, data: bytes) -> AggregateSeededModel:
        """A stored model; raises `ModelFormatError` if it does not fit."""
        header, arrays = unpack(data)
        axes = Axes.from_json(header.get("axes"), schema)
        absent = _stored_absent(header.get("absent"), axes)
        layout = Layout(axes, absent, _stored_parts(header.get("parts"), axes))
        length = number(header, "length", least=1, most=16)
        unseen = header.get("unseen")
        if not isinstance(unseen, float) or not 0 <= unseen < 2**53:
            raise ModelFormatError("the stored model has no valid `unseen`")
        in_pairs = None
        if "in_pairs" in arrays:
            in_pairs = stored_counts(arrays, "in_pairs", (layout.most_items,))
        return cls(
            layout,
            Aggregates.from_arrays(arrays, length, layout.most_items),
            Size.from_json(header.get("size"), unit),
            RowOptions.from_json(header.get("making")),
            unseen,
            in_pairs,
        )


def _parts_to_json(parts: Parts) -> dict[str, Any]:
    return {"names": list(parts.names), "of_cell": [list(each) for each in parts.of_cell]}


def _stored_parts(wire: Any, axes: Axes) -> dict[str, Parts]:
    try:
        stored = {
            name: Parts(
                tuple(str(part) for part in each["names"]),
                tuple(tuple(int(part) for part in cell) for cell in each["of_cell"]),
            )
            for name, each in wire.items()
        }
        fits = all(
            len(parts.of_cell) == axes.groupings[name].cells for name, parts in stored.items()
        )
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise ModelFormatError("the stored model has no valid parts") from error
    if not fits:
        raise ModelFormatError("the stored model has no valid parts")
    return stored


def _stored_absent(wire: Any, axes: Axes) -> tuple[int | None, ...]:
    if not isinstance(wire, list) or len(wire) != len(axes.shape):
        raise ModelFormatError("the stored model does not say what is absent")
    for cell, cells in zip(wire, axes.shape, strict=True):
        if cell is not None and not (type(cell) is int and 0 <= cell < cells):
            raise ModelFormatError("the stored model does not say what is absent")
    return tuple(wire)

"""Synthetic entities of each archetype, with rows like those of public ones."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from app.engine.columns.axes import Axes
from app.engine.inference.rounding import apportion, shuffled_cells
from app.engine.method import Model
from app.engine.method.model_file import ModelFormatError, number, pack, unpack
from app.engine.method.model_file import counts as stored_counts
from app.engine.method.model_file import weights as stored_weights
from app.engine.privacy.wire import narrowed
from app.engine.public.conditionals import Comparison, Link, draw_chain, taken_in_turn
from app.engine.public.rows import PublicRows
from app.engine.schema import PrivacyUnit, Schema
from app.engine.table import Table

AttributesPer = Literal["entity", "row"]
RowsPerEntity = Literal["public", "public_mean", "bought"]


@dataclass(frozen=True)
class Pools:
    """Items by group, to draw from; in place of an empty group stand all items."""

    starts: NDArray[np.int64]
    order: NDArray[np.int64]

    @classmethod
    def of(cls, group: NDArray[np.int64], groups: int) -> Pools:
        """Item i is in `group[i]`; the last pool, number `groups`, holds all."""
        sizes = np.bincount(group, minlength=groups)
        starts = np.concatenate([[0], np.cumsum(sizes), [2 * len(group)]])
        return cls(
            starts, np.concatenate([np.argsort(group, kind="stable"), np.arange(len(group))])
        )

    def draw(self, group: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
        """An item for each of `group`; those of one group come equally often."""
        sizes = np.diff(self.starts)
        filled = np.where(sizes[group] > 0, group, len(sizes) - 1)
        return taken_in_turn(self.starts, self.order, filled, rng)

    def means(self, values: NDArray[np.int64]) -> NDArray[np.float64]:
        """The mean of the items' values in each group, without the last pool."""
        sizes = np.diff(self.starts)
        sums = np.add.reduceat(np.append(values[self.order], 0), self.starts[:-1])[:-1]
        return np.where(sizes[:-1] > 0, sums / np.maximum(sizes[:-1], 1), values.mean())


@dataclass(frozen=True)
class RowNumbers:
    """How many rows a synthetic entity gets: 1 to `most`.

    `public` has shape (public entities,); `measured` are noisy shares of entities with 1, 2, ...
    rows (None: not measured).
    """

    rule: RowsPerEntity
    most: int
    pools: Pools
    public: NDArray[np.int64]
    measured: NDArray[np.float64] | None

    @cached_property
    def _means(self) -> NDArray[np.float64]:
        return self.pools.means(np.minimum(self.public, self.most))

    def mean(self, archetype_shares: NDArray[np.float64]) -> float:
        if self.measured is not None:
            return float(self.measured @ np.arange(1, len(self.measured) + 1))
        return float(archetype_shares @ self._means)

    def draw(self, archetype: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
        """Measured numbers go to entities in the order of public ones of their archetype."""
        if self.rule == "public_mean":
            whole = np.floor(self._means[archetype] + rng.random(len(archetype)))
            return np.clip(whole.astype(np.int64), 1, self.most)
        drawn = np.clip(self.public[self.pools.draw(archetype, rng)], 1, self.most)
        if self.measured is None:
            return drawn
        cells = np.repeat(
            np.arange(1, len(self.measured) + 1), apportion(self.measured, len(archetype), rng)
        )
        numbers = np.empty_like(drawn)
        numbers[np.lexsort((rng.random(len(drawn)), drawn))] = np.minimum(cells, self.most)
        return numbers


@dataclass(frozen=True)
class ArchetypesModel(Model):
    """Public rows by archetype, and noisy shares of archetypes and attributes.

    `archetype` is that of each public entity, shape (public entities,); the shares add up
    to 1, each of the shape of its cells. `axes` groups the columns that are counted or that
    another is drawn given, of which those in `binned` are never compared by value.
    `row_shares` are those of entities with 1, 2, ... rows, where they were measured; `entities`
    is the noisy number of entities.
    """

    axes: Axes
    binned: tuple[str, ...]
    core: tuple[str, ...]
    links: tuple[Link, ...]
    public: PublicRows
    archetype: NDArray[np.int64]
    archetype_shares: NDArray[np.float64]
    attribute_shares: Mapping[str, NDArray[np.float64]]
    attributes_per: AttributesPer
    rows_rule: RowsPerEntity
    row_shares: NDArray[np.float64] | None
    entities: int
    most_rows: int
    unit: PrivacyUnit

    def __post_init__(self) -> None:
        drawn = {*self.core, *self.attribute_shares}
        for link in self.links:
            if not drawn.issuperset(name for level in link.levels for name in level):
                raise ValueError("a column is drawn given those before it")
            drawn.add(link.column)
        learnt = {*self.core, *(link.column for link in self.links)}
        given = {name for link in self.links for level in link.levels for name in level}
        if not given | self.attribute_shares.keys() <= self.axes.groupings.keys():
            raise ValueError("what is counted or given has a grouping")
        if not learnt <= self.public.codes.keys() or learnt & self.attribute_shares.keys():
            raise ValueError("a column is either an attribute or learnt from public rows")
        if self.attributes_per not in get_args(AttributesPer):
            raise ValueError("attributes belong to an entity or a row")
        if self.rows_rule not in get_args(RowsPerEntity):
            raise ValueError("there is no such rule for the rows of an entity")
        if (self.row_shares is not None) != (self.rows_rule == "bought"):
            raise ValueError("rows per entity are measured under one rule alone")

    @property
    def _comparison(self) -> Comparison:
        return Comparison(self.axes.groupings, frozenset(self.binned))

    @cached_property
    def _row_numbers(self) -> RowNumbers:
        pools = Pools.of(self.archetype, len(self.archetype_shares))
        public = self.public.rows_per_entity()
        return RowNumbers(self.rows_rule, self.unit.max_rows, pools, public, self.row_shares)

    @property
    def noisy_rows(self) -> int:
        mean = self._row_numbers.mean(self.archetype_shares)
        return min(math.ceil(self.entities * mean), self.most_rows)

    def sample(self, rows: int | None, rng: np.random.Generator) -> Table:
        """`rows` rows; None: those of the noisy number of entities, at most `most_rows`.

        Fewer or more rows mean fewer or more entities, of all archetypes in proportion.
        """
        archetype, numbers = self._entities(rows, rng)
        entity = np.repeat(np.arange(len(numbers), dtype=np.int64), numbers)
        codes = self._core(archetype[entity], rng) | self._attributes(entity, len(numbers), rng)
        codes = draw_chain(self.links, self.public, self._comparison, codes, len(entity), rng)
        return Table(codes, len(entity), entity if self.unit.kind == "entity" else None)

    def _entities(
        self, rows: int | None, rng: np.random.Generator
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The archetype of each synthetic entity, and its number of rows."""
        mean = self._row_numbers.mean(self.archetype_shares)
        if rows is None and self.entities * mean <= self.most_rows:
            archetype = self._archetypes(self.entities, rng)
            return archetype, self._row_numbers.draw(archetype, rng)
        return self._filled(self.most_rows if rows is None else rows, mean, rng)

    def _filled(
        self, rows: int, mean: float, rng: np.random.Generator
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Entities in random order until they have `rows` rows; the last gets what is left."""
        entities = int(rows / mean * 1.1) + 10
        archetype = self._archetypes(entities, rng)
        numbers = self._row_numbers.draw(archetype, rng)
        while numbers.sum() < rows:
            more = self._archetypes(entities, rng)
            archetype = np.concatenate([archetype, more])
            numbers = np.concatenate([numbers, self._row_numbers.draw(more, rng)])
        reached = np.cumsum(numbers)
        enough = int(np.searchsorted(reached, rows)) + 1 if rows else 0
        archetype, numbers = archetype[:enough], numbers[:enough]
        if enough:
            numbers[-1] -= reached[enough - 1] - rows
        return archetype, numbers

    def _archetypes(self, entities: int, rng: np.random.Generator) -> NDArray[np.int64]:
        return shuffled_cells(apportion(self.archetype_shares, entities, rng), rng)

    def _core(
        self, archetype: NDArray[np.int64], rng: np.random.Generator
    ) -> dict[str, NDArray[np.int64]]:
        """The core columns of a public row of each row's archetype."""
        pools = Pools.of(self.archetype[self.public.entity], len(self.archetype_shares))
        source = pools.draw(archetype, rng)
        return {name: self.public.codes[name][source] for name in self.core}

    def _attributes(
        self, entity: NDArray[np.int64], entities: int, rng: np.random.Generator
    ) -> dict[str, NDArray[np.int64]]:
        holders = entities if self.attributes_per == "entity" else len(entity)
        codes = {}
        for name, shares in self.attribute_shares.items():
            cells = shuffled_cells(apportion(shares, holders, rng), rng)
            drawn = self.axes.groupings[name].expand(cells, rng)
            codes[name] = drawn[entity] if self.attributes_per == "entity" else drawn
        return codes

    def dump(self) -> bytes:
        header = {
            "model": "archetypes",
            "axes": self.axes.to_json(),
            "binned": list(self.binned),
            "core": list(self.core),
            "links": [[link.column, [list(level) for level in link.levels]] for link in self.links],
            "attributes": list(self.attribute_shares),
            "attributes_per": self.attributes_per,
            "rows_per_entity": self.rows_rule,
            "columns": list(self.public.codes),
            "rows": self.public.rows,
            "public_entities": self.public.entities,
            "components": len(self.archetype_shares),
            "row_cells": 0 if self.row_shares is None else len(self.row_shares),
            "entities": self.entities,
            "most_rows": self.most_rows,
            "unit": self.unit.to_wire(),
        }
        arrays: dict[str, NDArray[Any]] = {
            f"column{i}": narrowed(codes) for i, codes in enumerate(self.public.codes.values())
        }
        arrays |= {f"shares{i}": each for i, each in enumerate(self.attribute_shares.values())}
        arrays |= {
            "entity": narrowed(self.public.entity),
            "archetype": narrowed(self.archetype),
            "archetype_shares": self.archetype_shares,
        }
        if self.row_shares is not None:
            arrays["bought"] = self.row_shares
        return pack(header, arrays)


def load_model(schema: Schema, unit: PrivacyUnit, data: bytes) -> ArchetypesModel:
    """A stored model; raises `ModelFormatError` if it does not fit the dictionary."""
    header, arrays = unpack(data)
    if header.get("model") != "archetypes" or header.get("unit") != unit.to_wire():
        raise ModelFormatError("the stored model is of another synthesizer or privacy unit")
    try:
        return _Stored(header, arrays, schema, unit).model()
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise ModelFormatError("the stored model does not fit the dictionary") from error


@dataclass(frozen=True)
class _Stored:
    """Header and arrays of a stored model, read part by part."""

    header: Mapping[str, Any]
    arrays: Mapping[str, NDArray[Any]]
    schema: Schema
    unit: PrivacyUnit

    def model(self) -> ArchetypesModel:
        header = self.header
        axes = Axes.from_json(header["axes"], self.schema)
        components, row_cells = self._number("components", 1), self._number("row_cells")
        public = self._public()
        return ArchetypesModel(
            axes,
            tuple(map(str, header["binned"])),
            tuple(header["core"]),
            tuple(Link(column, tuple(map(tuple, levels))) for column, levels in header["links"]),
            public,
            self._numbers("archetype", public.entities, components),
            self._shares("archetype_shares", components),
            {
                name: self._shares(f"shares{i}", axes.groupings[name].cells)
                for i, name in enumerate(header["attributes"])
            },
            header["attributes_per"],
            header["rows_per_entity"],
            self._shares("bought", row_cells) if row_cells else None,
            self._number("entities"),
            self._number("most_rows", 1),
            self.unit,
        )

    def _public(self) -> PublicRows:
        rows, entities = self._number("rows", 1), self._number("public_entities", 1)
        codes = {
            name: self._numbers(f"column{i}", rows, self.schema.column(name).codes)
            for i, name in enumerate(self.header["columns"])
        }
        entity = self._numbers("entity", rows, entities)
        if not np.bincount(entity, minlength=entities).all():
            raise ModelFormatError("the stored model has a public entity without rows")
        return PublicRows(codes, entity, entities)

    def _number(self, name: str, least: int = 0) -> int:
        return number(self.header, name, least=least)

    def _numbers(self, name: str, length: int, end: int) -> NDArray[np.int64]:
        found = stored_counts(self.arrays, name, (length,))
        if (found >= end).any():
            raise ModelFormatError(f"`{name}` of the stored model holds impossible values")
        return found

    def _shares(self, name: str, cells: int) -> NDArray[np.float64]:
        shares = stored_weights(self.arrays, name, (cells,))
        if not np.isclose(shares.sum(), 1):
            raise ModelFormatError("the stored model's shares do not add up")
        return shares

"""The fitted model: public entities with all their rows, drawn by class."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.engine.inference.rounding import apportion
from app.engine.method import Model
from app.engine.method.model_file import ModelFormatError, integers, pack, unpack
from app.engine.method.model_file import counts as stored_counts
from app.engine.privacy.wire import narrowed
from app.engine.public.stored import code_arrays, stored_codes, stored_starts
from app.engine.schema import PrivacyUnit, Schema
from app.engine.synthesizers.class_resampling.entity_classes import Path
from app.engine.table import Table


@dataclass(frozen=True)
class EntityPool:
    """Public entities with all their rows, and the class of each.

    `codes`: a private code for each row, entity after entity; `starts`: int64, shape
    (entities + 1,), where each entity's rows begin; `classes`: int64, shape (entities,).
    """

    codes: dict[str, NDArray[np.int64]]
    starts: NDArray[np.int64]
    classes: NDArray[np.int64]

    @property
    def entities(self) -> int:
        return len(self.classes)

    @property
    def sizes(self) -> NDArray[np.int64]:
        return np.diff(self.starts)

    def of_classes(self, paths: tuple[Path, ...]) -> tuple[NDArray[np.int64], ...]:
        """Entities of each class; where it has none, of its nearest parent that has some."""
        alike: dict[Path, list[int]] = {}
        for number in np.unique(self.classes):
            for length in range(len(paths[number]) + 1):
                alike.setdefault(paths[number][:length], []).append(number)
        members = {
            prefix: np.flatnonzero(np.isin(self.classes, numbers))
            for prefix, numbers in alike.items()
        }
        return tuple(members[_nearest(path, members)] for path in paths)

    def rows_of(self, entities: NDArray[np.int64]) -> NDArray[np.int64]:
        """Row numbers of `entities` in order, each entity as often as it is listed."""
        sizes = self.sizes[entities]
        ends = np.cumsum(sizes)
        first = np.repeat(self.starts[entities] - (ends - sizes), sizes)
        return first + np.arange(int(sizes.sum()), dtype=np.int64)


def _nearest(path: Path, known: Collection[Path]) -> Path:
    """The longest beginning of a path that is known; the empty one is."""
    while path not in known:
        path = path[:-1]
    return path


class Draw:
    """Draws public entities at random; one drawn before is redrawn with a probability.

    The published loop draws one of N entities and, if it was drawn before, draws again with
    probability p. If u of them have not been drawn yet, the loop ends at one of these with
    probability u / (u + (1 - p)(N - u)), each equally likely, and otherwise at any of the others.
    So one draw here takes the place of the whole loop.
    """

    def __init__(self, entities: int, redraw: float, rng: np.random.Generator) -> None:
        self._drawn = np.zeros(entities, dtype=np.bool_)
        self._redraw = redraw
        self._rng = rng

    def from_pool(self, members: NDArray[np.int64], count: int) -> NDArray[np.int64]:
        """`count` of the pool's members, int64."""
        fresh = self._rng.permutation(members[~self._drawn[members]])
        order = np.concatenate([members[self._drawn[members]], fresh])
        places = self._places(len(order) - len(fresh), len(order), count)
        chosen = order[places]
        self._drawn[chosen] = True
        return chosen

    def _places(self, drawn: int, size: int, count: int) -> NDArray[np.int64]:
        """Places in an order whose first `drawn` entries were drawn before."""
        places = np.empty(count, dtype=np.int64)
        chances = self._rng.random((count, 2))
        for turn in range(count):
            if drawn == size:
                places[turn:] = chances[turn:, 1] * size
                break
            fresh = size - drawn
            if chances[turn, 0] * (fresh + (1 - self._redraw) * drawn) < fresh:
                places[turn] = drawn
                drawn += 1
            else:
                places[turn] = chances[turn, 1] * drawn
        return places


@dataclass(frozen=True)
class ClassResamplingModel(Model):
    """A pool of public entities, the tree of classes, and how many entities each is to have.

    `class_counts`: int64, shape (classes,), not negative.
    """

    pool: EntityPool
    paths: tuple[Path, ...]
    class_counts: NDArray[np.int64]
    redraw: float

    @cached_property
    def pools(self) -> tuple[NDArray[np.int64], ...]:
        """The public entities that each class is drawn from, none of them empty."""
        return self.pool.of_classes(self.paths)

    @property
    def mean_rows(self) -> NDArray[np.float64]:
        """Rows of an entity drawn for each class, shape (classes,)."""
        sizes = self.pool.sizes
        distinct = {id(members): members for members in self.pools}
        means = {key: float(sizes[members].mean()) for key, members in distinct.items()}
        return np.array([means[id(members)] for members in self.pools])

    @property
    def noisy_rows(self) -> int:
        return math.ceil(self.class_counts @ self.mean_rows)

    def sample(self, rows: int | None, rng: np.random.Generator) -> Table:
        """Entities of each class as counted, or in proportion to the counts as many as `rows` rows
        need, of which the last may lose some of its rows."""
        if rows is None:
            entities = _Drawing(self, rng).of_classes(self.class_counts)
            return self._table(rng.permutation(entities))
        return self._table(_Drawing(self, rng).filling(rows), rows)

    def _table(self, entities: NDArray[np.int64], rows: int | None = None) -> Table:
        places = self.pool.rows_of(entities)[:rows]
        owner = np.repeat(np.arange(len(entities)), self.pool.sizes[entities])[:rows]
        codes = {name: column[places] for name, column in self.pool.codes.items()}
        return Table(codes, len(places), owner)

    def dump(self) -> bytes:
        header = {
            "model": "class_resampling",
            "columns": list(self.pool.codes),
            "paths": [list(path) for path in self.paths],
            "redraw": self.redraw,
        }
        arrays = code_arrays(self.pool.codes) | {
            "sizes": narrowed(self.pool.sizes),
            "classes": narrowed(self.pool.classes),
            "counts": narrowed(self.class_counts),
        }
        return pack(header, arrays)


class _Drawing:
    """The drawing of one sample."""

    def __init__(self, model: ClassResamplingModel, rng: np.random.Generator) -> None:
        self._model = model
        self._draw = Draw(model.pool.entities, model.redraw, rng)
        self._rng = rng

    def of_classes(self, counts: NDArray[np.int64]) -> NDArray[np.int64]:
        drawn = [
            self._draw.from_pool(self._model.pools[number], int(counts[number]))
            for number in np.flatnonzero(counts)
        ]
        return np.concatenate([np.arange(0), *drawn])

    def filling(self, rows: int) -> NDArray[np.int64]:
        """Entities in random order, of which all but the last are needed to fill `rows` rows."""
        weights = self._weights()
        sizes = self._model.pool.sizes
        rows_each = float(weights @ self._model.mean_rows / weights.sum())
        entities = np.arange(0)
        filled = 0
        while filled < rows:
            more = max(1, round((rows - filled) / rows_each))
            counts = apportion(weights, more, self._rng)
            entities = np.concatenate([entities, self._rng.permutation(self.of_classes(counts))])
            filled = int(sizes[entities].sum())
        needed = np.searchsorted(np.cumsum(sizes[entities]), rows) + 1 if rows else 0
        return entities[:needed]

    def _weights(self) -> NDArray[np.float64]:
        """Weights of the classes; those of the public entities if all counts are 0."""
        if self._model.class_counts.any():
            return self._model.class_counts.astype(np.float64)
        own = np.bincount(self._model.pool.classes, minlength=len(self._model.paths))
        return own.astype(np.float64)


def load_model(schema: Schema, unit: PrivacyUnit, data: bytes) -> ClassResamplingModel:
    """A stored model. Raises `ModelFormatError` for one of another dictionary or unit."""
    header, arrays = unpack(data)
    paths = _stored_paths(header.get("paths"))
    starts = stored_starts(arrays, unit)
    classes = integers(arrays, "classes", least=0, most=len(paths) - 1)
    redraw = header.get("redraw")
    if len(classes) != len(starts) - 1:
        raise ModelFormatError("the stored model has no class for each entity")
    if not isinstance(redraw, int | float) or not 0 <= redraw <= 1:
        raise ModelFormatError("the stored model has no valid `redraw`")
    codes = stored_codes(header.get("columns"), arrays, schema)
    if len(next(iter(codes.values()))) != starts[-1]:
        raise ModelFormatError("the stored model has rows without an entity")
    counts = stored_counts(arrays, "counts", (len(paths),))
    return ClassResamplingModel(EntityPool(codes, starts, classes), paths, counts, redraw)


def _stored_paths(wire: Any) -> tuple[Path, ...]:
    is_list = isinstance(wire, list) and wire and all(isinstance(path, list) for path in wire)
    if not is_list or not all(type(step) is int for path in wire for step in path):
        raise ModelFormatError("the stored model has no tree of classes")
    return tuple(tuple(path) for path in wire)

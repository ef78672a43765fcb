"""From noisy answers to the weights of public rows: post-processing.

Which rows contents are redrawn from depends on how much public columns say about each other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from app.engine.columns.axes import Axes
from app.engine.columns.table_size import pooled
from app.engine.prior.entities.model import PublicReweightedModel
from app.engine.prior.entities.params import PublicReweightedParams
from app.engine.prior.entities.rows import OneWay, changes_keeping_rules, joined, mixed
from app.engine.prior.entities.sampling import WeightedRows
from app.engine.prior.entities.weights import Target, reweighted
from app.engine.privacy.functions import evaluate
from app.engine.privacy.queries import Count, Measurement
from app.engine.public.contributions import Features, features_of
from app.engine.public.rows import PublicRows, entity_starts
from app.engine.schema import PrivacyUnit, Schema

Floats = NDArray[np.float64]

# Columns that a pool agrees in, where the params name none. By judgement: more leave few rows.
_MOST_OF_POOL = 8

# As read, translated, in order, moved, mixed, joined, and in the stored model.
_COPIES_OF_ROWS = 8

# For each row and histogram: cells, amounts and terms, of the row and its mixed one.
_BYTES_PER_TERM = 64


def fitting_bytes(rows: int, columns: int, histograms: int) -> int:
    """Memory to weight so many public rows by noisy histograms, and of the model of them."""
    return rows * (8 * (columns + 1) * _COPIES_OF_ROWS + _BYTES_PER_TERM * histograms)


def unit_weights(answers: Sequence[Measurement], rows: PublicRows, schema: Schema) -> Floats:
    """Weights of public units that add up to the noisy number of private ones, 1 at least.

    `answers` are those to `size_questions`. Shape (entities,).
    """
    first, *by_rows = answers
    estimates = [(float(first.values), first.variance)]
    estimates += [(float(a.values.sum()), a.variance * a.values.size) for a in by_rows]
    return weighted_units(pooled(estimates), by_rows, rows, schema)


def weighted_units(
    number: float, answers: Sequence[Measurement], rows: PublicRows, schema: Schema
) -> Floats:
    """Weights of public units that add up to `number`, 1 at least, and agree with noisy counts of
    units by declared functions. Shape (entities,)."""
    units = max(number, 1.0)
    weights = np.full(rows.entities, units / rows.entities)
    weights = reweighted(weights, [_of_units(answer, rows, schema) for answer in answers])
    scaled: Floats = weights * (units / weights.sum())
    return scaled


def _of_units(answer: Measurement, rows: PublicRows, schema: Schema) -> Target:
    """Public units are in cells by the same function as private ones."""
    assert isinstance(answer.count, Count)
    assert answer.count.function is not None
    cells = evaluate(answer.count.function, rows.codes, rows.entity, schema)
    features = Features((answer.values.size,), cells, np.ones(rows.entities))
    return Target(features, answer.values.ravel().astype(np.float64), answer.variance)


def row_weights(base: Floats, answers: Sequence[Measurement], rows: PublicRows) -> Floats:
    """Weights of rows that were `base`, shape (rows,), which agree with noisy histograms."""
    return reweighted(base, [_target(answer, [rows]) for answer in answers])


def one_way(answer: Measurement, rows: PublicRows) -> OneWay:
    """A noisy histogram of one column, beside what the rows add to it."""
    assert isinstance(answer.count, Count)
    (name,) = answer.columns
    values = answer.values.astype(np.float64)
    features = features_of(answer.count, rows)
    grouping = answer.count.groupings[name]
    return OneWay(name, grouping, features, values, answer.noise, answer.standard_error)


def fitted(
    axes: Axes,
    params: PublicReweightedParams,
    unit: PrivacyUnit,
    schema: Schema,
    rows: PublicRows,
    units: Floats,
    answers: Sequence[Measurement],
    rng: np.random.Generator,
) -> PublicReweightedModel:
    """The model of public rows whose units had the weights `units`, shape (entities,).

    No row breaks a rule of `schema`, nor does one that is mixed.
    """
    pool, stays = _pool_and_stays(axes, params, rows)
    kept = (*pool, *stays)
    contents = _measured_contents(answers, kept)
    tables, base = _atoms(rows, units, schema, contents, params.mixing(unit), rng)
    weights = reweighted(base, [_target(answer, tables) for answer in answers])
    codes = {name: np.concatenate([each.codes[name] for each in tables]) for name in axes.names}
    cells = {name: axes.groupings[name].cell_of(codes[name]) for name in (*kept, *contents)}
    starts = entity_starts(rows.rows_per_entity())
    if unit.kind == "row":
        units, starts = weights, np.arange(len(weights) + 1)
    weighted = WeightedRows(
        starts,
        units,
        weights,
        pool=pools(pool, cells, len(weights), params.fewest_in_pool),
        place=pools(stays, cells, len(weights), 1),
        alike=pools(contents, cells, len(weights), 1),
    )
    number = round(float(units.sum()))
    return PublicReweightedModel(unit, codes, kept, weighted, number, params.redrawn(unit))


def _pool_and_stays(
    axes: Axes, params: PublicReweightedParams, rows: PublicRows
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    hub, rim = most_and_least_dependent(axes, rows.codes)
    usual = tuple(dict.fromkeys((hub, *constant_within_entities(axes, rows)))) if hub else ()
    pool = params.pool or usual[:_MOST_OF_POOL]
    others = ((rim,) if rim else ()) if params.keep is None else params.keep
    return pool, tuple(name for name in others if name not in pool)


def _measured_contents(answers: Sequence[Measurement], kept: Sequence[str]) -> tuple[str, ...]:
    """The columns of contents that some histogram of several columns holds."""
    names = [name for answer in answers if len(answer.columns) > 1 for name in answer.columns]
    return tuple(name for name in dict.fromkeys(names) if name not in kept)


def _atoms(
    rows: PublicRows,
    units: Floats,
    schema: Schema,
    contents: Sequence[str],
    share: float,
    rng: np.random.Generator,
) -> tuple[list[PublicRows], Floats]:
    """The public rows and, with `share` of all weight, as many mixed ones; and their weights."""
    base = units[rows.entity]
    if not share:
        return [rows], base
    changed = changes_keeping_rules(mixed(rows, contents, rng), rows, schema)
    return [rows, changed], np.concatenate([(1 - share) * base, share * base])


def _target(answer: Measurement, tables: Sequence[PublicRows]) -> Target:
    assert isinstance(answer.count, Count)
    features = reduce(joined, [features_of(answer.count, rows) for rows in tables])
    return Target(features, answer.values.ravel().astype(np.float64), answer.variance)


_MOST_ROWS = 200_000

_NEARLY_ALL = 0.9


def most_and_least_dependent(
    axes: Axes, codes: Mapping[str, NDArray[np.int64]]
) -> tuple[str | None, str | None]:
    """The column with the most mutual information with all others, and the one with the least.

    None where there are no two columns, or no three.
    """
    names = axes.names
    cells = {name: axes.groupings[name].cell_of(codes[name][:_MOST_ROWS]) for name in names}
    information_of = dict.fromkeys(names, 0.0)
    for one, other in combinations(names, 2):
        information = mutual_information(cells[one], cells[other])
        information_of[one] += information
        information_of[other] += information
    if len(names) < 2:
        return None, None
    hub = max(names, key=lambda name: information_of[name])
    rest = [name for name in names if name != hub]
    return hub, min(rest, key=lambda name: information_of[name]) if len(rest) > 1 else None


def constant_within_entities(axes: Axes, rows: PublicRows) -> tuple[str, ...]:
    """Columns in which nearly all entities of several rows have one cell alone."""
    sizes = rows.rows_per_entity()
    several = int((sizes > 1).sum())
    found = []
    for name in axes.names if several else ():
        grouping = axes.groupings[name]
        pairs = np.unique(rows.entity * grouping.cells + grouping.cell_of(rows.codes[name]))
        cells = np.bincount(pairs // grouping.cells, minlength=rows.entities)
        if ((cells == 1) & (sizes > 1)).sum() >= _NEARLY_ALL * several:
            found.append(name)
    return tuple(found)


def mutual_information(one: NDArray[np.int64], other: NDArray[np.int64]) -> float:
    """In nats, of two columns of cells, less what independent columns would seem to have.

    (A difference of (k - 1)(l - 1) / 2n nats for k and l values in n rows: Miller 1955.)
    """
    rows = len(one)
    first, ones = np.unique(one, return_inverse=True)
    second, others = np.unique(other, return_inverse=True)
    pairs = np.unique(ones * len(second) + others, return_counts=True)[1]
    entropies = [_entropy(np.bincount(each), rows) for each in (ones, others)]
    bias = (len(first) - 1) * (len(second) - 1) / (2 * rows)
    return max(0.0, sum(entropies) - _entropy(pairs, rows) - bias)


def _entropy(counts: NDArray[np.int64], rows: int) -> float:
    shares = counts[counts > 0] / rows
    return float(-(shares * np.log(shares)).sum())


def pools(
    columns: tuple[str, ...], codes: Mapping[str, NDArray[np.int64]], rows: int, fewest: int
) -> NDArray[np.int64]:
    """The pool of each row, numbered from 0, shape (rows,).

    Rows that agree in all of `columns` are a pool if they are at least `fewest`; the others are
    joined by all columns but the last, and so on to the first column alone.
    """
    pool = np.full(rows, -1, dtype=np.int64)
    found = 0
    for length in range(len(columns), 0, -1):
        key = np.zeros(rows, dtype=np.int64)
        for name in columns[:length]:
            pairs = key * (int(codes[name].max(initial=0)) + 1) + codes[name]
            key = np.unique(pairs, return_inverse=True)[1].reshape(-1).astype(np.int64)
        open_rows = np.flatnonzero(pool < 0)
        many = np.bincount(key[open_rows], minlength=1)
        taken = open_rows[(many >= fewest)[key[open_rows]] | (length == 1)]
        number = np.unique(key[taken], return_inverse=True)[1].reshape(-1)
        pool[taken] = found + number
        found = int(pool.max()) + 1
    return np.where(pool < 0, found, pool)

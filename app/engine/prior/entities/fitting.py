"""From noisy answers to the weights of public rows: post-processing."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from app.engine.columns.axes import Axes
from app.engine.columns.table_size import pooled
from app.engine.prior.entities.dependence import (
    constant_within_entities,
    most_and_least_dependent,
    pools,
)
from app.engine.prior.entities.missing_values import OneWay, joined, mixed
from app.engine.prior.entities.model import PublicReweightedModel
from app.engine.prior.entities.params import PublicReweightedParams
from app.engine.prior.entities.rows import changes_keeping_rules
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

"""Expected values of a linked column: its means by the cells of other columns."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from app.engine.columns.axes import Axes
from app.engine.privacy.queries import Measurement
from app.engine.public.contributions import DistinctCells
from app.engine.public.rows import PublicRows
from app.engine.schema import Schema
from app.engine.synthesizers.linked_histograms.plan import Group, Link
from app.engine.synthesizers.linked_histograms.tuning import TUNING

Floats = NDArray[np.float64]


def cells_of(axes: Axes, codes: dict[str, NDArray[np.int64]]) -> NDArray[np.int64]:
    """The flat cell of each row."""
    positions = [grouping.cell_of(codes[name]) for name, grouping in axes.groupings.items()]
    flat: NDArray[np.int64] = np.ravel_multi_index(tuple(positions), axes.shape).astype(np.int64)
    return flat


def public_means(link: Link, public: PublicRows, schema: Schema) -> Floats:
    """Mean of the linked column in each cell of the given ones, shape (cells,).

    A cell without public rows takes the average of the means of its coordinates alone, and
    a coordinate without rows the mean of all.
    """
    places, null = schema.column(link.value).places(public.codes[link.value])
    cells = cells_of(link.given, public.codes)[~null]
    values = places[~null].astype(np.float64)
    sums, counts = (
        np.bincount(cells, weights, minlength=link.given.cells).astype(np.float64)
        for weights in (values, np.ones(len(values)))
    )
    return means(sums.reshape(link.given.shape), counts.reshape(link.given.shape), 0.0)


def noisy_means(sums: Measurement, counts: Measurement) -> Floats:
    """Means from noisy clipped sums and noisy counts, shape (cells,).

    Cells whose counts may be noise alone are left out. Each mean is drawn towards that of its
    coordinates, by as many rows as the counts' standard error.
    """
    noisy = counts.values.astype(np.float64)
    total = sums.values.astype(np.float64) * sums.step
    is_known = noisy > TUNING.noise_errors * counts.standard_error
    sums_known, counts_known = np.where(is_known, total, 0.0), np.where(is_known, noisy, 0.0)
    return means(sums_known, counts_known, counts.standard_error)


def means(sums: Floats, counts: Floats, weight: float) -> Floats:
    """`sums / counts`, each pooled with `weight` rows of the average of its coordinates."""
    overall = np.full(sums.shape, sums.sum() / counts.sum() if counts.sum() > 0 else 0.0)
    fallback = np.zeros(sums.shape)
    for axis in range(sums.ndim):
        others = tuple(i for i in range(sums.ndim) if i != axis)
        of_axis = _ratio(
            np.broadcast_to(sums.sum(axis=others, keepdims=True), sums.shape),
            np.broadcast_to(counts.sum(axis=others, keepdims=True), sums.shape),
            overall,
        )
        fallback = fallback + of_axis / sums.ndim
    return _ratio(sums + weight * fallback, counts + weight, fallback).ravel()


def _ratio(sums: Floats, counts: Floats, fallback: Floats) -> Floats:
    ratio: Floats = np.where(counts > 0, sums / np.where(counts > 0, counts, 1.0), fallback)
    return ratio


def rows_behind(group: Group, public: PublicRows, counts: Floats) -> Floats:
    """Public rows in each cell by public entities that count there, shape (cells,).

    counts: `public_counts` of the group. Each ratio is pooled with that of all cells.
    """
    rows = np.bincount(cells_of(group.axes, public.codes), minlength=group.axes.cells)
    overall = rows.sum() / counts.sum()
    behind: Floats = (rows + TUNING.pooled_counts * overall) / (counts + TUNING.pooled_counts)
    return behind


def public_counts(group: Group, public: PublicRows, samples: int) -> Floats:
    """How many public entities count in each cell, by the rule of the private ones: each in at
    most `samples` cells. Shape (cells,)."""
    cells, size = cells_of(group.axes, public.codes), group.axes.cells
    return DistinctCells.of(public, cells, size, samples).counts(size)

"""From noisy counts to weights that rows can be drawn by."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from app.engine.inference.projection import onto_simplex
from app.engine.inference.rounding import apportion, shuffled_cells
from app.engine.synthesizers.linked_histograms.tuning import TUNING

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Weights:
    """Cells that can be drawn, int64 and rising, with their positive weights, shape (n,)."""

    cells: NDArray[np.int64]
    values: Floats

    @classmethod
    def of(cls, dense: Floats) -> Weights:
        """The positive entries of an array over all cells; equal weights if there is none."""
        flat = dense.ravel()
        cells = np.flatnonzero(flat > 0).astype(np.int64)
        if not len(cells):
            return cls(np.arange(flat.size, dtype=np.int64), np.ones(flat.size))
        return cls(cells, flat[cells])

    @classmethod
    def of_found(
        cls, cells: NDArray[np.int64], counts: Floats, domain: int, rng: np.random.Generator
    ) -> Weights:
        """Found cells with their counts; if none was found, some cells with equal weights."""
        if not len(cells):
            some = np.unique(rng.integers(0, domain, TUNING.cells_for_none))
            return cls(some, np.ones(len(some)))
        return cls(cells, np.maximum(counts, 1.0))

    def draw(self, number: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """`number` cells in random order, each in proportion to its weight up to one."""
        if not number:
            return np.zeros(0, dtype=np.int64)
        drawn: NDArray[np.int64] = self.cells[
            shuffled_cells(apportion(self.values, number, rng), rng)
        ]
        return drawn


def clipped(noisy: Floats) -> Floats:
    """Negative counts become 0, as published."""
    return np.maximum(noisy, 0.0)


def projected(noisy: Floats, sigma: float, least: float, most: float) -> Floats:
    """The nearest counts that are not negative, with `total_between` as their sum."""
    return onto_simplex(noisy, total_between(noisy, sigma, least, most))


def total_between(noisy: Floats, sigma: float, least: float, most: float) -> float:
    """The cells' sum, held between `least` and `most`, which follow from the noisy numbers of
    entities and of their rows."""
    # A sum whose noise is wider than that interval says nothing, so the middle is taken.
    error = sigma * math.sqrt(noisy.size)
    total = (least + most) / 2 if error > most - least else float(noisy.sum())
    return min(max(total, least), most)


def independent(noisy: Floats, total: float) -> Floats:
    """Expected counts were the columns independent: the product of the shares of each.

    noisy: one axis for each column. A column's shares are its noisy sums over the others,
    projected onto numbers that are not negative.
    """
    if total <= 0:
        return np.zeros(noisy.shape)
    product = np.asarray(total, dtype=np.float64)
    for axis in range(noisy.ndim):
        sums = noisy.sum(axis=tuple(other for other in range(noisy.ndim) if other != axis))
        product = np.multiply.outer(product, onto_simplex(sums, total) / total)
    return product


def pooled_with_prior(noisy: Floats, sigma: float, prior: Floats) -> Floats:
    """The posterior mean of counts whose expectation is that of a public table.

    prior: expected counts, >= 0. A true count is taken to have mean p and variance
    p + b^2 p^2; b is found by moments from all cells that the public table holds. A cell that
    it lacks is 0 unless its noisy count is beyond what the noise of all such cells reaches.
    """
    noise = sigma**2
    known = prior > 0
    expected = prior[known]
    surplus = float(((noisy[known] - expected) ** 2 - noise - expected).sum())
    spread = max(surplus, 0.0) / max(float((expected**2).sum()), 1.0)
    variance = expected + spread * expected**2
    pooled = np.zeros_like(noisy)
    pooled[known] = expected + variance / (variance + noise) * (noisy[known] - expected)
    unknown = noisy[~known]
    reach = sigma * math.sqrt(2 * math.log(max(unknown.size, 2)))
    pooled[~known] = np.where(unknown > reach, unknown, 0.0)
    return np.maximum(pooled, 0.0)


def smoothed(noisy: Floats, sigma: float, total: float, expected: Floats | None = None) -> Floats:
    """Non-negative numbers of entities with 1, 2, ... rows, that add up to `total`.

    `expected` is from a public table (None: 0). Haar coefficients of the difference that noise
    would reach are set to 0 (Donoho and Johnstone 1994), so that long empty tails are not
    filled with noise. Then projected.
    """
    # A public table is left only beyond the universal threshold, that of all N coefficients.
    # Without one, the few coarse coefficients, which say most, need to pass a lower one.
    size = 1 << max(noisy.size - 1, 0).bit_length()
    least = 2 if expected is None else size
    start = np.zeros(noisy.size) if expected is None else expected
    difference = np.concatenate([noisy - start, np.zeros(size - noisy.size)])
    return onto_simplex(start + _haar_thresholded(difference, sigma, least)[: noisy.size], total)


def _haar_thresholded(values: Floats, sigma: float, least: int) -> Floats:
    """Values of noise `sigma` without those Haar coefficients that it explains.

    The n of a level are kept beyond sqrt(2 ln max(4n, least)) times their noise; the mean is
    always kept.
    """
    if values.size == 1:
        return values
    means = (values[0::2] + values[1::2]) / 2
    details = (values[0::2] - values[1::2]) / 2
    # Halved differences have the noise of the next level's values.
    coarser = sigma / math.sqrt(2)
    reach = coarser * math.sqrt(2 * math.log(max(TUNING.haar_margin * details.size, least)))
    details = np.where(np.abs(details) > reach, details, 0.0)
    coarse = _haar_thresholded(means, coarser, least)
    restored = np.empty_like(values)
    restored[0::2] = coarse + details
    restored[1::2] = coarse - details
    return restored

"""How far one unit moves a histogram: a statement for each contribution rule.

Adjacent datasets differ by one unit, added or removed. After bounding (see `bounding`) a unit
has at most k rows and the rows of every other unit are the same in both datasets. A rule maps
the rows of each unit, on their own, to a vector of non-negative integers, and a histogram is
the sum of those vectors. So the histograms of adjacent datasets differ by one such vector, and
the L1 and L2 sensitivities are the largest norms that it can have:

rows      each row adds 1 to one cell: L1 = k; L2 = k, when all fall in one cell.
distinct  at most m cells, each 1, and no more than rows or cells: with
          n = min(m, k, cells), L1 = n, L2 = sqrt(n).
one       one cell, 1: L1 = L2 = 1.
clipped   an integer vector w on a grid of G steps to a count, with w.w <= C^2 checked in
          integers, C = floor(min(c, k) G): L2 = C. It has at most s = min(k, cells) entries
          that are not 0, so by Cauchy-Schwarz L1 <= C sqrt(s); rounding was towards zero,
          so L1 <= k G too.

Histograms that divide a loss among them are the joint release of their concatenation: with
sigma_i = L2_i / sqrt(2 rho_i) the Gaussian noise on it costs sum L2_i^2 / (2 sigma_i^2) =
sum rho_i = rho (Bun and Steinke 2016, Lemma 1.7 and Proposition 1.6). Two `one` histograms of
equal weight therefore get sigma = sqrt(2) / sqrt(2 rho) each, which is what the L2 norm
sqrt(2) of both together requires. In a pure session L1 norms add in the same way.

A `row` unit is the case k = 1. Which cells and rows are drawn (`distinct`, ties of `one`)
depends only on the unit's own rows and its own random numbers. So the statement holds for
every draw, and therefore for the mixture of all draws (quasi-convexity).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from math import isqrt

from app.engine.privacy.queries import Contribution

# Steps of one count on which `clipped` vectors are rounded: an error below 0.1 %.
GRID = 1024
# `clipped` needs norm * GRID and rows * GRID below 2^31, so that squares fit 64 bits.
LARGEST_CLIPPED = 2**21


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """The norms of one unit's vector, in integer steps; `grid` steps make one count."""

    grid: int
    l1: int
    l2_squared: int

    @property
    def l1_counts(self) -> float:
        return self.l1 / self.grid

    @property
    def l2_counts(self) -> float:
        return math.sqrt(self.l2_squared) / self.grid


def clip_radius(norm: float, max_rows: int) -> int:
    """C, the largest norm of a clipped vector in steps of the grid, rounded down."""
    return math.floor(min(Fraction(norm), Fraction(max_rows)) * GRID)


def sensitivity(contribution: Contribution, max_rows: int, cells: int) -> Sensitivity:
    """The sensitivities of one histogram of `cells` cells under a contribution rule."""
    match contribution.rule:
        case "rows":
            return Sensitivity(1, max_rows, max_rows**2)
        case "distinct":
            assert contribution.limit is not None
            most = min(contribution.limit, max_rows, cells)
            # Distinct cells of 1 each: the square of the L2 norm is their number.
            return Sensitivity(1, most, most)
        case "one":
            return Sensitivity(1, 1, 1)
        case "clipped":
            assert contribution.norm is not None
            radius = clip_radius(contribution.norm, max_rows)
            # `isqrt` rounds down, which is exact here: an L1 norm of integers is an integer.
            spread = isqrt(radius**2 * min(max_rows, cells))
            return Sensitivity(GRID, min(max_rows * GRID, spread), radius**2)

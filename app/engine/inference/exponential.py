"""The exponential of a whole table, in loops that compilers turn into vector instructions.

A library's exponential, called cell by cell, would take most of a propagation's time.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from app.engine.compiled import compiled

_CHUNK = 512
_LOG2_E = 1.4426950408889634
_LN_2_HIGH = 6.93147180369123816490e-01
_LN_2_LOW = 1.90821492927058770002e-10
_LEAST = -708.0
# 1.5 * 2^52: adding it rounds to a whole number, and leaves that in the last bits.
_ROUNDER = 6755399441055744.0


@compiled
def exponentiate(values: NDArray[np.float64]) -> None:
    """In place, for values up to 0, within 2 units in the last place; below -708 it is 0.

    exp(x) = 2^k exp(x - k ln 2) for k the nearest whole number to x / ln 2, and a Taylor
    series of degree 13 for the rest, which is at most ln 2 / 2.
    """
    exponentiate_with(values, np.empty(_CHUNK))


@compiled
def exponentiate_with(values: NDArray[np.float64], power: NDArray[np.float64]) -> None:
    """`exponentiate` for many short tables, with working space for as many values at a time."""
    bits = power.view(np.int64)
    for start in range(0, values.size, power.size):
        part = values[start : start + power.size]
        for i in range(part.size):
            power[i] = max(part[i], _LEAST) * _LOG2_E + _ROUNDER
        for i in range(part.size):
            whole = power[i] - _ROUNDER
            x = max(part[i], _LEAST) - whole * _LN_2_HIGH - whole * _LN_2_LOW
            series = 1.0 / 6227020800.0
            series = series * x + 1.0 / 479001600.0
            series = series * x + 1.0 / 39916800.0
            series = series * x + 1.0 / 3628800.0
            series = series * x + 1.0 / 362880.0
            series = series * x + 1.0 / 40320.0
            series = series * x + 1.0 / 5040.0
            series = series * x + 1.0 / 720.0
            series = series * x + 1.0 / 120.0
            series = series * x + 1.0 / 24.0
            series = series * x + 1.0 / 6.0
            series = series * x + 0.5
            series = series * x + 1.0
            series = series * x + 1.0
            part[i] = series if part[i] > _LEAST else 0.0
        for i in range(part.size):
            bits[i] = (bits[i] + 1023) << 52
        for i in range(part.size):
            part[i] *= power[i]

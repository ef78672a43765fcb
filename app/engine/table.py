"""Synthetic and public rows as stored codes, and the random generator of post-processing."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from app.engine.schema import Schema


@dataclass(frozen=True, slots=True)
class Table:
    """Synthetic rows as stored codes: one int64 array of equal length for each column.

    `entity` is the number of each row's synthetic entity, from 0; None for the unit `row`.
    """

    codes: dict[str, NDArray[np.int64]]
    rows: int
    entity: NDArray[np.int64] | None = None


@dataclass(frozen=True, slots=True)
class PublicTable:
    """The rows of a public dataset, read in full: stored codes under its own dictionary."""

    schema: Schema
    table: Table


def generator(seed: int) -> np.random.Generator:
    """The random generator of post-processing, PCG64DXSM: one stream per seed on any machine.

    Never a source of privacy noise. NumPy may change a distribution's stream between its
    releases, so a sample is repeatable for a seed and a NumPy version.
    """
    return np.random.Generator(np.random.PCG64DXSM(seed))

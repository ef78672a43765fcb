"""A private table whose columns hang together, and public ones that are alike or contrary."""

from __future__ import annotations

from itertools import combinations

import numpy as np
from numpy.typing import NDArray
from small_tables import digits, session_on

from app.engine.columns.axes import choose_axes
from app.engine.columns.estimates import ColumnEstimates
from app.engine.columns.one_way import measure_one_ways
from app.engine.privacy.loss import PrivacyLoss
from app.engine.privacy.queries import Contribution
from app.engine.public.rows import PublicRows, read_public
from app.engine.table import PublicTable, Table

Codes = dict[str, NDArray[np.int64]]
CELLS = {"a": 6, "b": 6, "c": 5, "d": 4, "e": 3}
SCHEMA = digits(CELLS)
FIELDS = [
    {
        "name": name,
        "type": "integer",
        "constraints": {"minimum": 0, "maximum": most - 1, "required": True},
    }
    for name, most in CELLS.items()
]


def rows_of(rows: int, seed: int) -> Codes:
    """b follows a, c follows b, d follows a; e has nothing to do with them."""
    rng = np.random.default_rng(seed)

    def following(cause: NDArray[np.int64], cells: int) -> NDArray[np.int64]:
        other = rng.integers(0, cells, rows)
        return np.where(rng.random(rows) < 0.8, np.minimum(cause, cells - 1), other)

    a = rng.choice(6, rows, p=[0.3, 0.25, 0.2, 0.1, 0.1, 0.05])
    b = following(a, 6)
    return {
        "a": a,
        "b": b,
        "c": following(b, 5),
        "d": following(a, 4),
        "e": rng.integers(0, 3, rows),
    }


def contrary(codes: Codes) -> Codes:
    """Every second column turned round, so that all dependence has the wrong sign."""
    return {
        name: column if name in "ac" else CELLS[name] - 1 - column for name, column in codes.items()
    }


def public_of(codes: Codes, entity: NDArray[np.int64] | None = None) -> PublicTable:
    return PublicTable(SCHEMA, Table(codes, len(codes["a"]), entity))


def columns_of(
    codes: Codes, loss: PrivacyLoss, public: PublicRows | None = None
) -> ColumnEstimates:
    session = session_on(SCHEMA, codes, loss)
    axes, _ = choose_axes(SCHEMA, None, {})
    measured = measure_one_ways(session, axes, Contribution(), loss)
    return ColumnEstimates.of(axes, SCHEMA, measured, 2.0, public)


def read(codes: Codes, entity: NDArray[np.int64] | None = None) -> PublicRows:
    return read_public(public_of(codes, entity), SCHEMA, list(CELLS))


def pair_distance(real: Codes, synthetic: Codes) -> float:
    """The mean total variation distance over all pairs."""
    found = []
    for one, other in combinations(CELLS, 2):
        shares = [
            np.bincount(t[one] * CELLS[other] + t[other], minlength=CELLS[one] * CELLS[other])
            / max(len(t[one]), 1)
            for t in (real, synthetic)
        ]
        found.append(np.abs(shares[0] - shares[1]).sum() / 2)
    return float(np.mean(found))

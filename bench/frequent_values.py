"""How private bins keep values that many rows share: `python -m bench.frequent_values`.

Made-up tables of one column, released by `independent` and `histogram` at (epsilon, 1e-6) on a row
unit. Printed is the total variation distance over the frequent values (0.4 % of the rows or more)
and 100 cells that hold equal numbers of real rows, a mean over `--runs` releases.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.engine.method import Synthesizer
from app.engine.privacy.accounting import rho_for
from app.engine.privacy.kernel import Kernel
from app.engine.privacy.library import LocalSession
from app.engine.privacy.loss import PrivacyLoss
from app.engine.privacy.source import ArraySource
from app.engine.schema import PrivacyUnit, Schema
from app.engine.synthesizers.histogram import Histogram
from app.engine.synthesizers.independent import Independent
from app.engine.table import generator

ROWS = 20_000
EPSILONS = (1, 10, 100)
METHODS: tuple[Synthesizer, ...] = (Independent(), Histogram())
Codes = NDArray[np.int64]
Table = tuple[dict[str, Any], Codes]


def _field(kind: str, low: object, high: object) -> dict[str, Any]:
    limits = {"minimum": low, "maximum": high, "required": True}
    return {"name": "x", "type": kind, "constraints": limits, "bins": "quantiles"}


DAYS = _field("date", "1990-01-01", "2029-12-31")


def _lognormal(rng: np.random.Generator) -> Codes:
    return np.clip(np.rint(rng.lognormal(10, 1, ROWS)), 0, 10**7).astype(np.int64)


def money(rng: np.random.Generator) -> Table:
    amounts, kind = _lognormal(rng), rng.random(ROWS)
    losses = -np.rint(rng.lognormal(8, 1, ROWS)).astype(np.int64)
    amounts = np.where(kind < 0.11, 0, np.where(kind > 0.999, losses, amounts))
    return _field("integer", -100_000, 10**7), np.clip(amounts, -100_000, 10**7) + 100_000


def five_values(rng: np.random.Generator) -> Table:
    values = np.array([120, 5000, 5001, 77_777, 900_000])
    codes = values[rng.choice(5, ROWS, p=[0.3, 0.25, 0.2, 0.15, 0.1])]
    return _field("integer", 0, 1_000_000), codes


def dates(many: int) -> Callable[[np.random.Generator], Table]:
    return lambda rng: (DAYS, rng.choice(14_000, many, replace=False)[rng.integers(0, many, ROWS)])


def weekdays(rng: np.random.Generator) -> Table:
    weights = 1 + np.sin(np.arange(214) / 7 * 2 * np.pi) / 2
    return DAYS, 9000 + rng.choice(214, ROWS, p=weights / weights.sum())


TABLES: dict[str, Callable[[np.random.Generator], Table]] = {
    "0 in 11 %, negative in 0.1 %": money,
    "five values": five_values,
    "twelve dates": dates(12),
    "sixty dates": dates(60),
    "log-normal": lambda rng: (_field("integer", 0, 10**7), _lognormal(rng)),
    "even": lambda rng: (_field("integer", 0, 10**6), rng.integers(0, 10**6 + 1, ROWS)),
    "days of seven months": weekdays,
}


def distance(real: Codes, drawn: Codes) -> float:
    values, counts = np.unique(real, return_counts=True)
    frequent = values[counts >= 0.004 * ROWS]
    even = np.quantile(real, np.linspace(0, 1, 101)).astype(np.int64)
    edges = np.unique(np.concatenate([even, frequent, frequent + 1, [0, 2**32]]))
    histograms = [np.histogram(each, edges)[0] for each in (real, drawn)]
    return float(np.abs(histograms[0] - histograms[1]).sum() / 2 / ROWS)


def released(method: Synthesizer, table: Table, epsilon: float, seed: int) -> Codes:
    field, codes = table
    source = ArraySource(Schema.parse({"fields": [field]}), PrivacyUnit("row"), {"x": codes})
    loss = PrivacyLoss.zcdp(rho_for(int(epsilon * 10**12), 10**12))
    session = LocalSession(Kernel(source, loss))
    model = method.fit(session, method.Params(), None, seed, lambda *_: None)
    return np.asarray(model.sample(ROWS, generator(seed)).codes["x"], dtype=np.int64)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.frequent_values",
        description="How private bins keep values that many rows share.",
    )
    parser.add_argument("--runs", type=int, default=4)
    runs = parser.parse_args().runs
    for name, make in TABLES.items():
        table = make(np.random.default_rng(11))
        for method in METHODS:
            means = [
                np.mean(
                    [distance(table[1], released(method, table, e, seed)) for seed in range(runs)]
                )
                for e in EPSILONS
            ]
            print(f"{name:30} {method.name:12}", *(f"{mean:.3f}" for mean in means))


if __name__ == "__main__":
    main()

"""What `auto` picks on real tables, beside what it could have picked.

    python -m bench.auto [--tables NAME ...] [--epsilons 0.1 1 10] [--runs 1]

A line for each table and epsilon: the mean total variation distance over all pairs of columns
of `mst`, `swift` and `aim` (with a public table `public_reweighted` too), what `auto` picks, and
how far that is beyond the best of them, at delta 1e-6. The tables are those of
`bench.synthesizers`. Reads them below HALFTONE_SHARED_DATA (default `../shared/data`).
"""

from __future__ import annotations

import argparse
from decimal import Decimal

import numpy as np

from app.engine.privacy.accounting import open_guarantee
from app.engine.privacy.loss import DELTA_UNIT, EPSILON_UNIT, Accountant, Guarantee, to_units
from app.engine.synthesizers import registry
from app.engine.synthesizers.base import PublicFacts
from app.engine.synthesizers.choice import choices
from bench.challenge.fitting import LIMITS, Refused, fitted, sampling
from bench.synthesizers.__main__ import EVERY_TABLE
from bench.synthesizers.measures import pairs
from bench.synthesizers.tables import CodedTable

COMPARED = ("mst", "swift", "aim")
WITH_PUBLIC = "public_reweighted"
DELTA = "1e-6"


def main() -> None:
    asked = _arguments()
    print(
        f"| table | epsilon | {' | '.join((*COMPARED, WITH_PUBLIC))} | picked | beyond the best |"
    )
    print("|" + "---|" * (len(COMPARED) + 5))
    for name in asked.tables:
        table = EVERY_TABLE[name]()
        for epsilon in asked.epsilons:
            print(f"| {name} | {epsilon} | {_line(table, epsilon, asked.runs)} |", flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.auto")
    parser.add_argument("--tables", nargs="+", choices=EVERY_TABLE, default=list(EVERY_TABLE))
    parser.add_argument("--epsilons", nargs="+", default=["0.1", "1", "10"])
    parser.add_argument("--runs", type=int, default=1, help="runs whose distances are averaged")
    return parser.parse_args()


def _line(table: CodedTable, epsilon: str, runs: int) -> str:
    guarantee = Guarantee(
        epsilon=to_units(Decimal(epsilon), EPSILON_UNIT, rounding="up"),
        delta=to_units(Decimal(DELTA), DELTA_UNIT, rounding="up"),
    )
    compared = COMPARED if table.public is None else (*COMPARED, WITH_PUBLIC)
    found: dict[str, float] = {}
    for name in compared:
        try:
            found[name] = float(
                np.mean([_distance(name, table, guarantee, seed) for seed in range(runs)])
            )
        except Refused as refused:
            print(f"{name} is refused: {refused}")
    cells = [f"{found[each]:.4f}" if each in found else "" for each in (*COMPARED, WITH_PUBLIC)]
    picked = _picked(table, guarantee)
    beyond = found[picked] / min(found.values()) - 1 if picked in found else float("nan")
    return " | ".join([*cells, picked, f"{beyond:.1%}"])


def _distance(name: str, table: CodedTable, guarantee: Guarantee, seed: int) -> float:
    model = fitted(
        name,
        {},
        table.used,
        table.schema,
        table.unit,
        guarantee,
        entities=table.entities,
        public=table.public,
        seed=seed,
    )
    made = model.sample(None, sampling(seed))
    if not made.rows:
        return 1.0
    return pairs(table.measured(table.used), table.measured(made.codes))


def _picked(table: CodedTable, guarantee: Guarantee) -> str:
    """The first choice that could run, as the service finds it."""
    public = (
        None if table.public is None else PublicFacts(table.public.schema, table.public.table.rows)
    )
    _, loss = open_guarantee(guarantee, Accountant.BASIC)
    for choice in choices(table.unit, public):
        synthesizer = registry.builtin(choice.synthesizer)
        params = synthesizer.Params.model_validate({})
        if not synthesizer.check(table.schema, table.unit, params, loss, public, LIMITS).problems:
            return choice.synthesizer
    return "none"


if __name__ == "__main__":
    main()

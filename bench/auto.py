"""What `auto` picks on real tables, compared with what it could have picked.

    python -m bench.auto [--tables NAME ...] [--epsilons 0.1 1 10] [--systems NAME ...] [--runs 3]
        [--again SYSTEM ...] [--out bench/out/auto]

A line for each table and epsilon: the mean total variation distance over all pairs of columns of
`mst`, `swift` and `aim` (with a public table `public_reweighted` too) with its standard error, of
how many runs it is (the fewest and the most of a line), what `auto` picks, and how far that is
beyond the best of the three, at delta 1e-6. The tables are those of `bench.synthesizers`, read
below HALFTONE_SHARED_DATA (default `../shared/data`).

Every run is a line of `runs.jsonl` in the folder of `--out` and is not made again when the bench
is called again, but for the systems of `--again`; the table is drawn from all lines there.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from decimal import Decimal
from itertools import product
from pathlib import Path

import numpy as np

from app.engine.catalog import registry
from app.engine.catalog.auto import AutoParams, Request, choices
from app.engine.method import PublicFacts
from app.engine.privacy.accounting import open_guarantee
from app.engine.privacy.loss import DELTA_UNIT, EPSILON_UNIT, Accountant, Guarantee, to_units
from bench import shared_data
from bench.challenge.fitting import LIMITS, Refused, fitted, sampling
from bench.synthesizers.__main__ import EVERY_TABLE
from bench.synthesizers.measures import pairs
from bench.synthesizers.results import Results, Run
from bench.synthesizers.tables import CodedTable

COMPARED = ("mst", "swift", "aim")
WITH_PUBLIC = "public_reweighted"
SYSTEMS = (*COMPARED, WITH_PUBLIC)
DELTA = "1e-6"
_SURE = 2.0
"""Standard errors of a difference below which two means are called level."""


def main() -> None:
    asked = _arguments()
    shared_data.must_be_there()
    results = Results(asked.out)
    done = {run.key for run in results.runs() if run.implementation not in asked.again}
    picked: dict[tuple[str, str], str] = {}
    for name in asked.tables:
        table = EVERY_TABLE[name]()
        for epsilon, seed in product(asked.epsilons, range(asked.runs)):
            picked[name, epsilon] = _picked(table, _guarantee(epsilon))
            for system in _compared(table, asked.systems):
                if (name, system, epsilon, seed) not in done:
                    results.append(_run(system, table, epsilon, seed))
    print(f"| table | epsilon | {' | '.join(SYSTEMS)} | runs | picked | beyond the best of three |")
    print("|" + "---|" * (len(SYSTEMS) + 5))
    for (name, epsilon), pick in picked.items():
        found = [run for run in results.runs() if (run.table, run.epsilon) == (name, epsilon)]
        print(f"| {name} | {epsilon} | {' | '.join(_cells(found, pick))} |")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.auto")
    parser.add_argument("--tables", nargs="+", choices=EVERY_TABLE, default=list(EVERY_TABLE))
    parser.add_argument("--epsilons", nargs="+", default=["0.1", "1", "10"])
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=list(SYSTEMS))
    parser.add_argument("--runs", type=int, default=3, help="runs whose distances are averaged")
    parser.add_argument("--again", nargs="+", choices=SYSTEMS, default=[])
    parser.add_argument("--out", type=Path, default=Path("bench/out/auto"))
    return parser.parse_args()


def _guarantee(epsilon: str) -> Guarantee:
    return Guarantee(
        epsilon=to_units(Decimal(epsilon), EPSILON_UNIT, rounding="up"),
        delta=to_units(Decimal(DELTA), DELTA_UNIT, rounding="up"),
    )


def _compared(table: CodedTable, systems: Sequence[str]) -> list[str]:
    return [name for name in systems if name != WITH_PUBLIC or table.public is not None]


def _run(system: str, table: CodedTable, epsilon: str, seed: int) -> Run:
    """A table without rows is as far off as can be."""
    told = (table.name, system, epsilon, seed)
    started = time.perf_counter()
    try:
        model = fitted(
            system,
            {},
            table.used,
            table.schema,
            table.unit,
            _guarantee(epsilon),
            entities=table.entities,
            public=table.public,
            seed=seed,
        )
    except Refused as refused:
        return Run(*told, failure=str(refused))
    made = model.sample(None, sampling(seed))
    seconds = time.perf_counter() - started
    real, synthetic = table.measured(table.used), table.measured(made.codes)
    distance = pairs(real, synthetic) if made.rows else 1.0
    return Run(*told, seconds=seconds, rows=made.rows, pairs=distance)


def _picked(table: CodedTable, guarantee: Guarantee) -> str:
    """The first choice that could run, as the service finds it."""
    public = (
        None if table.public is None else PublicFacts(table.public.schema, table.public.table.rows)
    )
    _, loss = open_guarantee(guarantee, Accountant.BASIC)
    for choice in choices(Request(table.schema, table.unit, AutoParams(), loss, public)):
        synthesizer = registry.builtin(choice.synthesizer)
        params = synthesizer.Params.model_validate({})
        if not synthesizer.check(table.schema, table.unit, params, loss, public, LIMITS).problems:
            return choice.synthesizer
    return "none"


def _cells(runs: Sequence[Run], picked: str) -> Iterator[str]:
    """Means with their standard errors, of how many runs they are, what is picked, and how far
    that is beyond the best."""
    found = {name: _distances(runs, name) for name in SYSTEMS}
    for distances in found.values():
        yield "" if not distances else f"{np.mean(distances):.4f}{_plus_minus(distances)}"
    yield _spelled(sorted({len(distances) for distances in found.values() if distances}))
    yield picked
    rivals = {name: found[name] for name in COMPARED if found[name]}
    if not rivals or not found.get(picked):
        yield ""
        return
    best = min(rivals.values(), key=np.mean)
    beyond = float(np.mean(found[picked]) / np.mean(best) - 1)
    error = float(np.hypot(_error(found[picked]), _error(best)) / np.mean(best))
    yield f"{beyond:.1%}{' (level)' if 0 < beyond <= _SURE * error else ''}"


def _distances(runs: Sequence[Run], system: str) -> list[float]:
    return [run.pairs for run in runs if run.implementation == system and run.pairs is not None]


def _spelled(numbers: Sequence[int]) -> str:
    return " to ".join(map(str, [*numbers[:1], *numbers[1:][-1:]]))


def _error(distances: Sequence[float]) -> float:
    """The standard error of their mean; not known of one alone."""
    if len(distances) < 2:
        return 0.0
    return float(np.std(distances, ddof=1) / len(distances) ** 0.5)


def _plus_minus(distances: Sequence[float]) -> str:
    return "" if len(distances) < 2 else f" ± {_error(distances):.4f}"


if __name__ == "__main__":
    main()

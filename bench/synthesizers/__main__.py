"""Halftone's model-based synthesizers compared with those of other packages, on real tables.

    python -m bench.synthesizers [--tables adult census_ma] [--epsilons 0.1 1 10] [--seeds 5]
        [--only NAME ...] [--in-process] [--capped] [--again] [--out bench/out/synthesizers]

Every result is a line of `runs.jsonl` in the folder of `--out`, and is not made again when the
bench is called again (`--again` repeats it); `results.md` and one picture for each table are
drawn from all lines there. `--only` takes groups (references, halftone, peers) and names.
Tables of `mixed.py` (mixed types, people with many rows, public tables) are for `--in-process`.
`--seeds 5 dpmm-aim=1` and `--epsilons 0.1 1 10 dpmm-aim=1` differ by implementation. What is
measured, and how, is described in `docs/results/benchmarks.md`.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path

from bench import shared_data
from bench.synthesizers import measures, picture, plan, report
from bench.synthesizers.implementations import Implementation, RunFailed
from bench.synthesizers.mixed import MIXED
from bench.synthesizers.results import Results, Run, summaries
from bench.synthesizers.tables import TABLES, CodedTable

EVERY_TABLE = {**TABLES, **MIXED}
CACHE = Path(os.environ.get("HALFTONE_BENCH_CACHE", Path.home() / ".cache" / "halftone-bench"))

Planned = tuple[str, Implementation, str, int]


def run(implementation: Implementation, table: CodedTable, epsilon: str, seed: int) -> Run:
    """One run with its measures, or with the reason why there are none."""
    told = (table.name, implementation.name, epsilon, seed)
    load = round(os.getloadavg()[0], 2)
    try:
        made = implementation.make(table, epsilon, seed)
    except RunFailed as error:
        return Run(*told, failure=str(error), load=load)
    if not len(next(iter(made.codes.values()))):
        return Run(*told, failure="the table has no rows", load=load)
    quality = measures.quality(
        table.measured(table.used),
        table.measured(made.codes),
        numeric=table.numeric,
        held_out=table.held_out,
        target=table.target,
    )
    return Run(
        *told,
        seconds=made.seconds,
        peak_mb=_megabytes(made.peak_bytes),
        child_mb=_megabytes(made.child_bytes),
        cap_s=None if made.caps is None else made.caps.time_s,
        cap_mb=None if made.caps is None else made.caps.memory_bytes / 1e6,
        rows=len(next(iter(made.codes.values()))),
        **asdict(quality),
        load=load,
    )


def _megabytes(size_bytes: int | None) -> float | None:
    return None if size_bytes is None else size_bytes / 1e6


def planned(
    chosen: Mapping[str, Implementation],
    tables: list[str],
    epsilons: plan.Setting[tuple[str, ...]],
    seeds: plan.Setting[int],
) -> Iterator[Planned]:
    """Seed by seed, so that what was measured when the bench is stopped is even."""
    most = max(seeds.of(name) for name in chosen)
    for table in tables:
        for seed in range(most):
            for name, implementation in chosen.items():
                if seed < seeds.of(name):
                    for epsilon in epsilons.of(name) if implementation.private else ("",):
                        yield table, implementation, epsilon, seed


def write(results: Results, folder: Path) -> None:
    """The Markdown tables, and a picture for each table of data."""
    every = summaries(results.runs())
    if not every:
        return
    (folder / "results.md").write_text(report.markdown(every))
    for name in dict.fromkeys(each.table for each in every):
        drawn = picture.svg(
            (each for each in every if each.table == name), f"{name}: error against seconds"
        )
        if drawn is not None:
            (folder / f"{name}.svg").write_text(drawn)


def line(done: Run) -> str:
    head = f"{done.table} {done.implementation} epsilon {done.epsilon or '-'} seed {done.seed}: "
    if done.failure is not None:
        return head + f"failed: {done.failure}"
    auc = "" if done.auc is None else f" AUC {done.auc:.3f}"
    return head + (
        f"{done.seconds:.1f} s, {done.pairs:.4f} {done.triples:.4f} {done.k_marginal:.0f}{auc}"
    )


def main() -> None:
    asked = _arguments()
    shared_data.must_be_there()
    with tempfile.TemporaryDirectory(prefix="halftone-bench-") as stores:
        places = plan.Places(
            Path(stores),
            asked.cache,
            asked.time_limit,
            asked.settle,
            asked.in_process,
            asked.capped,
        )
        try:
            chosen = plan.implementations(asked.only, places)
            epsilons, seeds = plan.epsilons(asked.epsilons), plan.seeds(asked.seeds)
        except plan.NotUnderstood as error:
            sys.exit(f"bench.synthesizers: {error}")
        results = Results(asked.out)
        done = set() if asked.again else {each.key for each in results.runs()}
        loaded: dict[str, CodedTable] = {}
        for name, implementation, epsilon, seed in planned(chosen, asked.tables, epsilons, seeds):
            if (name, implementation.name, epsilon, seed) in done:
                continue
            table = loaded.get(name) or loaded.setdefault(name, EVERY_TABLE[name]())
            results.append(finished := run(implementation, table, epsilon, seed))
            print(line(finished), file=sys.stderr, flush=True)
            write(results, asked.out)
    write(results, asked.out)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.synthesizers")
    parser.add_argument("--tables", nargs="+", choices=EVERY_TABLE, default=["adult", "census_ma"])
    parser.add_argument("--epsilons", nargs="+", default=[], metavar="E | NAME=E,E")
    parser.add_argument("--seeds", nargs="+", default=[], metavar="N | NAME=N")
    parser.add_argument("--only", nargs="+", default=[], metavar="GROUP | NAME")
    parser.add_argument("--in-process", action="store_true", help="ours without a server")
    parser.add_argument("--capped", action="store_true", help="limit ours to what preflight asks")
    parser.add_argument("--again", action="store_true", help="make what was made before")
    parser.add_argument("--time-limit", type=float, default=900, metavar="SECONDS")
    parser.add_argument("--settle", type=float, default=3, metavar="SECONDS")
    parser.add_argument("--out", type=Path, default=Path("bench/out/synthesizers"))
    parser.add_argument("--cache", type=Path, default=CACHE, help="where virtualenvs are made")
    return parser.parse_args()


if __name__ == "__main__":
    main()

"""How far the taxis of synthetic trips are from the real ones, and what contribution rules cost.

    python -m bench.entities [--runs 3] [--epsilon 1 10] [--systems mst swift aim] [--public NAME]

Each system is fitted at (epsilon, 2.5e-5) with the taxi as unit. A number is a total variation
distance, the mean of the runs: of the distribution over taxis of their rows and of the distinct
values of some columns, and over pairs of a taxi and a shift that it drives in of its rows there.
Next to it is the distance if each synthetic row is given one of the same number of taxis at
random. The second table has the mean distance over all pairs of columns by contribution rule; it
is left out with public rows (`public_2022`, `public_2019`).
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.engine.entities.assignment import distinct_values, rows_of_values
from app.engine.privacy.loss import Guarantee
from app.engine.schema import Schema
from app.engine.table import PublicTable, Table
from bench import shared_data
from bench.challenge.fitting import fitted, sampling
from bench.challenge.tables import ENTITY, TAXI, Trips, sprint3_schema, trips

Ints = NDArray[np.int64]

DELTA = 25 * 10**12
DISTINCT = ("pickup_community_area", "dropoff_community_area", "shift", "company_id")
RULES: Mapping[str, Mapping[str, Any]] = {
    "by default": {},
    "clipped, 10": {"contribution": {"rule": "clipped", "norm": 10}},
    "rows": {"contribution": {"rule": "rows"}},
}


def main() -> None:
    asked = _arguments()
    shared_data.must_be_there()
    real = trips("private_2022", sprint3_schema())
    public = trips(asked.public, sprint3_schema()).as_public() if asked.public else None
    for line in _entity_lines(real, asked.systems, asked.epsilon, asked.runs, public):
        print(line, flush=True)
    for line in () if public else _pair_lines(real, asked.systems, asked.epsilon, asked.runs):
        print(line, flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.entities", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--epsilon", type=float, nargs="+", default=[1, 10])
    parser.add_argument("--systems", nargs="+", default=["mst", "swift", "aim"])
    parser.add_argument("--public", help="name of a table of public trips")
    return parser.parse_args()


def _entity_lines(
    real: Trips,
    systems: Sequence[str],
    epsilons: Sequence[float],
    runs: int,
    public: PublicTable | None,
) -> Iterator[str]:
    _, taxis = np.unique(real.values[ENTITY], return_inverse=True)
    truth = _statistics(taxis, real.codes, real.schema)
    yield f"| system | epsilon | taxis are | {' | '.join(truth)} |"
    yield "|---|---|---|" + "---|" * len(truth)
    for system in systems:
        for epsilon in epsilons:
            made = [_synthetic(system, epsilon, real, {}, run, public) for run in range(runs)]
            for label, owners in (("as made", _made), ("at random", _at_random)):
                found = [_statistics(owners(table), table.codes, real.schema) for table in made]
                distances = [
                    np.mean([_apart(each[name], truth[name]) for each in found]) for name in truth
                ]
                cells = " | ".join(f"{distance:.3f}" for distance in distances)
                yield f"| {system} | {epsilon:g} | {label} | {cells} |"


def _pair_lines(
    real: Trips, systems: Sequence[str], epsilons: Sequence[float], runs: int
) -> Iterator[str]:
    yield ""
    yield f"| system | epsilon | {' | '.join(RULES)} |"
    yield "|---|---|" + "---|" * len(RULES)
    for system in systems:
        for epsilon in epsilons:
            distances = [
                np.mean(
                    [
                        _pair_distance(_synthetic(system, epsilon, real, form, run), real)
                        for run in range(runs)
                    ]
                )
                for form in RULES.values()
            ]
            cells = " | ".join(f"{distance:.3f}" for distance in distances)
            yield f"| {system} | {epsilon:g} | {cells} |"


def _synthetic(
    system: str,
    epsilon: float,
    real: Trips,
    form: Mapping[str, Any],
    run: int,
    public: PublicTable | None = None,
) -> Table:
    guarantee = Guarantee(epsilon=round(epsilon * 10**12), delta=DELTA)
    model = fitted(
        system,
        form,
        real.codes,
        real.schema,
        TAXI,
        guarantee,
        entities=real.values[ENTITY],
        public=public,
        seed=run,
    )
    return model.sample(None, sampling(run))


def _made(table: Table) -> Ints:
    assert table.entity is not None
    return table.entity


def _at_random(table: Table) -> Ints:
    taxis = int(_made(table).max()) + 1
    _, drawn = np.unique(sampling(0).integers(0, taxis, table.rows), return_inverse=True)
    return drawn.astype(np.int64)


def _statistics(owner: Ints, codes: Mapping[str, Ints], schema: Schema) -> dict[str, Ints]:
    """Samples of whole numbers, by name."""
    taxis = int(owner.max()) + 1
    cells = {name: schema.column(name).grouping.cell_of(codes[name]) for name in DISTINCT}
    distinct = {
        f"distinct {name}": distinct_values(owner, column, taxis) for name, column in cells.items()
    }
    per_shift = rows_of_values(owner, cells["shift"])[1]
    return {"rows": np.bincount(owner), **distinct, "rows per shift": per_shift}


def _apart(one: Ints, other: Ints) -> float:
    most = int(max(one.max(), other.max())) + 1
    first, second = (np.bincount(each, minlength=most) / len(each) for each in (one, other))
    return float(np.abs(first - second).sum() / 2)


def _pair_distance(table: Table, real: Trips) -> float:
    groupings = {column.name: column.grouping for column in real.schema.columns}
    ours, theirs = (
        {name: grouping.cell_of(codes[name]) for name, grouping in groupings.items()}
        for codes in (table.codes, real.codes)
    )
    distances = []
    for first, second in combinations(groupings, 2):
        width = groupings[second].cells
        pairs = [each[first] * width + each[second] for each in (ours, theirs)]
        distances.append(_apart(pairs[0], pairs[1]))
    return float(np.mean(distances))


if __name__ == "__main__":
    main()

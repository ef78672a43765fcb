"""Columns without a codebook: what a release measures of them, at what cost, and how accurately.

`incidents` with its neighbourhoods to be found, Adult with `fnlwgt` and `capital-gain` declared by
a wide public range alone and private bins. Costs come from each certificate, results from the
measurements, and the truth from the file, which only its custodian may compare with.
"""

from __future__ import annotations

import csv
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
from halftone_client import Halftone
from numpy.typing import NDArray

from bench.service.known_tables import specification
from bench.service.running import KEY, serving
from bench.shared_data import DATA

INCIDENTS = DATA / "incidents/baltimore_2019.csv"
ADULT = DATA / "adult/adult-raw.data"
NEIGHBOURHOOD = "Neighborhood"
RANGES = {"fnlwgt": (0, 2_000_000), "capital-gain": (0, 1_000_000)}
"""Wide enough for any value; no income from capital (0) is a point mass."""
EPSILONS = ("1", "10")
DELTA = "1e-6"


@dataclass(frozen=True)
class Step:
    """One kind of question that a release asked about a single column, before all others."""

    column: str
    mechanism: str
    questions: int
    rho: Decimal
    delta: Decimal


def report(runs: int) -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder, serving(Path(folder), workers=1) as (url, _):
        client = Halftone(url, KEY)
        yield from _found(client, runs)
        yield ""
        yield from _binned(client, runs)


def _found(client: Halftone, runs: int) -> Iterator[str]:
    truth = neighbourhoods()
    dataset = client.upload(incidents(), INCIDENTS, progress=False)
    yield "| epsilon | column | step | rho | delta | found | of them real | of | rows found |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for epsilon in EPSILONS:
        for _ in range(runs):
            release = _released(client, dataset, epsilon)
            (one,) = first_steps(client.certificate(release), [NEIGHBOURHOOD])
            found = discovered(client.measurements(release)["measurements"], NEIGHBOURHOOD)
            rows = sum(truth[name] for name in found) / truth.total()
            real = sum(name in truth for name in found)
            yield (
                f"| {epsilon} | {one.column} | {one.mechanism} | {one.rho:.6f} | {one.delta:.1e} | "
                f"{len(found)} | {real} | {len(truth)} | {rows:.1%} |"
            )


def _binned(client: Halftone, runs: int) -> Iterator[str]:
    numbers = adult_numbers()
    dataset = client.upload(adult(), ADULT, progress=False)
    # Fractions of the numbers that are not a point mass. `bound` is the largest error, with 95 %
    # confidence, in excess of that of the best point of the grid.
    yield "| epsilon | column | step | questions | rho | rank error | largest | bound |"
    yield "|---|---|---|---|---|---|---|---|"
    for epsilon in EPSILONS:
        for _ in range(runs):
            release = _released(client, dataset, epsilon)
            measured = client.measurements(release)["measurements"]
            for one in first_steps(client.certificate(release), list(RANGES)):
                errors = " | | "
                if one.mechanism == "quantile":
                    made = [each for each in quantiles(measured) if each["of"] == one.column]
                    real = [rank_error(numbers[one.column], each) for each in made]
                    bounds = [float(each["rank_error"]) for each in made]
                    rows = len(numbers[one.column])
                    errors = " | ".join(
                        f"{error / rows:.2%}"
                        for error in (np.mean(real), max(real), np.mean(bounds))
                    )
                yield (
                    f"| {epsilon} | {one.column} | {one.mechanism} | {one.questions} | "
                    f"{one.rho:.6f} | {errors} |"
                )


def _released(client: Halftone, dataset: Any, epsilon: str) -> Any:
    guarantee = {"epsilon": epsilon, "delta": DELTA}
    return client.release(dataset, "auto", guarantee, progress=False)


def incidents() -> dict[str, Any]:
    found = {"name": NEIGHBOURHOOD, "type": "string", "values": "discover", "other": "Other"}
    return _with(specification("baltimore_incidents"), {NEIGHBOURHOOD: found})


def adult() -> dict[str, Any]:
    fields = {}
    for name, (least, most) in RANGES.items():
        limits = {"required": True, "minimum": least, "maximum": most}
        field = {"name": name, "type": "integer", "constraints": limits, "bins": "quantiles"}
        fields[name] = field | ({"special": [0]} if name == "capital-gain" else {})
    return _with(specification("adult"), fields)


def _with(spec: dict[str, Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    listed = [fields.get(field["name"], field) for field in spec["schema"]["fields"]]
    return {**spec, "schema": {**spec["schema"], "fields": listed}}


def neighbourhoods() -> Counter[str]:
    """Rows of each neighbourhood of the file, without blanks."""
    with INCIDENTS.open(encoding="utf-8-sig") as file:
        names = (row[NEIGHBOURHOOD].strip() for row in csv.DictReader(file))
        return Counter(name for name in names if name)


def adult_numbers() -> dict[str, NDArray[np.int64]]:
    """The numbers whose quantiles are measured, without point masses."""
    with ADULT.open() as file:
        rows = [row for row in csv.reader(file, skipinitialspace=True) if row]
    names = [field["name"] for field in specification("adult")["schema"]["fields"]]
    columns = {name: np.array([int(row[names.index(name)]) for row in rows]) for name in RANGES}
    columns["capital-gain"] = columns["capital-gain"][columns["capital-gain"] != 0]
    return columns


def first_steps(certificate: Mapping[str, Any], columns: Sequence[str]) -> list[Step]:
    """What the questions about one of these columns alone cost, by column and kind of question."""
    lines = Counter(each["question"] for each in certificate["mechanisms"])
    sums: dict[tuple[str, str], Step] = {}
    for each in certificate["mechanisms"]:
        about = each["columns"]
        if lines[each["question"]] > 1 or len(about) != 1 or about[0][1:] or not about[0]:
            continue
        column, mechanism = about[0][0], _kind(each["mechanism"])
        if column in columns:
            before = sums.get((column, mechanism), Step(column, mechanism, 0, *[Decimal(0)] * 2))
            sums[column, mechanism] = Step(
                column,
                mechanism,
                before.questions + 1,
                before.rho + Decimal(each["loss"]["rho"]),
                before.delta + Decimal(each["loss"].get("delta", 0)),
            )
    return list(sums.values())


def _kind(mechanism: str) -> str:
    return "quantile" if mechanism.startswith("quantile") else mechanism


def discovered(measurements: Sequence[Mapping[str, Any]], column: str) -> list[str]:
    """The values that were found."""
    return [
        each[column]
        for measured in measurements
        for each in measured.get("listed") or ()
        if set(each) == {column}
    ]


def quantiles(measurements: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [measured["quantile"] for measured in measurements if measured.get("quantile")]


def rank_error(numbers: NDArray[np.int64], quantile: Mapping[str, Any]) -> float:
    """By how many numbers the point misses its rank; zero within a point mass that holds it."""
    point, rank = float(quantile["point"]), float(quantile["q"]) * len(numbers)
    below, up_to = np.sum(numbers < point), np.sum(numbers <= point)
    return float(max(below - rank, rank - up_to, 0))

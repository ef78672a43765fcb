"""The Sprint 3 scores of the systems on a table of Chicago taxi trips of two days of 2022.

A variant "as published" has the published split, mechanism and post-processing on the same
kernel, so that it lacks only the published errors of privacy.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from app.engine.catalog import registry
from app.engine.metrics import Sprint3Score, sprint3
from app.engine.privacy.loss import Guarantee
from bench.challenge.fitting import Refused, fitted, sampling, with_error
from bench.challenge.tables import ENTITY, TAXI, Trips, Values, sprint3_schema, trips, values_of

DELTA = 25 * 10**12  # 2.5e-5
EPSILONS = (1, 10)
PUBLIC = ("public_2022", "public_2019")
SPRINT3: Mapping[str, Any] = {"preset": "sprint3"}
OF_THE_MAP: Mapping[str, Any] = {
    "column_weights": {"pickup_community_area": 30, "dropoff_community_area": 30}
}
"""What the presets of others know of the challenge: that a third of the score is the map."""
OF_THE_MAP_IN_PAIRS: Mapping[str, Any] = {
    **OF_THE_MAP,
    "degree": 2,
    "shares": {"one_way": 0.1, "selection": 0.1, "marginals": 0.78, "bounds": 0.02},
}
"""The same for `aim`, whose usual workload is triples, and which spends more on columns."""


@dataclass(frozen=True)
class Entrant:
    """A system with its params, and how its guarantee is turned into a privacy loss.

    `pure` requests no delta, as for published Laplace noise; the pages of systems whose only
    question has L1 = L2 = 1 advise it too. `loose` gives the rho of the published conversion,
    (sqrt(epsilon + L) - sqrt(L))^2 with L = ln(2 / delta). `most_epsilon` is the value at which
    the published system clamped its epsilon. Without `public`, a system that can use public rows
    gets none.
    """

    system: str
    variant: str = ""
    form: Mapping[str, Any] = field(default_factory=dict)
    conversion: Literal["tight", "pure", "loose"] = "tight"
    most_epsilon: int | None = None
    public: bool = True

    @property
    def label(self) -> str:
        return f"{self.system}, {self.variant}" if self.variant else self.system


PUBLISHED = "as published"
ALONE = "no public rows"
ENTRANTS = (
    Entrant("archetypes", "", SPRINT3),
    Entrant(
        "archetypes",
        PUBLISHED,
        {
            **SPRINT3,
            "release": "split",
            "rows_per_entity": "public_mean",
            "attributes_per": "row",
            "regularisation": 1e-6,
            "post_processing": "clip",
        },
        most_epsilon=1,
    ),
    Entrant("linked_histograms", "", SPRINT3),
    Entrant("linked_histograms", "no public prior", {**SPRINT3, "prior": "independent"}),
    Entrant(
        "linked_histograms",
        PUBLISHED,
        {**SPRINT3, "prior": "none", "post_processing": "clip", "noise": "laplace"},
        conversion="pure",
    ),
    Entrant("class_resampling", "", SPRINT3, conversion="pure"),
    Entrant("class_resampling", "with a delta", SPRINT3),
    Entrant(
        "class_resampling",
        PUBLISHED,
        {**SPRINT3, "post_processing": "clip", "redraw": 0.8},
        conversion="pure",
    ),
    Entrant("aggregate_seeded", "", SPRINT3),
    Entrant(
        "aggregate_seeded",
        PUBLISHED,
        {
            **SPRINT3,
            "fabrication_mode": "uncontrolled",
            "number_of_records_epsilon_proportion": 0.005,
            "delta": 2.5e-5,
            "item_shares": "singles",
        },
        conversion="loose",
    ),
    Entrant("public_reweighted", "", SPRINT3),
    Entrant("public_reweighted", "defaults"),
    *(Entrant(system) for system in ("mst", "swift", "aim")),
    Entrant("swift", "the map weighs more", OF_THE_MAP),
    Entrant("aim", "the map weighs more", OF_THE_MAP_IN_PAIRS),
    *(Entrant(system, ALONE, public=False) for system in ("mst", "swift", "aim")),
    Entrant(
        "histogram",
        "the map by shift, distinct",
        {
            "columns": ["shift", "pickup_community_area", "dropoff_community_area"],
            "contribution": {"rule": "distinct", "limit": 10},
        },
    ),
    Entrant(
        "histogram",
        f"the map by shift, {PUBLISHED}",
        {
            "columns": ["shift", "pickup_community_area", "dropoff_community_area"],
            "post_processing": "clip",
        },
        conversion="pure",
    ),
)


def table(runs: int, only: Sequence[str] | None) -> str:
    """A Markdown table of scores, means over `runs`."""
    lines = [
        "| system | public rows | epsilon | K | P | H | mean | rows | seconds |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for line in _lines(runs, only):
        print(line, file=sys.stderr, flush=True)
        lines.append(line)
    return "\n".join(lines) + "\n"


def _lines(runs: int, only: Sequence[str] | None) -> Iterator[str]:
    schema = sprint3_schema()
    real = trips("private_2022", schema)
    public = {name: trips(name, schema) for name in PUBLIC}
    if not only:
        yield from _references(real, public, runs)
    known = {entry.name for entry in registry.entries()}
    for entrant in ENTRANTS:
        if entrant.system not in known or (only and entrant.system not in only):
            continue
        uses = entrant.public and registry.builtin(entrant.system).uses_public != "no"
        is_public = uses and entrant.form.get("prior") not in ("none", "independent")
        for name in PUBLIC if is_public else PUBLIC[:1]:
            shown = name if uses else "none"
            for epsilon in EPSILONS:
                yield _line(entrant, real, public[name], shown, epsilon, runs)


def _references(real: Trips, public: Mapping[str, Trips], runs: int) -> Iterator[str]:
    """Under the draws of taxis and tolerances that the runs of the systems are scored by."""
    rng = np.random.default_rng(0)
    tables = {
        "10 % subsample (not private)": real.subsample(0.1, rng),
        **{f"{name} as it is": trips_.values for name, trips_ in public.items()},
    }
    for label, values in tables.items():
        scores = [sprint3(real.values, values, np.random.default_rng(run)) for run in range(runs)]
        yield _row(label, "", "", scores, len(values[ENTITY]), None)


def _line(entrant: Entrant, real: Trips, public: Trips, shown: str, epsilon: int, runs: int) -> str:
    guarantee = _guarantee(entrant, epsilon)
    asked = f"{epsilon}, pure" if entrant.conversion == "pure" else str(epsilon)
    scores, rows = [], 0
    started = time.perf_counter()
    try:
        for run in range(runs):
            values = _synthetic(entrant, real, public, guarantee, run)
            rows += len(values[ENTITY])
            scores.append(sprint3(real.values, values, np.random.default_rng(run)))
    except Refused as refusal:
        return f"| {entrant.label} | {shown} | {asked} | refused: {refusal} |||||| "
    seconds = (time.perf_counter() - started) / runs
    return _row(entrant.label, shown, asked, scores, rows // runs, seconds)


def _guarantee(entrant: Entrant, epsilon: int) -> Guarantee:
    """What the system makes of a budget of this epsilon and the challenge's delta."""
    spent = min(epsilon, entrant.most_epsilon or epsilon)
    if entrant.conversion == "pure":
        return Guarantee(epsilon=spent * 10**12)
    if entrant.conversion == "tight":
        return Guarantee(epsilon=spent * 10**12, delta=DELTA)
    log = math.log(2 / (DELTA / 10**18))
    rho = (math.sqrt(spent + log) - math.sqrt(log)) ** 2
    return Guarantee(rho=int(rho * 10**12), delta=DELTA)


def _synthetic(
    entrant: Entrant, real: Trips, public: Trips, guarantee: Guarantee, seed: int
) -> Values:
    model = fitted(
        entrant.system,
        entrant.form,
        real.codes,
        real.schema,
        TAXI,
        guarantee,
        entities=real.values[ENTITY],
        public=public.as_public() if entrant.public else None,
        seed=seed,
    )
    return values_of(real.schema, model.sample(None, sampling(seed)))


def _row(
    label: str,
    public: str,
    epsilon: str,
    scores: Sequence[Sprint3Score],
    rows: int,
    seconds: float | None,
) -> str:
    parts = [(s.pairs, s.places, s.taxis, s.mean) for s in scores]
    shown = " | ".join(with_error(values) for values in zip(*parts, strict=True))
    time_taken = "" if seconds is None else f"{seconds:.0f}"
    return f"| {label} | {public} | {epsilon} | {shown} | {rows} | {time_taken} |"

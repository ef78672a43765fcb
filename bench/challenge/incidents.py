"""The Sprint 1 score of `histogram` on Baltimore's incidents of January to July 2019.

Columns made here from the file: `month` of CrimeDate (12), `neighborhood` upper-cased against
the challenge's 278 names (the rest is `other`), `incident_type` the file's 69 crime codes.
One person is taken to be one row, as the file has no id.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

from app.engine.metrics import sprint1
from app.engine.privacy.loss import Guarantee
from app.engine.schema import PrivacyUnit, Schema
from bench.challenge.fitting import fitted, with_error
from bench.challenge.tables import codes_of
from bench.shared_data import DATA

COLUMNS = ("neighborhood", "month", "incident_type")
OTHER = "OTHER"
EPSILONS = (0.5, 1, 2, 10)
POST_PROCESSING: Mapping[str, Mapping[str, Any]] = {
    "project": {"post_processing": "project"},
    "project, no prior": {"post_processing": "project", "prior": "none"},
    "threshold": {"post_processing": "threshold"},
    "clip": {"post_processing": "clip"},
}


def incidents() -> tuple[Schema, dict[str, Any]]:
    """The dictionary and the codes of the three columns."""
    file = pd.read_csv(DATA / "incidents/baltimore_2019.csv", dtype=str, keep_default_na=False)
    parameters = json.loads((DATA / "incidents/parameters-sprint1.json").read_text())
    names = [each["name"].upper() for each in parameters["schema"]["neighborhood"]]
    names = list(dict.fromkeys(names))
    found = file["Neighborhood"].str.strip().str.upper()
    values = {
        "neighborhood": found.where(found.isin(names), OTHER).to_numpy(),
        "month": pd.to_datetime(file["CrimeDate"], format="%m/%d/%Y").dt.month.to_numpy(),
        "incident_type": file["CrimeCode"].to_numpy(),
    }
    schema = Schema.parse(
        {
            "fields": [
                {
                    "name": "neighborhood",
                    "type": "string",
                    "constraints": {"enum": names, "required": True},
                    "other": OTHER,
                },
                {
                    "name": "month",
                    "type": "integer",
                    "constraints": {"minimum": 1, "maximum": 12, "required": True},
                },
                {
                    "name": "incident_type",
                    "type": "string",
                    "constraints": {"enum": sorted(set(file["CrimeCode"])), "required": True},
                },
            ]
        }
    )
    return schema, {name: codes_of(schema.column(name), values[name]) for name in COLUMNS}


def table(runs: int) -> str:
    """A Markdown table of scores, means over `runs`, and of the sum of the cells' errors."""
    lines = [
        "| post-processing | epsilon | score | of | L1 error | seconds |",
        "|---|---|---|---|---|---|",
    ]
    for line in _lines(runs):
        print(line, file=sys.stderr, flush=True)
        lines.append(line)
    return "\n".join(lines) + "\n"


def _lines(runs: int) -> Iterator[str]:
    schema, codes = incidents()
    shape = tuple(schema.column(name).codes for name in COLUMNS)
    cells = np.ravel_multi_index(tuple(codes[name] for name in COLUMNS), shape)
    real = np.bincount(cells, minlength=int(np.prod(shape))).reshape(shape)
    most = shape[0] * shape[1]
    for label, params in POST_PROCESSING.items():
        for epsilon in EPSILONS:
            started = time.perf_counter()
            guarantee = Guarantee(epsilon=round(epsilon * 10**12))
            form = {"columns": list(COLUMNS), **params}
            scores, errors = [], []
            for run in range(runs):
                model = fitted(
                    "histogram", form, codes, schema, PrivacyUnit("row"), guarantee, seed=run
                )
                made = model.counts().values
                scores.append(sprint1(real, made))
                errors.append(np.abs(made - real).sum())
            seconds = (time.perf_counter() - started) / runs
            yield (
                f"| {label} | {epsilon} | {with_error(scores)} | {most} | {np.mean(errors):.0f}"
                f" | {seconds:.0f} |"
            )
    nothing = np.zeros_like(real)
    yield f"| all counts 0 | | {sprint1(real, nothing):.0f} | {most} | {real.sum()} | |"

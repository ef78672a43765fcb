"""Golden runs: what each built-in asks, in order, and the rows that it makes, as recorded.

Every request of `golden_requests` runs on the real kernel with seeded noise. The questions, their
cells, contribution rules and losses, and the kernel's answers are equal to those recorded in
`records/`. Weights and totals of references are floats and compared with a tolerance. Models
recorded in `models/` are read as stored releases are, and give the rows recorded beside them.

A failure here means that a method asks or makes something else than it did. If that was meant,
record anew: see `record.py`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from golden_records import differences, recorded
from golden_requests import REQUESTS, Request
from golden_runs import load_and_sample, run, stored_sample
from numpy.typing import NDArray

from app.engine.catalog import registry

# A rounding of such a float may move a few rows of a sample.
LEAST_EQUAL = 0.98


def share_equal(found: dict[str, NDArray[Any]], golden: dict[str, NDArray[Any]]) -> float:
    assert list(found) == list(golden)
    assert {name: len(codes) for name, codes in found.items()} == {
        name: len(codes) for name, codes in golden.items()
    }
    return float(np.mean([np.mean(found[name] == golden[name]) for name in golden]))


def test_every_built_in_is_pinned() -> None:
    pinned = {(request.method, request.unit.kind) for request in REQUESTS}
    rows_needed = {"class_resampling"}  # which is for entities alone
    for entry in registry.entries():
        if entry.builtin:
            assert (entry.name, "entity") in pinned
            assert (entry.name, "row") in pinned or entry.name in rows_needed


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda request: request.name)
def test_a_run_asks_what_it_asked_and_makes_the_rows_that_it_made(request_: Request) -> None:
    made = run(request_)
    assert differences(made.record, recorded(request_.name)) == []
    assert share_equal(made.sample, stored_sample(request_)) >= LEAST_EQUAL


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda request: request.name)
def test_a_stored_model_loads_and_gives_the_rows_that_it_gave(request_: Request) -> None:
    found = load_and_sample(request_, recorded(request_.name)["found"])
    assert share_equal(found, stored_sample(request_)) >= LEAST_EQUAL

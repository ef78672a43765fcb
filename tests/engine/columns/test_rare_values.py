"""Rare values: merged while pairs are counted, each restored by its own noisy count."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from small_tables import ROW, quiet, session_on

from app.engine.privacy.loss import PrivacyLoss
from app.engine.privacy.queries import Count
from app.engine.schema import Schema
from app.engine.synthesizers.aim import Aim
from app.engine.synthesizers.aim.params import AimParams
from app.engine.synthesizers.independent import Independent, IndependentParams
from app.engine.synthesizers.mst import Mst, MstParams
from app.engine.synthesizers.swift import Swift
from app.engine.synthesizers.swift.params import SwiftParams
from app.engine.table import generator

MERGING: list[tuple[Any, Any]] = [
    (Mst(), MstParams(rare_below=4)),
    (Swift(), SwiftParams(rare_below=4)),
    (Aim(), AimParams(rare_below=4)),
]
ALL: list[tuple[Any, Any]] = [*MERGING, (Independent(), IndependentParams())]
LOSS = PrivacyLoss.zcdp(6 * 10**10)
"""Noise of 7 rows or more in a cell of a column: all but the large towns are below 4 times it."""

LARGE, UNCOMMON, SCARCE = 4, 120, 120
ROWS = 12_000


def towns() -> tuple[Schema, dict[str, NDArray[np.int64]]]:
    """Four large towns, 120 of 20 rows and 120 of 2, in no order; and what goes with small ones."""
    names = [f"town {number}" for number in range(LARGE + UNCOMMON + SCARCE)]
    fields: list[dict[str, Any]] = [
        {"name": "town", "type": "string", "constraints": {"enum": names, "required": True}},
        {"name": "farm", "type": "boolean", "constraints": {"required": True}},
        {
            "name": "size",
            "type": "integer",
            "constraints": {"minimum": 0, "maximum": 5, "required": True},
        },
    ]
    small = np.repeat(np.arange(LARGE, len(names)), [20] * UNCOMMON + [2] * SCARCE)
    large = np.arange(ROWS - small.size) % LARGE
    town = np.concatenate([large, small]).astype(np.int64)
    rng = np.random.default_rng(3)
    farm = (rng.random(ROWS) < np.where(town < LARGE, 0.1, 0.9)).astype(np.int64)
    return Schema.parse({"fields": fields}), {
        "town": town,
        "farm": farm,
        "size": rng.integers(0, 6, ROWS),
    }


def fitted(synthesizer: Any, params: Any) -> tuple[dict[str, NDArray[np.int64]], list[Count]]:
    """A sample of 40,000 rows, and the counts of pairs that were asked for."""
    schema, codes = towns()
    session = session_on(schema, codes, LOSS)
    asked: list[Count] = []
    count = session.count

    def heard(queries: Any, *rest: Any) -> Any:
        asked.extend(query for query in queries if len(query.columns) > 1)
        return count(queries, *rest)

    session.count = heard  # type: ignore[method-assign, assignment]
    model = synthesizer.fit(session, params, None, 1, quiet)
    loaded = synthesizer.load(schema, ROW, model.dump())
    return loaded.sample(40_000, generator(4)).codes, asked


@pytest.mark.parametrize(("synthesizer", "params"), ALL, ids=[each.name for each, _ in ALL])
def test_rare_values_come_back_as_often_as_they_were_counted(synthesizer: Any, params: Any) -> None:
    """A sum of 240 counts strays by 400 with a chance of less than 1e-6."""
    small = UNCOMMON + SCARCE
    counts = np.bincount(fitted(synthesizer, params)[0]["town"], minlength=LARGE + small)
    drawn = counts * ROWS / 40_000
    uncommon, scarce = drawn[LARGE : LARGE + UNCOMMON], drawn[LARGE + UNCOMMON :]
    assert abs(uncommon.sum() + scarce.sum() - 2640) < 400
    assert uncommon.mean() > 1.2 * scarce.mean()
    assert np.sum(uncommon > 0) > 60, "they are not drawn as one of them"
    assert np.abs(drawn[:LARGE] - 2340).max() < 150


@pytest.mark.parametrize(("synthesizer", "params"), MERGING, ids=[each.name for each, _ in MERGING])
def test_pairs_are_counted_in_merged_values_whose_relations_all_of_them_keep(
    synthesizer: Any, params: Any
) -> None:
    drawn, asked = fitted(synthesizer, params)
    cells = [each.groupings["town"].cells for each in asked if "town" in each.columns]
    assert cells
    assert max(cells) <= LARGE + UNCOMMON
    is_small = drawn["town"] >= LARGE
    assert np.mean(drawn["farm"][is_small]) > 0.6
    assert np.mean(drawn["farm"][~is_small]) < 0.2

"""The bounds that `aim` states with 95 % confidence hold that often, on real fits."""

from __future__ import annotations

import numpy as np
import pytest
import scipy
from acceptance import FALSE_ALARM

from app.engine.privacy.library import open_session
from app.engine.privacy.loss import PrivacyLoss
from app.engine.schema import PrivacyUnit, Schema
from app.engine.synthesizers.aim import Aim
from app.engine.synthesizers.aim.params import AimParams, Shares

RUNS = 240
ROWS = 600
CELLS = {"a": 3, "b": 24, "c": 4}
ROW = PrivacyUnit("row")
COUPLE = PrivacyUnit("entity", "id", 2)


def table() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    a = rng.integers(0, 3, ROWS)
    b = np.minimum(rng.geometric(0.15, ROWS) + 2 * a, 24) - 1
    return {"a": a, "b": b, "c": (a + (b > 5) + rng.integers(0, 2, ROWS)) % 4}


def schema(entity: bool) -> Schema:
    fields: list[dict[str, object]] = [
        {
            "name": name,
            "type": "integer",
            "constraints": {"minimum": 0, "maximum": size - 1, "required": True},
        }
        for name, size in CELLS.items()
    ]
    if entity:
        fields.insert(0, {"name": "id", "type": "string", "role": "entity"})
    return Schema.parse({"fields": fields})


def exact(columns: tuple[str, ...]) -> np.ndarray:
    codes = table()
    shares = np.zeros([CELLS[name] for name in columns])
    np.add.at(shares, tuple(codes[name] for name in columns), 1 / ROWS)
    return shares


def _silent(fraction: float, stage: str) -> None:
    del fraction, stage


@pytest.mark.parametrize(
    ("unit", "loss"), [(ROW, PrivacyLoss.zcdp(10**12)), (COUPLE, PrivacyLoss.pure(4 * 10**13))]
)
def test_each_bound_holds_in_95_percent_of_runs(unit: PrivacyUnit, loss: PrivacyLoss) -> None:
    """For each marginal the misses are a binomial of at most 5 %; and bounds say something."""
    entity = unit.kind == "entity"
    entities = np.arange(ROWS) // 2 if entity else None
    form = AimParams(
        shares=Shares(one_way=0.55, selection=0.05, marginals=0.37, bounds=0.03), rare_below=2.0
    )
    missed: dict[tuple[str, ...], int] = {}
    slack: list[float] = []
    for seed in range(RUNS):
        session = open_session(table(), schema(entity), unit, loss, entities=entities)
        model = Aim().fit(session, form, None, seed, _silent)
        for error in model.expected_errors():
            (shares,) = model.table.marginals([error.columns])
            distance = np.abs(shares - exact(error.columns)).sum() / 2
            missed[error.columns] = missed.get(error.columns, 0) + (distance > error.distance)
            slack.append(float(error.distance - distance))
    assert len(missed) == 7
    for columns, misses in missed.items():
        test = scipy.stats.binomtest(misses, RUNS, 0.05, alternative="greater")
        assert test.pvalue >= FALSE_ALARM / len(missed), columns
    assert np.mean(slack) < 0.08, "bounds that are far from the errors say too little"

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from acceptance import Law, accepts_law, discrete_gaussian, discrete_laplace

from app.engine.privacy.library import open_session
from app.engine.privacy.loss import PrivacyLoss
from app.engine.privacy.queries import Measurement
from app.engine.schema import PrivacyUnit, Schema
from app.engine.synthesizers.histogram import Histogram, HistogramParams

UNIT = PrivacyUnit("entity", "id", 5)
FIELDS = [
    {"name": "id", "type": "string", "role": "entity"},
    *(
        {
            "name": name,
            "type": "integer",
            "constraints": {"required": True, "minimum": 0, "maximum": 149},
        }
        for name in ("one", "other")
    ),
]


@pytest.mark.parametrize(
    ("loss", "law", "scale"),
    [
        (PrivacyLoss.zcdp(10**12), discrete_gaussian, 5 / math.sqrt(2 * 0.94)),
        (PrivacyLoss.pure(10**12), discrete_laplace, 5 / 0.85),
    ],
)
def test_the_cells_of_a_run_carry_the_stated_noise_and_no_other(
    loss: PrivacyLoss, law: Callable[[float], Law], scale: float
) -> None:
    """The numbers of rows and of entities take 6 % of a rho, 15 % of an epsilon."""
    schema = Schema.parse({"fields": FIELDS})
    rows = {name: np.zeros(30, dtype=np.int64) for name in ("one", "other")}
    session = open_session(rows, schema, UNIT, loss, entities=np.arange(30) // 3)
    heard: list[Measurement] = []

    def count(*question: Any) -> tuple[Measurement, ...]:
        heard.extend(session.count(*question))
        return tuple(heard)

    listening: Any = SimpleNamespace(
        schema=schema, unit=UNIT, allowance=loss, remaining=session.remaining, count=count
    )
    Histogram().fit(listening, HistogramParams(), None, 1, lambda *_: None)
    cells = heard[0]
    noise = cells.values.ravel().copy()
    noise[0] -= 30
    assert cells.scale == pytest.approx(scale, rel=1e-6)
    assert accepts_law(noise, law(scale), scale)
    for off in (0.9, 1.1):
        assert not accepts_law(noise, law(off * scale), scale)

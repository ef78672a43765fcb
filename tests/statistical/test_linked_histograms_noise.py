from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from acceptance import Law, accepts_law, discrete_gaussian, discrete_laplace

from app.engine.privacy.library import open_session
from app.engine.privacy.loss import PrivacyLoss
from app.engine.privacy.unit_budget import UnitBudget
from app.engine.schema import PrivacyUnit, Schema
from app.engine.synthesizers.linked_histograms.params import LinkedHistogramsParams
from app.engine.synthesizers.linked_histograms.planning import make_plan

UNIT = PrivacyUnit("entity", "id", 10)
FIELDS = [
    {"name": "id", "type": "string", "role": "entity"},
    *(
        {
            "name": name,
            "type": "integer",
            "constraints": {"required": True, "minimum": 0, "maximum": most},
        }
        for name, most in (("one", 199), ("other", 99), ("third", 9))
    ),
]


@pytest.mark.parametrize(
    ("loss", "law", "scale"),
    [
        (PrivacyLoss.zcdp(10**11), discrete_gaussian, math.sqrt(2 * 5 + 2) / math.sqrt(0.2)),
        (PrivacyLoss.pure(2 * 10**12), discrete_laplace, (2 * 5 + 2) / 2),
    ],
)
def test_histograms_carry_the_stated_noise_and_no_other(
    loss: PrivacyLoss, law: Callable[[float], Law], scale: float
) -> None:
    schema = Schema.parse({"fields": FIELDS})
    groups = [{"columns": ["one", "other"]}, {"columns": ["third"]}]
    form = LinkedHistogramsParams.model_validate({"groups": groups, "samples": 5})
    plan, _, problems = make_plan(schema, form, UnitBudget(UNIT, loss))
    assert not problems
    rows = {name: np.zeros(30, dtype=np.int64) for name in ("one", "other", "third")}
    session = open_session(rows, schema, UNIT, loss, entities=np.arange(30) // 3)
    _, _, noisy, _ = session.count(plan.questions(), loss, plan.weights(UNIT))
    noise = noisy.values.ravel().copy()
    noise[0] -= 10
    assert noisy.scale == pytest.approx(scale, rel=1e-6)
    assert accepts_law(noise, law(noisy.scale), noisy.scale)
    for off in (0.9, 1.1):
        assert not accepts_law(noise, law(off * noisy.scale), noisy.scale)

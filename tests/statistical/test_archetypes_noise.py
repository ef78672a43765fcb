from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from acceptance import Law, accepts_law, discrete_gaussian, discrete_laplace

from app.engine.privacy.declared import MixtureMode
from app.engine.privacy.library import open_session
from app.engine.privacy.loss import PrivacyLoss
from app.engine.schema import PrivacyUnit, Schema
from app.engine.synthesizers.archetypes.params import ArchetypesParams, Design

CELLS = 20_000
UNIT = PrivacyUnit("entity", "id", 5)
SCHEMA = Schema.parse(
    {
        "fields": [
            {"name": "id", "type": "string", "role": "entity"},
            *(
                {
                    "name": name,
                    "type": "integer",
                    "constraints": {"required": True, "minimum": 0, "maximum": CELLS - 1},
                }
                for name in ("place", "firm")
            ),
        ]
    }
)


def wide_mixture() -> MixtureMode:
    """A component for each place, so that its histogram has enough noise to judge."""
    ones = np.ones((CELLS, 1))
    means = np.arange(float(CELLS))[:, None]
    return MixtureMode(("place",), np.zeros(1), np.ones(1), ones[:, 0] / CELLS, means, ones)


@pytest.mark.parametrize(
    ("loss", "law", "scales"),
    [
        (PrivacyLoss.zcdp(10**11), discrete_gaussian, [math.sqrt(2) / math.sqrt(0.2)] * 2),
        (PrivacyLoss.pure(10**12), discrete_laplace, [2.0, 2.0]),
    ],
)
def test_both_histograms_carry_the_stated_noise_and_no_other(
    loss: PrivacyLoss, law: Callable[[float], Law], scales: list[float]
) -> None:
    form = {"features": ["place"], "attributes": ["firm"], "conditionals": []}
    design = Design(ArchetypesParams.model_validate(form), SCHEMA, UNIT)
    rows = {"place": np.full(30, 7), "firm": np.full(30, 7)}
    session = open_session(rows, SCHEMA, UNIT, loss, entities=np.arange(30) // 3)
    answers = session.count(design.questions(wide_mixture()), loss, design.weights(loss))
    for answer, scale in zip(answers, scales, strict=True):
        assert answer.scale == pytest.approx(scale, rel=1e-6)
        noise = answer.values.ravel().copy()
        noise[7] -= 10
        assert accepts_law(noise, law(scale), scale)
        for off in (0.9, 1.1):
            assert not accepts_law(noise, law(off * scale), scale)

"""Scores out of the kernel, against the noise that is stated of them."""

from __future__ import annotations

import numpy as np
import pytest
from acceptance import FEWEST_DRAWS, accepts_law, discrete_gaussian, discrete_laplace

from app.engine.privacy.library import open_session
from app.engine.privacy.loss import PrivacyLoss
from app.engine.privacy.queries import Candidate, Contribution, Count
from app.engine.schema import PrivacyUnit, Schema

DRAWS = FEWEST_DRAWS
SIGMA = 0.5
"""In counts: 512 steps of the grid on which distances are noised."""
SCHEMA = Schema.parse(
    {
        "fields": [
            {
                "name": "a",
                "type": "integer",
                "constraints": {"minimum": 0, "maximum": 4, "required": True},
            }
        ]
    }
)


@pytest.mark.parametrize(
    ("kind", "rule", "moved"), [("zcdp", Contribution(), 3.0), ("pure", Contribution("one"), 1.0)]
)
def test_noise_has_the_stated_scale_and_not_one_10_percent_off(
    kind: str, rule: Contribution, moved: float
) -> None:
    """Half the candidates weigh twice as much as the others, and so have half their noise."""
    light, heavy = (
        Candidate(Count(("a",), contribution=rule), (np.full(5, 1.5),), weight)
        for weight in (1.0, 2.0)
    )
    l1 = DRAWS * moved * (1 + 1 / 2)
    l2_squared = DRAWS * moved**2 * (1 + 1 / 4)
    if kind == "zcdp":
        loss = PrivacyLoss.zcdp(round(l2_squared / (2 * SIGMA**2) * 10**12))
    else:
        loss = PrivacyLoss.pure(round(l1 / SIGMA * 10**12))
    session = open_session(
        {"a": np.array([2, 2, 4])},
        SCHEMA,
        PrivacyUnit("entity", "id", 3),
        loss,
        entities=np.zeros(3, dtype=np.int64),
    )
    answer = session.scores([light] * DRAWS + [heavy] * DRAWS, loss)
    assert answer.l1_sensitivity == pytest.approx(l1)
    assert answer.l2_sensitivity == pytest.approx(l2_squared**0.5)
    exact = 1.5 * 3 + 0.5 + 0.5 if rule.rule == "rows" else 1.5 * 4 + 0.5
    noise = np.rint((answer.values - exact) * 1024).astype(np.int64)
    law = discrete_gaussian if kind == "zcdp" else discrete_laplace
    for part, scale in ((noise[DRAWS:], SIGMA * 1024), (noise[:DRAWS], 2 * SIGMA * 1024)):
        assert accepts_law(part, law(scale), scale)
        assert not accepts_law(part, law(scale * 1.1), scale)
        assert not accepts_law(part, law(scale / 1.1), scale)

"""The published scales as formulas, and what the kernel's noise is beside them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from published_gaussian import analytic_scale, classical_scale

from app.engine.privacy.accounting import open_guarantee
from app.engine.privacy.declared import MixtureMode
from app.engine.privacy.library import open_session
from app.engine.privacy.loss import Accountant, Guarantee, PrivacyLoss
from app.engine.schema import PrivacyUnit, Schema
from app.engine.synthesizers.archetypes.params import ArchetypesParams, Design

DELTA = 2.5e-5
TAXI = PrivacyUnit("entity", "taxi", 200)
WHOLE = {"minimum": 0, "maximum": 100, "required": True}
SCHEMA = Schema.parse(
    {
        "fields": [
            {"name": "taxi", "type": "string", "role": "entity"},
            {"name": "shift", "type": "integer", "constraints": WHOLE},
            {"name": "company", "type": "integer", "constraints": WHOLE},
        ]
    }
)
ONES = np.ones((10, 1))
MIXTURE = MixtureMode(("shift",), ONES[0], ONES[0], ONES[:, 0] / 10, np.arange(10.0)[:, None], ONES)


def test_the_analytic_scales_of_the_published_split_and_of_one_joint_release() -> None:
    assert analytic_scale(0.1, 0.1 * DELTA) == pytest.approx(34.2, abs=0.05)
    assert analytic_scale(0.9, 0.9 * DELTA) == pytest.approx(3.90, abs=0.005)
    assert analytic_scale(1, DELTA, math.sqrt(2)) == pytest.approx(4.98, abs=0.005)


def test_the_classical_scales_are_those_of_epsilon_1_whatever_was_paid() -> None:
    assert classical_scale(0.1, 0.1 * DELTA) == pytest.approx(10 * math.sqrt(2 * math.log(5e5)))
    assert classical_scale(9, 0.9 * DELTA) == pytest.approx(classical_scale(1, 0.9 * DELTA))
    assert classical_scale(9, 0.9 * DELTA) > 6 * analytic_scale(9, 0.9 * DELTA)


def scales(epsilon: int, **form: object) -> list[float]:
    loss = _loss(epsilon)
    params = ArchetypesParams.model_validate(
        {"features": ["shift"], "attributes": ["company"], "conditionals": [], **form}
    )
    design = Design(params, SCHEMA, TAXI)
    codes = {"shift": np.zeros(4, dtype=np.int64), "company": np.zeros(4, dtype=np.int64)}
    session = open_session(codes, SCHEMA, TAXI, loss, entities=np.arange(4))
    answers = session.count(design.questions(MIXTURE), loss, design.weights(loss))
    assert session.remaining.amount <= 5
    return [answer.scale for answer in answers]


def _loss(epsilon: int) -> PrivacyLoss:
    guarantee = Guarantee(epsilon=epsilon * 10**12, delta=int(DELTA * 10**18))
    return open_guarantee(guarantee, Accountant.BASIC)[1]


@pytest.mark.parametrize("epsilon", [1, 10])
def test_the_joint_release_is_near_the_analytic_scale_and_never_below_it(epsilon: int) -> None:
    """Its discrete noise is calibrated by zCDP, which costs a tenth at epsilon 1."""
    least = analytic_scale(epsilon, DELTA, math.sqrt(2))
    for scale in scales(epsilon):
        assert least <= scale <= 1.35 * least


@pytest.mark.parametrize("epsilon", [1, 10])
def test_the_joint_release_has_a_smaller_total_error_than_the_published_split(epsilon: int) -> None:
    archetypes, company = scales(epsilon)
    published = [analytic_scale(share * epsilon, share * DELTA) for share in (0.1, 0.9)]
    cells = (10, 101)
    ours = cells[0] * archetypes**2 + cells[1] * company**2
    assert ours < cells[0] * published[0] ** 2 + cells[1] * published[1] ** 2


@pytest.mark.parametrize("epsilon", [1, 10])
def test_the_split_that_stays_available_is_no_noisier_than_the_classical_one(epsilon: int) -> None:
    split = scales(epsilon, release="split")
    for scale, share in zip(split, (0.1, 0.9), strict=True):
        assert scale < classical_scale(share * min(epsilon, 1), share * DELTA)
    assert split[0] == pytest.approx(9 * split[1], rel=1e-6)

"""Functions, sums, tuples, quantiles and keys out of the kernel, against their stated laws."""

from __future__ import annotations

from math import exp

import numpy as np
import pytest
from acceptance import (
    accepts_frequencies,
    accepts_law,
    accepts_probability,
    discrete_gaussian,
    discrete_laplace,
)

from app.engine.privacy.declared import MixtureMode, RowNumber
from app.engine.privacy.discovery import gaussian_tail
from app.engine.privacy.kernel import Kernel
from app.engine.privacy.library import LocalSession, open_session
from app.engine.privacy.loss import PrivacyLoss
from app.engine.privacy.queries import Count, Keys, Quantile, Query, Sum, TupleCount, Tuples
from app.engine.privacy.questions import DiscoverQuestion, Quantiled, QuantileQuestion
from app.engine.privacy.source import ArraySource
from app.engine.schema import PrivacyUnit, Schema

ONE = 10**12
DRAWS = 40_000
SCHEMA = Schema.parse(
    {
        "fields": [
            {
                "name": name,
                "type": "integer",
                "constraints": {"minimum": 0, "maximum": top, "required": True},
            }
            for name, top in (("a", DRAWS - 1), ("b", 9))
        ]
    }
)
SINGLES = Tuples(("a",), {}, np.arange(DRAWS, dtype=np.int32)[:, None])


def one_entity(allowance: PrivacyLoss) -> LocalSession:
    """One entity with rows (5, 2), (5, 4) and (7, 9)."""
    codes = {"a": np.array([5, 5, 7]), "b": np.array([2, 4, 9])}
    unit = PrivacyUnit("entity", "id", 3)
    return open_session(codes, SCHEMA, unit, allowance, entities=np.zeros(3, dtype=np.int64))


@pytest.mark.parametrize("kind", ["zcdp", "pure"])
@pytest.mark.parametrize(
    ("query", "exact", "l1", "l2"),
    [
        (Count.of_units(RowNumber(DRAWS)), {2: 1}, 1.0, 1.0),
        (Sum("b", 3, 6, ("a",)), {5: 3 + 4, 7: 6}, 18.0, 18.0),
        (TupleCount(SINGLES, 4), {5: 1, 7: 1}, 4.0, 2.0),
    ],
    ids=["function", "sum", "tuples"],
)
def test_noise_has_the_stated_scale_and_not_one_10_percent_off(
    kind: str, query: Query, exact: dict[int, int], l1: float, l2: float
) -> None:
    allowance = PrivacyLoss.zcdp(ONE // 50) if kind == "zcdp" else PrivacyLoss.pure(ONE // 5)
    (measurement,) = one_entity(allowance).count([query], allowance)
    assert (measurement.l1_sensitivity, measurement.l2_sensitivity) == (l1, l2)
    noise = measurement.values.copy()
    for cell, value in exact.items():
        noise[cell] -= value
    law, scale = (discrete_gaussian, 5 * l2) if kind == "zcdp" else (discrete_laplace, 5 * l1)
    assert measurement.scale == pytest.approx(scale)
    assert accepts_law(noise, law(scale), scale)
    assert not accepts_law(noise, law(scale * 1.1), scale)
    assert not accepts_law(noise, law(scale / 1.1), scale)


def quantiles(loss: PrivacyLoss, draws: int) -> tuple[list[float], float, np.ndarray]:
    """Draws of the 0.9-quantile of rows 0..9, the stated scale, and the scores by hand."""
    codes = {"a": np.zeros(10, dtype=np.int64), "b": np.arange(10)}
    source = ArraySource(SCHEMA, PrivacyUnit("row"), codes)
    kernel = Kernel(source, PrivacyLoss(loss.kind, loss.amount * draws))
    admitted = kernel.admit(QuantileQuestion(Quantile("b", 0.9, (-1.0, 2.0, 5.0, 8.0, 9.0)), loss))
    answers = [kernel.answer(admitted) for _ in range(draws)]
    told = [answer for answer in answers if isinstance(answer, Quantiled)]
    # 9 numbers lie below the quantile; at or below -1, 2, 5, 8, 9 there are 0, 3, 6, 9, 10.
    return [each.value for each in told], told[0].scale, -np.array([9, 6, 3, 0, 0])


def test_a_quantile_is_the_exponential_mechanism_at_the_stated_scale() -> None:
    loss = PrivacyLoss.zcdp(ONE // 50)  # epsilon 0.4
    values, scale, scores = quantiles(loss, 10_000)
    assert scale == pytest.approx(2 * 0.9 / 0.4, rel=1e-5)
    observed = [values.count(point) for point in (-1.0, 2.0, 5.0, 8.0, 9.0)]
    assert accepts_frequencies(np.array(observed), np.exp(scores / scale))
    assert not accepts_frequencies(np.array(observed), np.exp(scores / scale * 1.25))
    assert not accepts_frequencies(np.array(observed), np.exp(scores / scale / 1.25))


def test_a_key_of_one_unit_is_found_as_seldom_as_stated() -> None:
    delta = 10**17  # 0.1
    loss = PrivacyLoss.zcdp(ONE // 8, delta)  # sigma 2 for one key
    codes = {"a": np.arange(DRAWS), "b": np.zeros(DRAWS, dtype=np.int64)}
    source = ArraySource(SCHEMA, PrivacyUnit("row"), codes)
    kernel = Kernel(source, loss)
    found = kernel.answer(kernel.admit(DiscoverQuestion(Keys(("a",)), loss)))
    assert found.scale == pytest.approx(2.0)
    assert found.threshold == 5
    tail = gaussian_tail(found.scale, found.threshold - 1)
    assert tail <= 0.1 < gaussian_tail(found.scale, found.threshold - 2)
    assert accepts_probability(len(found.keys), DRAWS, tail)
    for wrong in (found.scale * 1.1, found.scale / 1.1):
        assert not accepts_probability(len(found.keys), DRAWS, gaussian_tail(wrong, 4))
    kept = found.values - 1  # the noise, cut off below threshold - 1
    weights = np.array([exp(-(value**2) / 8) for value in range(4, 7)])
    weights[-1] = sum(exp(-(value**2) / 8) for value in range(6, 60))
    observed = np.bincount(np.minimum(kept, 6))[4:7]
    assert accepts_frequencies(observed, weights)


def test_tied_components_are_drawn_evenly() -> None:
    people = 20_000
    codes = {"a": np.zeros(2 * people, dtype=np.int64), "b": np.tile([0, 9], people)}
    mixture = MixtureMode(
        ("b",), np.zeros(1), np.ones(1), np.full(2, 0.5), np.array([[0.0], [9.0]]), np.ones((2, 1))
    )
    allowance = PrivacyLoss.pure(2**61)
    unit = PrivacyUnit("entity", "id", 2)
    ids = np.repeat(np.arange(people), 2)
    session = open_session(codes, SCHEMA, unit, allowance, entities=ids)
    (measured,) = session.count([Count.of_units(mixture)], allowance)
    assert measured.values.sum() == people
    assert accepts_frequencies(measured.values, np.ones(2))
    assert not accepts_frequencies(measured.values, np.array([1.2, 1]))

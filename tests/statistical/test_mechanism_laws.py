"""Noise and draws as they come out of the kernel, against the laws they are stated to have."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from math import exp
from typing import Any
from unittest import mock

import numpy as np
import pytest
from acceptance import (
    Law,
    accepts_frequencies,
    accepts_law,
    accepts_probability,
    discrete_gaussian,
    discrete_laplace,
)
from numpy.typing import NDArray

import app.engine.privacy.kernel
from app.engine.privacy.bounding import bounded_by
from app.engine.privacy.kernel import Kernel
from app.engine.privacy.library import LocalSession, open_session
from app.engine.privacy.loss import PrivacyLoss
from app.engine.privacy.noise import noisy_winners
from app.engine.privacy.queries import Candidate, Contribution, Count, Measurement
from app.engine.privacy.questions import Selected, SelectQuestion
from app.engine.privacy.source import ArraySource
from app.engine.schema import PrivacyUnit, Schema

ONE = 10**12
DRAWS = 40_000


def schema(**sizes: int) -> Schema:
    fields = [
        {
            "name": name,
            "type": "integer",
            "constraints": {"minimum": 0, "maximum": size - 1, "required": True},
        }
        for name, size in sizes.items()
    ]
    return Schema.parse({"fields": fields})


def entities_of(rows: int, max_rows: int, allowance: PrivacyLoss) -> LocalSession:
    """One entity with `rows` rows in cell 5 of many."""
    unit = PrivacyUnit("entity", "id", max_rows)
    codes = {"a": np.full(rows, 5)}
    return open_session(
        codes, schema(a=DRAWS), unit, allowance, entities=np.zeros(rows, dtype=np.int64)
    )


def noise_of(
    session: LocalSession, contribution: Contribution, exact: int
) -> tuple[Measurement, NDArray[np.int64]]:
    (measurement,) = session.count([Count(("a",), contribution=contribution)], session.allowance)
    noise = measurement.values.copy()
    noise[5] -= exact
    return measurement, noise


@pytest.mark.parametrize(
    ("allowance", "contribution", "exact", "law"),
    [
        (PrivacyLoss.zcdp(ONE // 50), Contribution(), 3, discrete_gaussian),
        (PrivacyLoss.zcdp(2 * ONE), Contribution("distinct", limit=2), 1, discrete_gaussian),
        (PrivacyLoss.pure(ONE // 10), Contribution("one"), 1, discrete_laplace),
        (PrivacyLoss.pure(2 * ONE), Contribution(), 3, discrete_laplace),
    ],
    ids=["gaussian", "narrow gaussian", "laplace", "narrow laplace"],
)
def test_noise_has_the_stated_scale_and_not_one_10_percent_off(
    allowance: PrivacyLoss, contribution: Contribution, exact: int, law: Callable[[float], Law]
) -> None:
    measurement, noise = noise_of(entities_of(3, 3, allowance), contribution, exact)
    scale = measurement.scale
    assert accepts_law(noise, law(scale), scale)
    assert not accepts_law(noise, law(scale * 1.1), scale)
    assert not accepts_law(noise, law(scale / 1.1), scale)
    deviation = float(noise.std())
    assert deviation == pytest.approx(measurement.standard_error, rel=0.05)


def test_clipped_noise_has_the_stated_error() -> None:
    allowance = PrivacyLoss.zcdp(ONE // 50)
    session = entities_of(3, 3, allowance)
    measurement, noise = noise_of(session, Contribution("clipped", norm=2.0), 2)
    assert measurement.scale == pytest.approx(10.0)
    assert accepts_law(noise, discrete_gaussian(measurement.standard_error), measurement.scale)
    assert not accepts_law(noise, discrete_gaussian(11.0), measurement.scale)


def selections(allowance: PrivacyLoss, runners_up: int, lead: int, draws: int) -> tuple[int, float]:
    """How often the leading candidate wins a selection, and the stated scale.

    The kernel scores the candidates once, and its draw with these scores is repeated: to score
    them anew for each draw takes longer than the draw.
    """
    source = ArraySource(schema(a=1), PrivacyUnit("row"), {"a": np.zeros(0, dtype=np.int64)})
    kernel = Kernel(source, allowance)
    empty = Count(("a",))
    candidates = [Candidate(empty, (np.array([float(lead)]),))]
    candidates += [Candidate(empty, (np.zeros(1),))] * runners_up
    admitted = kernel.admit(SelectQuestion(tuple(candidates), allowance))
    drawn: list[tuple[int, ...]] = []

    def drawing(*question: Any) -> tuple[int, ...]:
        drawn.extend(noisy_winners(*question) for _ in range(draws))
        return drawn[-1]

    with mock.patch.object(app.engine.privacy.kernel, "noisy_winners", drawing):
        answer = kernel.answer(admitted)
    assert isinstance(answer, Selected)
    assert answer.winners == drawn[-1]
    assert len(drawn) == draws
    return drawn.count((0,)), answer.scale


def exponential_mechanism(lead: int, runners_up: int, scale: float) -> float:
    best = exp(lead / scale)
    return best / (best + runners_up)


def permute_and_flip(lead: int, runners_up: int, scale: float) -> float:
    """The best wins at its turn if every candidate before it was turned down."""
    down = 1 - exp(-lead / scale)
    return sum(down**turn for turn in range(runners_up + 1)) / (runners_up + 1)


def test_rho_selection_is_the_exponential_mechanism_at_the_stated_scale() -> None:
    loss = PrivacyLoss.zcdp(ONE // 50)  # epsilon 0.4, scale 5
    wins, scale = selections(loss, runners_up=20, lead=15, draws=6000)
    assert scale == pytest.approx(5.0)
    assert accepts_probability(wins, 6000, exponential_mechanism(15, 20, scale))
    assert not accepts_probability(wins, 6000, exponential_mechanism(15, 20, scale * 1.1))
    assert not accepts_probability(wins, 6000, exponential_mechanism(15, 20, scale / 1.1))


def test_pure_selection_is_permute_and_flip_at_the_stated_scale() -> None:
    loss = PrivacyLoss.pure(4 * ONE // 10)  # epsilon 0.4, scale 5
    wins, scale = selections(loss, runners_up=20, lead=15, draws=6000)
    assert scale == pytest.approx(5.0)
    assert accepts_probability(wins, 6000, permute_and_flip(15, 20, scale))
    assert not accepts_probability(wins, 6000, permute_and_flip(15, 20, scale * 1.1))
    assert not accepts_probability(wins, 6000, permute_and_flip(15, 20, scale / 1.1))
    assert not accepts_probability(wins, 6000, exponential_mechanism(15, 20, scale))


def kept_subsets(entities: int, rows: int, max_rows: int) -> NDArray[np.int64]:
    """For each of many entities the number of the subset of its rows that was kept."""
    ids = np.tile(np.arange(entities, dtype=np.uint64), rows)  # rows of one entity lie apart
    digests = np.stack([ids, ids], axis=1)
    place = bounded_by(digests, max_rows).place
    assert place is not None
    kept = (place >= 0).reshape(rows, entities).T
    subsets = {subset: number for number, subset in enumerate(combinations(range(rows), max_rows))}
    return np.array([subsets[tuple(np.flatnonzero(each).tolist())] for each in kept])


def test_bounding_keeps_every_subset_of_an_entity_equally_often() -> None:
    numbers = kept_subsets(entities=20_000, rows=5, max_rows=2)
    frequencies = np.bincount(numbers, minlength=10)
    assert accepts_frequencies(frequencies, np.ones(10))
    tilted = np.ones(10)
    tilted[0] = 1.5
    assert not accepts_frequencies(frequencies, tilted)


def test_entities_are_bounded_independently() -> None:
    numbers = kept_subsets(entities=20_000, rows=3, max_rows=1)
    pairs = numbers[0::2] * 3 + numbers[1::2]
    assert accepts_frequencies(np.bincount(pairs, minlength=9), np.ones(9))


def drawn(rows: list[int], people: int, max_rows: int, rule: Contribution) -> NDArray[np.int64]:
    """A histogram, without noise to speak of, of many people with the same rows."""
    codes = {"a": np.tile(rows, people)}
    ids = np.repeat(np.arange(people), len(rows))
    allowance = PrivacyLoss.pure(2**61)
    unit = PrivacyUnit("entity", "id", max_rows)
    session = open_session(codes, schema(a=4), unit, allowance, entities=ids)
    return session.count([Count(("a",), contribution=rule)], allowance)[0].values


def test_distinct_cells_are_drawn_uniformly_however_many_rows_they_hold() -> None:
    cells = drawn([0, 0, 0, 0, 1, 2, 3], 20_000, 7, Contribution("distinct", limit=1))
    assert cells.sum() == 20_000
    assert accepts_frequencies(cells, np.ones(4))
    assert not accepts_frequencies(cells, np.array([1.2, 1, 1, 1]))


def test_ties_of_the_most_frequent_cell_are_broken_uniformly() -> None:
    cells = drawn([3, 0, 3, 0, 1, 1, 2], 20_000, 7, Contribution("one"))
    assert cells[2] == 0
    assert accepts_frequencies(cells[[0, 1, 3]], np.ones(3))
    assert not accepts_frequencies(cells[[0, 1, 3]], np.array([1.2, 1, 1]))

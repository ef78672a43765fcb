"""The acceptance itself: what it takes, and what it does not take."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from acceptance import FEWEST_DRAWS, Law, accepts_law, discrete_gaussian, discrete_laplace

SCALE = 40.0


@pytest.mark.parametrize("law", [discrete_gaussian, discrete_laplace])
def test_a_scale_10_percent_off_is_told_from_the_fewest_draws(
    law: Callable[[float], Law],
) -> None:
    """In all of 200 samples: a miss in a million each, a false alarm in a million each."""
    rng = np.random.default_rng(1)
    support = np.arange(-2000, 2001)
    weights = law(SCALE)(support.astype(np.float64))
    for _ in range(200):
        sample = rng.choice(support, FEWEST_DRAWS, p=weights / weights.sum())
        assert accepts_law(sample, law(SCALE), SCALE)
        assert not accepts_law(sample, law(SCALE * 1.1), SCALE)
        assert not accepts_law(sample, law(SCALE / 1.1), SCALE)


def test_another_shape_of_the_same_scale_is_refused() -> None:
    rng = np.random.default_rng(2)
    gaussian = np.rint(rng.normal(0, SCALE, FEWEST_DRAWS)).astype(np.int64)
    laplace = np.rint(rng.laplace(0, SCALE / np.sqrt(2), FEWEST_DRAWS)).astype(np.int64)
    assert not accepts_law(gaussian, discrete_laplace(SCALE / np.sqrt(2)), SCALE)
    assert not accepts_law(laplace, discrete_gaussian(SCALE), SCALE)


def test_too_few_draws_are_not_judged() -> None:
    with pytest.raises(AssertionError, match="too few draws"):
        accepts_law(np.zeros(FEWEST_DRAWS - 1, np.int64), discrete_laplace(SCALE), SCALE)

"""Propagation and estimation against Private-PGM, where the package `mbi` is installed.

Nearly all of the time goes into compiling its programs: half a second for each random model.
Eight are enough: `test_estimation.py` compares two hundred with brute force.
"""

from __future__ import annotations

import warnings
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from small_models import noisy, random_axes, random_joint, random_shape

from app.engine.inference.estimation import fit
from app.engine.inference.junction_tree import JunctionTree
from app.engine.inference.model import GraphicalModel
from app.engine.inference.propagation import Propagation

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def jax() -> Any:
    """Imported by the process that runs this file: each of the others would take a second too."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        jax = pytest.importorskip("jax")
        jax.config.update("jax_enable_x64", True)
    return jax


@pytest.fixture(scope="module")
def mbi(jax: Any) -> Any:
    del jax
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip("mbi")


def potentials_of(
    seed: int,
) -> tuple[dict[str, int], list[tuple[str, ...]], Propagation, np.ndarray]:
    rng = np.random.default_rng(seed)
    shape = random_shape(rng)
    order = sorted(shape, key=lambda axis: shape[axis])
    factors = list(
        dict.fromkeys(tuple(sorted(axes, key=order.index)) for axes in random_axes(rng, shape, 5))
    )
    propagation = Propagation(JunctionTree.of(shape, factors), factors)
    return shape, factors, propagation, rng.normal(0, 2, propagation.length)


def variable_elimination(
    jax: Any, mbi: Any, vector: Any, wanted: list[tuple[str, ...]]
) -> list[np.ndarray]:
    """All marginals by one program, compiled without passes that take longer than they gain."""

    def answers(vector: Any) -> list[Any]:
        return [mbi.marginal_oracles.variable_elimination(vector, axes).values for axes in wanted]

    quick = {"xla_backend_optimization_level": 0}
    return [np.asarray(each) for each in jax.jit(answers, compiler_options=quick)(vector)]


@pytest.mark.parametrize("seed", range(8))
def test_marginals_of_random_potentials_are_those_of_mbi(jax: Any, mbi: Any, seed: int) -> None:
    shape, factors, propagation, potentials = potentials_of(seed)
    propagation.run(potentials)
    model = GraphicalModel(propagation.tree, propagation.probabilities())
    domain = mbi.Domain(tuple(shape), tuple(shape.values()))
    tables = {
        axes: mbi.Factor(domain.project(axes), potentials[place].reshape([shape[a] for a in axes]))
        for axes, place in propagation.places.items()
    }
    wanted = [*factors, *list(combinations(shape, 2))[::4]]
    theirs = variable_elimination(jax, mbi, mbi.CliqueVector(domain, factors, tables), wanted)
    for axes, their in zip(wanted, theirs, strict=True):
        assert np.abs(model.marginal(axes) - their).max() < 1e-6


def test_a_fit_with_little_shrinkage_is_no_worse_than_that_of_mbi(mbi: Any) -> None:
    rng = np.random.default_rng(0)
    shape = {"a": 3, "b": 4, "c": 2, "d": 3}
    whole = random_joint(rng, shape)
    pairs = [("a", "b"), ("b", "c"), ("c", "d"), ("a", "d")]
    measured = [noisy(rng, shape, whole, pair, 500.0, 10.0) for pair in pairs]
    domain = mbi.Domain(tuple(shape), tuple(shape.values()))
    theirs = mbi.estimation.MirrorDescent().estimate(
        domain,
        [mbi.LinearMeasurement(m.values.ravel(), m.axes, 10.0) for m in measured],
        known_total=500.0,
        iters=3000,
    )
    ours = fit(shape, measured, 500.0, shrinkage=1e-5, tolerance=1e-4, most_steps=50_000)

    def chi_square(marginals: list[np.ndarray]) -> float:
        return sum(
            float(np.square(500 * probability - m.values).sum()) / 100
            for probability, m in zip(marginals, measured, strict=True)
        )

    own = chi_square([ours.marginal(m.axes) for m in measured])
    other = chi_square([np.asarray(theirs.project(m.axes).values) / 500 for m in measured])
    assert own == pytest.approx(other, rel=1e-3)
    assert own < other + 1e-3

from __future__ import annotations

import os
import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_models import every_set, noisy, random_axes, random_joint, random_shape, spread, summed

from app.engine.inference import answering
from app.engine.inference.estimation import fit
from app.engine.inference.junction_tree import JunctionTree, cells_of
from app.engine.inference.measurements import NoisyMarginal
from app.engine.inference.model import GraphicalModel
from app.engine.inference.propagation import Propagation


def calibrated(seed: int) -> tuple[GraphicalModel, np.ndarray]:
    """A model of random potentials, and the distribution over all cells they stand for."""
    rng = np.random.default_rng(seed)
    shape = random_shape(rng)
    order = sorted(shape, key=lambda axis: shape[axis])
    factors = list(
        dict.fromkeys(
            tuple(sorted(axes, key=order.index))
            for axes in random_axes(rng, shape, int(rng.integers(1, 7)))
        )
    )
    propagation = Propagation(JunctionTree.of(shape, factors), factors)
    potentials = rng.normal(0, 3, propagation.length)
    logs = np.zeros(tuple(shape.values()))
    for axes, place in propagation.places.items():
        logs = logs + spread(potentials[place].reshape([shape[a] for a in axes]), shape, axes)
    weights = np.exp(logs)
    log_partition, marginals = propagation.run(potentials)
    assert log_partition == pytest.approx(np.log(weights.sum()))
    whole = weights / weights.sum()
    for axes, place in propagation.places.items():
        assert np.allclose(marginals[place], summed(whole, shape, axes).ravel(), atol=1e-13)
    return GraphicalModel(propagation.tree, propagation.probabilities()), whole


@given(st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_marginals_within_and_across_cliques_are_those_of_brute_force(seed: int) -> None:
    model, whole = calibrated(seed)
    asked = every_set(dict(model.shape), 3)
    asked.append(tuple(model.shape))
    for axes, marginal in zip(asked, model.marginals(asked), strict=True):
        assert np.allclose(marginal, summed(whole, model.shape, axes), atol=1e-12)


def test_marginals_gathered_elsewhere_for_smaller_tables_are_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(answering, "_LARGE", 0)
    for seed in range(20):
        model, whole = calibrated(seed)
        asked = every_set(dict(model.shape), 3)
        for axes, marginal in zip(asked, model.each_marginal(asked), strict=True):
            assert np.allclose(marginal, summed(whole, model.shape, axes), atol=1e-12)


def test_gathering_avoids_large_tables_where_another_clique_allows() -> None:
    shape = {"s": 30, "t": 30, "u": 4, "a": 60, "b": 40, "c": 40}
    tree = JunctionTree.of(shape, [("s", "t", "a"), ("s", "t", "u"), ("u", "b"), ("u", "c")])
    probabilities = tuple(
        np.full([shape[axis] for axis in clique], 1 / cells_of(shape, clique))
        for clique in tree.cliques
    )
    tracemalloc.start()
    try:
        marginal = GraphicalModel(tree, probabilities).marginal(("a", "b", "c"))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert np.allclose(marginal, 1 / marginal.size)
    assert peak < 5e6  # at the clique of `a` a table of 1,440,000 cells would arrive


def test_axes_at_the_ends_of_a_long_chain_are_answered() -> None:
    shape = {f"x{i}": 2 for i in range(200)}
    pairs = [(f"x{i}", f"x{i + 1}") for i in range(199)]
    step = np.array([[0.499, 0.001], [0.001, 0.499]])
    measured = [NoisyMarginal(pair, 1e6 * step, np.array(1.0)) for pair in pairs]
    pair = fit(shape, measured, 1e6, shrinkage=0.01).marginal(("x199", "x0"))
    assert pair[0, 0] == pytest.approx(0.25 + 0.25 * 0.996**199, abs=1e-3)


def test_the_marginal_over_no_axes_is_one() -> None:
    model, _ = calibrated(1)
    assert model.marginal(()) == pytest.approx(1)


@pytest.mark.parametrize("axes", [("nowhere",), ("u", "u")])
def test_marginals_over_other_axes_are_refused(axes: tuple[str, ...]) -> None:
    with pytest.raises(ValueError):
        calibrated(1)[0].marginal(axes)


def test_huge_potentials_do_not_overflow() -> None:
    shape = {"a": 3, "b": 2}
    propagation = Propagation(JunctionTree.of(shape, [("b", "a")]), [("b", "a")])
    potentials = np.array([1e6, -1e6, 0.0, 1e6 - 1, -1e300, 5.0])
    log_partition, marginals = propagation.run(potentials)
    assert log_partition == pytest.approx(1e6 + np.log1p(np.exp(-1)))
    assert marginals == pytest.approx([1 / (1 + np.exp(-1)), 0, 0, 1 / (1 + np.e), 0, 0])


@given(st.integers(0, 2**32))
@settings(max_examples=20, deadline=None)
def test_a_stored_model_is_the_same(seed: int) -> None:
    model, _ = calibrated(seed)
    restored = GraphicalModel.from_arrays(model.shape, model.arrays())
    assert restored.tree == model.tree
    for one, other in zip(model.probabilities, restored.probabilities, strict=True):
        assert one.tolist() == other.tolist()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("shares", np.array([0.5, 0.5])),
        ("shares", np.full(14, np.nan)),
        ("shares", np.full(14, -1 / 8)),
        ("shares", np.full(14, 1 / 8)),
        ("shares", np.full(14, 0, dtype=np.int64)),
        ("clique_axes", np.array([0, 1, 1, 9])),
        ("clique_axes", np.array([0, 1, 1, -1])),
        ("clique_axes", np.array([0, 1, 1])),
        ("clique_lengths", np.array([4, 0])),
        ("clique_lengths", np.array([5, -1])),
        ("parents", np.array([-1, 1])),
        ("parents", np.array([[-1, 0]])),
        ("parents", None),
    ],
)
def test_arrays_that_are_no_model_are_refused(name: str, value: np.ndarray | None) -> None:
    shape = {"a": 2, "b": 2, "c": 5}
    model = fit(shape, [], 10.0, cliques=[("a", "b"), ("b", "c")])
    arrays: dict[str, np.ndarray] = dict(model.arrays())
    assert arrays["shares"].size == 14
    if value is None:
        del arrays[name]
    else:
        arrays[name] = value
    with pytest.raises(ValueError):
        GraphicalModel.from_arrays(shape, arrays)


_RUN = """
import hashlib, numpy as np, sys
sys.path.insert(0, sys.argv[1])
from small_models import noisy, random_joint
from app.engine.inference.estimation import fit
rng = np.random.default_rng(0)
shape = {"a": 17, "b": 13, "c": 11, "d": 9}
whole = random_joint(rng, shape)
measured = [noisy(rng, shape, whole, s, 1e4, 20.0) for s in [("a","b"), ("b","c"), ("c","d")]]
model = fit(shape, measured, 1e4)
parts = [*model.probabilities, model.marginal(("a", "d")), model.marginal(("d", "b", "a"))]
parts += list(model.sample(500, np.random.default_rng(1)).values())
print(hashlib.sha256(b"".join(p.tobytes() for p in parts)).hexdigest())
"""


def test_any_number_of_threads_gives_the_same_bits() -> None:
    root = Path(__file__).parents[3]
    answers = set()
    for threads in ("1", "4"):
        names = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "NUMBA_NUM_THREADS")
        run = subprocess.run(
            [sys.executable, "-c", _RUN, str(Path(__file__).parent)],
            cwd=root,
            env={**os.environ, **dict.fromkeys(names, threads)},
            capture_output=True,
            text=True,
            check=True,
        )
        answers.add(run.stdout)
    assert len(answers) == 1


def test_the_same_measurements_give_the_same_model() -> None:
    rng = np.random.default_rng(2)
    shape = random_shape(rng)
    whole = random_joint(rng, shape)
    measured = [noisy(rng, shape, whole, axes, 100.0, 5.0) for axes in random_axes(rng, shape, 4)]
    first, second = fit(shape, measured, 100.0), fit(shape, measured, 100.0)
    assert [t.tolist() for t in first.probabilities] == [t.tolist() for t in second.probabilities]

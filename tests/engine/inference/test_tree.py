from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from app.engine.inference.tree import Forest, NoisyMarginal, TreeModel, fit_tree

SHAPE = {"a": 3, "b": 4, "c": 2, "d": 3}
TREE = Forest.spanning(SHAPE, [("c", "b"), ("b", "a"), ("d", "b")])
TWO_TREES = Forest.spanning(SHAPE, [("a", "c"), ("d", "b")])


def joint(forest: Forest, potentials: np.ndarray) -> np.ndarray:
    """The normalised distribution over all axes, cell by cell."""
    axes = list(forest.shape)
    logs = np.empty(tuple(forest.shape.values()))
    for cells in itertools.product(*map(range, logs.shape)):
        at = dict(zip(axes, cells, strict=True))
        logs[cells] = sum(forest.node(potentials, axis)[at[axis]] for axis in axes) + sum(
            forest.edge(potentials, edge)[at[edge[0]], at[edge[1]]] for edge in forest.edges
        )
    weights = np.exp(logs)
    return weights / weights.sum()


def marginal_of(whole: np.ndarray, forest: Forest, axes: tuple[str, ...]) -> np.ndarray:
    names = list(forest.shape)
    others = tuple(i for i, name in enumerate(names) if name not in axes)
    kept = [name for name in names if name in axes]
    return whole.sum(axis=others).transpose([kept.index(axis) for axis in axes])


def all_marginals(
    forest: Forest, whole: np.ndarray, total: float, error: float, seed: int
) -> list[NoisyMarginal]:
    rng = np.random.default_rng(seed)
    measured = []
    for axes in forest.slices:
        exact = total * marginal_of(whole, forest, axes)
        noisy = exact + rng.normal(0, error, exact.shape)
        measured.append(NoisyMarginal(axes, noisy, np.array(max(error, 1e-3) ** 2)))
    return measured


def test_edges_are_hung_from_the_first_axis_parents_first() -> None:
    assert TREE.edges == (("a", "b"), ("b", "c"), ("b", "d"))
    assert TREE.roots == ("a",)
    assert TWO_TREES.roots == ("a", "b")


@pytest.mark.parametrize(
    "pairs", [[("a", "b"), ("b", "c"), ("c", "a")], [("a", "a")], [("a", "nowhere")]]
)
def test_what_is_no_forest_is_refused(pairs: list[tuple[str, str]]) -> None:
    with pytest.raises(ValueError):
        Forest.spanning(SHAPE, pairs)


@given(st.integers(0, 2**32), st.sampled_from([TREE, TWO_TREES]))
@settings(max_examples=20)
def test_belief_propagation_agrees_with_brute_force(seed: int, forest: Forest) -> None:
    potentials = np.random.default_rng(seed).normal(0, 2, forest.length)
    flat, log_partition = forest.marginals(potentials)
    whole = joint(forest, potentials)
    for axes, place in forest.slices.items():
        assert np.allclose(flat[place], marginal_of(whole, forest, axes).ravel())
    shifted, shifted_log_partition = forest.marginals(potentials + 0.25)
    assert np.allclose(shifted, flat)
    terms = len(forest.shape) + len(forest.edges)
    assert shifted_log_partition - log_partition == pytest.approx(0.25 * terms)


@given(st.integers(0, 2**32))
@settings(max_examples=20)
def test_potentials_of_marginals_give_the_marginals_back(seed: int) -> None:
    flat, _ = TREE.marginals(np.random.default_rng(seed).normal(0, 2, TREE.length))
    assert np.allclose(TREE.marginals(TREE.potentials(flat))[0], flat)


@given(st.integers(0, 2**32), st.sampled_from([TREE, TWO_TREES]))
@settings(max_examples=20)
def test_the_least_cost_is_that_of_the_best_assignment(seed: int, forest: Forest) -> None:
    costs = np.random.default_rng(seed).normal(0, 3, forest.length)
    best = -np.log(joint(forest, -costs).max()) - forest.marginals(-costs)[1]
    assert forest.least(costs) == pytest.approx(best)


def test_exact_marginals_of_a_tree_are_recovered() -> None:
    whole = joint(TREE, np.random.default_rng(5).normal(0, 1, TREE.length))
    model = fit_tree(TREE, all_marginals(TREE, whole, 1e5, 0.0, 5), 1e5, tolerance=1e-9)
    for axes in TREE.slices:
        assert np.abs(model.marginal(axes) - marginal_of(whole, TREE, axes)).max() < 1e-3


@given(st.integers(0, 2**32), st.sampled_from([TREE, TWO_TREES]))
@settings(max_examples=10, deadline=None)
def test_fitted_marginals_are_consistent_shares(seed: int, forest: Forest) -> None:
    whole = joint(forest, np.random.default_rng(seed).normal(0, 1, forest.length))
    model = fit_tree(forest, all_marginals(forest, whole, 500.0, 40.0, seed), 500.0)
    assert (model.shares >= 0).all()
    for parent, child in forest.edges:
        pair = model.marginal((parent, child))
        assert np.allclose(pair.sum(axis=1), model.marginal((parent,)))
        assert np.allclose(pair.sum(axis=0), model.marginal((child,)))
        assert np.allclose(model.marginal((child, parent)), pair.T)
        assert pair.sum() == pytest.approx(1)


def test_the_fit_is_the_best_that_brute_force_finds() -> None:
    shape = {"a": 2, "b": 3, "c": 2}
    forest = Forest.spanning(shape, [("a", "b"), ("b", "c")])
    whole = joint(forest, np.random.default_rng(6).normal(0, 1, forest.length))
    measured = all_marginals(forest, whole, 100.0, 15.0, 6)

    def loss_of(candidate: np.ndarray) -> float:
        return sum(
            float(np.square(100 * marginal_of(candidate, forest, m.axes) - m.values).sum())
            / (2 * float(m.variance))
            for m in measured
        )

    def by_logits(logits: np.ndarray) -> float:
        weights = np.exp(logits - logits.max())
        return loss_of((weights / weights.sum()).reshape(2, 3, 2))

    brute = min(
        float(minimize(by_logits, np.random.default_rng(i).normal(size=12), method="BFGS").fun)
        for i in range(3)
    )
    model = fit_tree(forest, measured, 100.0, tolerance=1e-5, most_steps=20_000)
    own = loss_of(joint(forest, forest.potentials(model.shares)))
    assert model.gap <= 1e-5 * forest.length
    assert own <= brute + 1e-3


def test_measurements_of_the_same_axes_are_pooled_by_precision() -> None:
    forest = Forest.spanning({"a": 2}, [])
    measured = [
        NoisyMarginal(("a",), np.array([80.0, 20.0]), np.array(1.0)),
        NoisyMarginal(("a",), np.array([60.0, 40.0]), np.array(3.0)),
    ]
    model = fit_tree(forest, measured, 100.0, tolerance=1e-9)
    assert model.marginal(("a",)) == pytest.approx([0.75, 0.25], abs=1e-6)


def test_an_edge_measured_in_either_order_says_the_same() -> None:
    forest = Forest.spanning({"a": 2, "b": 3}, [("a", "b")])
    values = np.array([[30.0, 5.0, 15.0], [10.0, 20.0, 20.0]])
    one = fit_tree(forest, [NoisyMarginal(("a", "b"), values, np.array(4.0))], 100.0)
    other = fit_tree(forest, [NoisyMarginal(("b", "a"), values.T, np.array(4.0))], 100.0)
    assert one.shares.tolist() == other.shares.tolist()


def test_a_table_of_no_rows_is_fitted_and_sampled() -> None:
    model = fit_tree(TREE, [NoisyMarginal(("a",), np.array([-3.0, 1.0, -2.0]), np.array(9.0))], 0)
    cells = model.sample(0, np.random.default_rng(0))
    assert {axis: column.size for axis, column in cells.items()} == dict.fromkeys(SHAPE, 0)


@given(st.integers(0, 3000), st.integers(0, 2**32))
@settings(max_examples=15, deadline=None)
def test_sampled_counts_follow_the_shares_of_the_root_within_one(rows: int, seed: int) -> None:
    flat, _ = TREE.marginals(np.random.default_rng(seed).normal(0, 1, TREE.length))
    cells = TreeModel(TREE, flat).sample(rows, np.random.default_rng(seed))
    root = np.bincount(cells["a"], minlength=3)
    assert np.abs(root - rows * TREE.node(flat, "a")).max() < 1 + 1e-6
    pair = np.zeros((3, 4))
    np.add.at(pair, (cells["a"], cells["b"]), 1)
    given_root = TREE.edge(flat, ("a", "b")) / TREE.node(flat, "a")[:, None]
    assert np.abs(pair - root[:, None] * given_root).max() < 1 + 1e-6


def test_columns_of_separate_trees_are_not_linked_by_row_order() -> None:
    flat, _ = TWO_TREES.marginals(np.random.default_rng(7).normal(0, 1, TWO_TREES.length))
    cells = TreeModel(TWO_TREES, flat).sample(20_000, np.random.default_rng(7))
    # A correlation has standard deviation 0.007 under independence; 5.2 of them: 2e-7.
    assert abs(np.corrcoef(cells["a"], cells["b"])[0, 1]) < 0.037
    assert abs(np.corrcoef(cells["c"], cells["d"])[0, 1]) < 0.037

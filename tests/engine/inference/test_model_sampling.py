from __future__ import annotations

import itertools

import numpy as np
import pytest
import scipy
from hypothesis import given, settings
from hypothesis import strategies as st
from small_models import noisy, random_axes, random_joint, random_shape, sampled_counts

from app.engine.inference.estimation import fit
from app.engine.inference.measurements import NoisyMarginal
from app.engine.inference.model import GraphicalModel

_FALSE_ALARM = 1e-7


def a_model(seed: int) -> GraphicalModel:
    rng = np.random.default_rng(seed)
    shape = random_shape(rng)
    whole = random_joint(rng, shape)
    axes = random_axes(rng, shape, int(rng.integers(0, 5)))
    return fit(shape, [noisy(rng, shape, whole, a, 500.0, 10.0) for a in axes], 500.0)


def independent(sizes: list[int]) -> GraphicalModel:
    rng = np.random.default_rng(9)
    shape = {f"x{i}": size for i, size in enumerate(sizes)}
    measured = [
        NoisyMarginal((axis,), rng.uniform(50, 150, size), np.array(1.0))
        for axis, size in shape.items()
    ]
    return fit(shape, measured, 100.0)


def chain() -> GraphicalModel:
    rng = np.random.default_rng(10)
    shape = {"a": 4, "b": 5, "c": 6, "d": 3}
    whole = random_joint(rng, shape)
    pairs = [("a", "b"), ("b", "c"), ("c", "d")]
    return fit(shape, [noisy(rng, shape, whole, p, 2000.0, 10.0) for p in pairs], 2000.0)


def distance(model: GraphicalModel, cells: dict[str, np.ndarray], axes: tuple[str, ...]) -> float:
    rows = len(cells[axes[0]])
    return float(
        np.abs(sampled_counts(cells, model.shape, axes) / rows - model.marginal(axes)).sum()
    )


@given(st.integers(0, 2**32), st.integers(0, 400), st.booleans())
@settings(max_examples=30, deadline=None)
def test_every_row_is_one_that_the_model_allows(seed: int, rows: int, exact: bool) -> None:
    model = a_model(seed)
    cells = model.sample(rows, np.random.default_rng(seed), exact=exact)
    assert list(cells) == list(model.shape)
    for axis, size in model.shape.items():
        assert cells[axis].dtype == np.int64
        assert cells[axis].shape == (rows,)
        assert ((cells[axis] >= 0) & (cells[axis] < size)).all()
    if rows:
        for clique in model.tree.cliques:
            counts = sampled_counts(cells, model.shape, clique)
            assert (model.marginal(clique)[counts > 0] > 0).all()


@given(st.integers(0, 2**32), st.integers(1, 400))
@settings(max_examples=30, deadline=None)
def test_counts_are_within_one_of_expectation_given_the_separator(seed: int, rows: int) -> None:
    model = a_model(seed)
    cells = model.sample(rows, np.random.default_rng(seed))
    for clique, separator in zip(model.tree.cliques, model.tree.separators, strict=True):
        new = tuple(axis for axis in clique if axis not in separator)
        counts = sampled_counts(cells, model.shape, (*separator, *new))
        joint = model.marginal((*separator, *new))
        axes = tuple(range(len(separator), len(clique)))
        shares = joint.sum(axis=axes, keepdims=True)
        given_separator = np.divide(joint, shares, out=np.zeros(joint.shape), where=shares > 0)
        expected = counts.sum(axis=axes, keepdims=True) * given_separator
        assert np.abs(counts - expected).max() < 1 + 1e-6


def test_columns_that_the_model_holds_independent_are_independent() -> None:
    model = independent([2, 3, 5, 2, 7, 2])
    cells = model.sample(20_000, np.random.default_rng(11))
    for pair in itertools.combinations(model.shape, 2):
        counts = sampled_counts(cells, model.shape, pair)
        expected = 20_000 * np.outer(model.marginal(pair[:1]), model.marginal(pair[1:]))
        statistic = float(((counts - expected) ** 2 / expected).sum())
        freedom = counts.size - 1
        assert statistic < scipy.stats.chi2.isf(_FALSE_ALARM / 15, freedom), pair


def test_three_columns_together_are_independent_too() -> None:
    model = independent([2, 3, 4, 2])
    cells = model.sample(20_000, np.random.default_rng(12))
    for triple in itertools.combinations(model.shape, 3):
        counts = sampled_counts(cells, model.shape, triple)
        expected = 20_000 * model.marginal(triple)
        statistic = float(((counts - expected) ** 2 / expected).sum())
        assert statistic < scipy.stats.chi2.isf(_FALSE_ALARM / 4, counts.size - 1), triple


def test_adjoining_rows_are_independent() -> None:
    cells = chain().sample(20_000, np.random.default_rng(13))
    for column in cells.values():
        # Under independence the correlation has standard deviation 0.007; 5.4 of them: 7e-8.
        assert abs(np.corrcoef(column[:-1], column[1:])[0, 1]) < 0.038


def test_exact_rows_scatter_as_independent_draws_do() -> None:
    model = chain()
    rows = 20_000
    cells = model.sample(rows, np.random.default_rng(14), exact=True)
    for axes in [("a",), ("a", "b"), ("b", "d"), ("a", "d")]:
        expected = rows * model.marginal(axes)
        kept = expected > 5
        counts = sampled_counts(cells, model.shape, axes)
        statistic = float(((counts - expected) ** 2 / np.maximum(expected, 1e-9))[kept].sum())
        low, high = scipy.stats.chi2.isf([1 - _FALSE_ALARM, _FALSE_ALARM], kept.sum())
        assert low - 5 < statistic < high, axes


def test_pairs_across_cliques_come_nearer_to_the_model_than_independent_rows_do() -> None:
    model = chain()
    near = far = 0.0
    for seed in range(5):
        even = model.sample(3000, np.random.default_rng(seed))
        drawn = model.sample(3000, np.random.default_rng(seed), exact=True)
        for axes in [("a", "c"), ("a", "d"), ("b", "d")]:
            near += distance(model, even, axes)
            far += distance(model, drawn, axes)
    assert near < far / 3


def test_each_cell_is_drawn_with_its_probability_on_average() -> None:
    model = a_model(3)
    axes = tuple(model.shape)
    rng = np.random.default_rng(15)
    rows, runs = 7, 1500
    counts = sum(sampled_counts(model.sample(rows, rng), model.shape, axes) for _ in range(runs))
    expected = model.marginal(axes)
    # Rows of one sample are no more variable than independent ones; 6 deviations: 2e-9 a cell.
    error = np.sqrt(expected / (rows * runs)) + 1e-4
    assert (np.abs(counts / (rows * runs) - expected) < 6 * error).all()


def test_the_same_seed_gives_the_same_rows() -> None:
    first, second = (chain().sample(300, np.random.default_rng(1)) for _ in range(2))
    assert all(first[axis].tolist() == second[axis].tolist() for axis in first)


def test_a_negative_number_of_rows_is_refused() -> None:
    with pytest.raises(ValueError):
        chain().sample(-1, np.random.default_rng(0))

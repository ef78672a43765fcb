from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import block_diag
from small_models import every_set, noisy, random_axes, random_joint, random_shape, spread, summed

from app.engine.inference.estimation import fit
from app.engine.inference.measurements import NoisyMarginal, StructuralZeros
from app.engine.inference.model import GraphicalModel
from app.engine.inference.prior import Factor
from app.engine.inference.propagation import InfeasibleZerosError

SHAPE = {"a": 3, "b": 4, "c": 2, "d": 3}


def whole_of(model: GraphicalModel) -> np.ndarray:
    return model.marginal(tuple(model.shape))


def noisy_one_way(
    shape: dict[str, int], measured: list[NoisyMarginal], axis: str
) -> np.ndarray | None:
    """The axis's shares by all marginals that hold it; no cell below half a standard error."""
    holding = [m for m in measured if axis in m.axes]
    if not holding:
        return None
    precision = weighted = np.zeros(shape[axis])
    for m in holding:
        others = tuple(i for i, name in enumerate(m.axes) if name != axis)
        weight = 1 / np.broadcast_to(m.variance, m.values.shape).sum(axis=others)
        precision = precision + weight
        weighted = weighted + weight * m.values.sum(axis=others)
    counts = np.maximum(weighted / precision, 0.5 / np.sqrt(precision))
    return counts / counts.sum()


def pull_of(measured: list[NoisyMarginal], total: float, shrinkage: float) -> float:
    """The weight c of the divergence, by its definition; one measurement of each set of axes."""
    variances = np.concatenate(
        [np.broadcast_to(m.variance, m.values.shape).ravel() for m in measured]
    )
    return shrinkage * total / math.sqrt(variances.mean())


def brute_force(
    shape: dict[str, int],
    measured: list[NoisyMarginal],
    total: float,
    shrinkage: float,
    base: np.ndarray | None = None,
    steps: np.ndarray | float = 0.0,
) -> np.ndarray:
    """The best distribution over all cells, by Newton's method on the multipliers.

    p is the best if it is prior * exp(sum of multipliers) and each multiplier is
    (y - N mu) N / (c sigma^2): 1/2 chi-square + c KL(p || prior) is convex in p. `steps` is what
    is paid beside for multipliers of neighbours that differ, a quadratic form.
    """
    names = list(shape)
    logs = np.zeros(tuple(shape.values())) if base is None else np.log(base)
    for axis in names:
        shares = noisy_one_way(shape, measured, axis)
        if base is None and shares is not None:
            logs = logs + spread(np.log(shares), shape, (axis,))
    ones, targets, variances = [], [], []
    for m in measured:
        for cell in np.ndindex(m.values.shape):
            table = np.zeros(m.values.shape)
            table[cell] = 1.0
            ones.append(np.broadcast_to(spread(table, shape, m.axes), logs.shape).ravel())
            targets.append(m.values[cell] / total)
            variances.append(float(np.broadcast_to(m.variance, m.values.shape)[cell]) / total**2)
    cells, aims = np.array(ones), np.array(targets)
    penalty = pull_of(measured, total, shrinkage) * np.diag(variances) + steps

    def shares_at(theta: np.ndarray) -> tuple[np.ndarray, float]:
        exponents = logs.ravel() + theta @ cells
        weights = np.exp(exponents - exponents.max())
        value = math.log(weights.sum()) + exponents.max() - theta @ aims
        return weights / weights.sum(), value + 0.5 * float(theta @ penalty @ theta)

    theta = np.zeros(len(aims))
    for _ in range(100):
        shares, value = shares_at(theta)
        means = cells @ shares
        gradient = means - aims + penalty @ theta
        if np.abs(gradient).max() < 1e-10:
            break
        hessian = (cells * shares) @ cells.T - np.outer(means, means) + penalty
        step = np.linalg.solve(hessian, gradient)
        length = 1.0
        while length > 1e-6 and shares_at(theta - length * step)[1] > value + 1e-15 * abs(value):
            length /= 2
        theta = theta - length * step
    return shares_at(theta)[0].reshape(logs.shape)


@pytest.mark.parametrize("block", range(10))
def test_two_hundred_random_models_are_those_of_brute_force(block: int) -> None:
    for seed in range(20 * block, 20 * block + 20):
        rng = np.random.default_rng(seed)
        shape = random_shape(rng, most_cells=200)
        whole = random_joint(rng, shape)
        total = float(rng.integers(50, 2000))
        axes = list(
            {frozenset(s): s for s in random_axes(rng, shape, int(rng.integers(1, 6)))}.values()
        )
        measured = [noisy(rng, shape, whole, s, total, float(rng.uniform(2, 30))) for s in axes]
        shrinkage = float(rng.uniform(0.3, 3))
        model = fit(shape, measured, total, shrinkage=shrinkage, tolerance=1e-8, most_steps=20_000)
        expected = brute_force(shape, measured, total, shrinkage)
        assert model.residual <= 1e-8, seed
        assert np.abs(whole_of(model) - expected).max() < 1e-7, seed


def steps_of(
    shape: dict[str, int],
    measured: list[NoisyMarginal],
    ordered: dict[str, int],
    pull: float,
) -> np.ndarray:
    """The quadratic form of all differences between neighbours, from one cell to the next."""
    forms = []
    for m in measured:
        sizes = [shape[axis] for axis in m.axes]
        form = np.zeros((math.prod(sizes), math.prod(sizes)))
        for place, axis in enumerate(m.axes if len(m.axes) > 1 else ()):
            for cell in np.ndindex(*sizes):
                if cell[place] + 1 < ordered.get(axis, 0):
                    beside = (*cell[:place], cell[place] + 1, *cell[place + 1 :])
                    step = np.zeros(sizes)
                    step[beside], step[cell] = 1.0, -1.0
                    form += pull * float(m.variance) * np.outer(step, step)
        forms.append(form)
    return block_diag(*forms)


@pytest.mark.parametrize("block", range(4))
def test_eighty_random_models_of_ordered_cells_are_those_of_brute_force(block: int) -> None:
    for seed in range(20 * block, 20 * block + 20):
        rng = np.random.default_rng(seed)
        shape = random_shape(rng, most_cells=100)
        ordered = {axis: int(rng.integers(0, cells + 1)) for axis, cells in shape.items()}
        whole, total = random_joint(rng, shape), float(rng.integers(50, 2000))
        sets = {frozenset(s): s for s in random_axes(rng, shape, int(rng.integers(1, 5)))}
        measured = [
            noisy(rng, shape, whole, s, total, float(rng.uniform(2, 30))) for s in sets.values()
        ]
        smoothness = float(rng.uniform(0.1, 3))
        model = fit(
            shape,
            measured,
            total,
            shrinkage=1.0,
            ordered=ordered,
            smoothness=smoothness,
            tolerance=1e-8,
            most_steps=20_000,
        )
        pull = smoothness * pull_of(measured, total, 1.0) / total**2
        expected = brute_force(
            shape, measured, total, 1.0, steps=steps_of(shape, measured, ordered, pull)
        )
        assert np.abs(whole_of(model) - expected).max() < 1e-7, seed


def test_noise_between_adjoining_cells_is_smoothed_out() -> None:
    rng = np.random.default_rng(5)
    shape, total = {"age": 60, "answer": 2}, 20_000.0
    rate = 0.2 + 0.5 / (1 + np.exp(-(np.arange(60) - 30) / 6))
    whole = np.stack([1 - rate, rate], axis=1) / 60
    columns = [noisy(rng, shape, whole, (axis,), total, 5.0) for axis in shape]
    measured = [*columns, noisy(rng, shape, whole, ("age", "answer"), total, 80.0)]
    smooth = fit(shape, measured, total, shrinkage=0.5, ordered={"age": 60}, smoothness=4.0)
    rough = fit(shape, measured, total, shrinkage=0.5)
    off = [np.abs(model.marginal(("age", "answer")) - whole).sum() for model in (smooth, rough)]
    assert off[0] < 0.75 * off[1]


@pytest.mark.parametrize("block", range(4))
def test_eighty_random_models_with_a_base_measure_are_those_of_brute_force(block: int) -> None:
    for seed in range(20 * block, 20 * block + 20):
        rng = np.random.default_rng(seed)
        shape = random_shape(rng, most_cells=100)
        whole, total = random_joint(rng, shape), float(rng.integers(50, 2000))
        sets = {frozenset(s): s for s in random_axes(rng, shape, int(rng.integers(1, 5)))}
        measured = [
            noisy(rng, shape, whole, s, total, float(rng.uniform(2, 30))) for s in sets.values()
        ]
        factors = [
            Factor(axes, rng.normal(0, 1, [shape[axis] for axis in axes]))
            for axes in random_axes(rng, shape, int(rng.integers(1, 4)))
        ]
        base = np.exp(sum(spread(factor.logs, shape, factor.axes) for factor in factors))
        base = np.broadcast_to(base, tuple(shape.values()))
        model = fit(
            shape, measured, total, base=factors, shrinkage=1.0, tolerance=1e-8, most_steps=20_000
        )
        expected = brute_force(shape, measured, total, 1.0, base)
        assert np.abs(whole_of(model) - expected).max() < 1e-7, seed


def test_a_model_is_its_own_base_measure() -> None:
    allowed = np.ones((4, 3), dtype=bool)
    allowed[0, :2] = False
    model = fitted(some_measured(4), zeros=[StructuralZeros(("b", "a"), allowed)])
    again = fitted([], base=model.factors())
    assert np.allclose(whole_of(again), whole_of(model), rtol=1e-9, atol=1e-15)


def test_what_is_measured_moves_a_base_measure_and_what_is_not_stays() -> None:
    rng = np.random.default_rng(6)
    before = random_joint(rng, SHAPE)
    names = tuple(SHAPE)
    counts = np.array([120.0, 20.0, 60.0])
    model = fitted(
        [NoisyMarginal(("a",), counts, np.array(1.0))],
        base=[Factor(names, np.log(before))],
        shrinkage=1e-9,
    )
    assert model.marginal(("a",)) == pytest.approx(counts / 200, abs=1e-6)
    given = before / before.sum(axis=(1, 2, 3), keepdims=True)
    told = whole_of(model) / whole_of(model).sum(axis=(1, 2, 3), keepdims=True)
    assert np.allclose(told, given)


@pytest.mark.parametrize("logs", [np.array([0.0, np.nan]), np.array([0.0, np.inf]), np.zeros(())])
def test_a_factor_has_a_logarithm_for_each_cell_of_its_axes(logs: np.ndarray) -> None:
    with pytest.raises(ValueError, match="factor"):
        Factor(("a",), logs)


def test_a_base_measure_has_the_axes_of_the_shape() -> None:
    with pytest.raises(ValueError, match="cells"):
        fitted([], base=[Factor(("a",), np.zeros(4))])


@given(st.integers(0, 2**32))
@settings(max_examples=25, deadline=None)
def test_marginals_of_a_fitted_model_are_probabilities_and_agree_with_each_other(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape = random_shape(rng)
    total = float(rng.integers(0, 300))
    measured = [
        NoisyMarginal(
            axes, rng.normal(0, 30, [shape[a] for a in axes]), np.array(rng.uniform(0.1, 900))
        )
        for axes in random_axes(rng, shape, int(rng.integers(0, 6)))
    ]
    model = fit(shape, measured, total)
    whole = whole_of(model)
    assert (whole >= 0).all()
    assert whole.sum() == pytest.approx(1)
    for axes in every_set(shape, 3):
        assert np.allclose(model.marginal(axes), summed(whole, shape, axes), atol=1e-12)


def fitted(
    measured: list[NoisyMarginal], total: float = 200.0, **options: object
) -> GraphicalModel:
    return fit(SHAPE, measured, total, tolerance=1e-9, **options)  # type: ignore[arg-type]


def some_measured(seed: int, error: float = 5.0) -> list[NoisyMarginal]:
    rng = np.random.default_rng(seed)
    whole = random_joint(rng, SHAPE)
    return [
        noisy(rng, SHAPE, whole, axes, 200.0, error) for axes in [("a", "b"), ("c", "b"), ("d",)]
    ]


def test_exact_counts_are_met_without_shrinkage() -> None:
    rng = np.random.default_rng(5)
    whole = random_joint(rng, SHAPE)
    axes_sets = [("a", "b"), ("b", "c"), ("c", "d")]
    measured = [
        NoisyMarginal(axes, 1e4 * summed(whole, SHAPE, axes), np.array(1.0)) for axes in axes_sets
    ]
    model = fit(SHAPE, measured, 1e4, shrinkage=1e-6, tolerance=1e-3)
    for axes in axes_sets:
        assert np.abs(model.marginal(axes) - summed(whole, SHAPE, axes)).max() < 1e-6


def test_stronger_shrinkage_brings_the_axes_nearer_to_independence() -> None:
    def dependence(shrinkage: float) -> float:
        pair = fitted(some_measured(2), shrinkage=shrinkage).marginal(("a", "b"))
        return float(np.abs(pair - np.outer(pair.sum(axis=1), pair.sum(axis=0))).sum())

    weak, middle, strong = (dependence(shrinkage) for shrinkage in (0.1, 1.0, 100.0))
    assert weak > middle > strong
    assert strong < 0.05


def test_measurements_of_the_same_axes_are_pooled_by_precision() -> None:
    measured = [
        NoisyMarginal(("c",), np.array([80.0, 20.0]), np.array(1.0)),
        NoisyMarginal(("c",), np.array([60.0, 40.0]), np.array([3.0, 3.0])),
    ]
    model = fitted(measured, 100.0, shrinkage=1e-9)
    assert model.marginal(("c",)) == pytest.approx([0.75, 0.25], abs=1e-6)


def test_axes_may_come_in_any_order() -> None:
    one, other = some_measured(3), some_measured(3)
    other[0] = NoisyMarginal(("b", "a"), one[0].values.T, one[0].variance)
    assert whole_of(fitted(one)).tolist() == whole_of(fitted(other)).tolist()


def test_cells_of_one_marginal_may_differ_in_noise() -> None:
    variance = np.array([1.0, 1e6, 1.0])
    model = fitted(
        [NoisyMarginal(("a",), np.array([50.0, 500.0, 30.0]), variance)], 100.0, shrinkage=1e-9
    )
    assert model.marginal(("a",)) == pytest.approx([0.5, 0.2, 0.3], abs=1e-3)


def test_impossible_cells_hold_nothing_in_any_marginal() -> None:
    allowed = np.ones((4, 3), dtype=bool)
    allowed[0, :2] = allowed[3, 1] = False
    model = fitted(some_measured(4), zeros=[StructuralZeros(("b", "a"), allowed)])
    assert (model.marginal(("a", "b", "d"))[~allowed.T] == 0).all()
    assert whole_of(model).sum() == pytest.approx(1)
    cells = model.sample(5000, np.random.default_rng(0))
    assert allowed[cells["b"], cells["a"]].all()


def test_zeros_across_cliques_are_met_together() -> None:
    equal = StructuralZeros(("a", "d"), np.eye(3, dtype=bool))
    model = fitted(some_measured(5), zeros=[equal])
    assert model.marginal(("d", "a"))[~np.eye(3, dtype=bool)].max() == 0


def test_zeros_that_leave_nothing_are_refused() -> None:
    one, other = np.zeros(2, dtype=bool), np.zeros(2, dtype=bool)
    one[0] = other[1] = True
    with pytest.raises(InfeasibleZerosError):
        fitted([], zeros=[StructuralZeros(("c",), one), StructuralZeros(("c",), other)])


def test_a_warm_start_ends_where_a_cold_one_does_and_sooner() -> None:
    before = fitted(some_measured(6))
    measured = [
        *some_measured(6),
        noisy(
            np.random.default_rng(1),
            SHAPE,
            random_joint(np.random.default_rng(6), SHAPE),
            ("c", "d"),
            200.0,
            5.0,
        ),
    ]
    cold, warm = fitted(measured), fitted(measured, start=before)
    assert np.abs(whole_of(cold) - whole_of(warm)).max() < 1e-8
    assert fitted(some_measured(6), start=before).evaluations <= 2
    assert warm.evaluations <= cold.evaluations


def test_a_start_of_another_shape_is_ignored() -> None:
    other = fit({"a": 2, "b": 2}, [NoisyMarginal(("a", "b"), np.ones((2, 2)), np.array(1.0))], 4.0)
    assert np.isfinite(whole_of(fitted(some_measured(7), start=other))).all()


@pytest.mark.parametrize("total", [0.0, -5.0, 1e9])
@pytest.mark.parametrize("error", [1e-6, 1.0, 1e12])
@pytest.mark.parametrize("value", [0.0, -1e3, 1e7])
def test_counts_that_fit_nothing_still_give_a_distribution(
    total: float, error: float, value: float
) -> None:
    measured = [
        NoisyMarginal(axes, np.full([SHAPE[a] for a in axes], value), np.array(error**2))
        for axes in [("a", "b"), ("b",), ("b", "c", "a"), ("d", "a")]
    ]
    whole = whole_of(fit(SHAPE, measured, total, most_steps=300))
    assert whole.min() >= 0
    assert whole.sum() == pytest.approx(1)


def test_a_marginal_and_a_part_of_it_are_both_used() -> None:
    values = np.array([[10.0, 20.0], [30.0, 40.0], [0.0, 0.0]])
    both = [
        NoisyMarginal(("a", "c"), values, np.array(100.0)),
        NoisyMarginal(("c",), np.array([80.0, 20.0]), np.array(1e-4)),
    ]
    assert fitted(both, 100.0).marginal(("c",)) == pytest.approx([0.8, 0.2], abs=1e-3)


def test_a_hundred_axes_are_fitted() -> None:
    rng = np.random.default_rng(8)
    shape = {f"x{i}": 2 + i % 4 for i in range(100)}
    axes = [(f"x{i}", f"x{(7 * i + 3) % 100}") for i in range(60)]
    measured = [
        NoisyMarginal(a, rng.normal(50, 30, [shape[x] for x in a]), np.array(900.0)) for a in axes
    ]
    model = fit(shape, measured, 1000.0)
    assert model.residual <= 0.1
    assert model.marginal(("x0", "x50", "x99")).sum() == pytest.approx(1)
    assert set(model.sample(50, rng)) == set(shape)


@pytest.mark.parametrize("shape", [{"only": 4}, {"only": 1}, {"one": 1, "two": 1, "more": 3}])
def test_one_axis_and_axes_of_one_cell_are_fitted(shape: dict[str, int]) -> None:
    axes = tuple(shape)
    model = fit(shape, [NoisyMarginal(axes, np.ones(tuple(shape.values())), np.array(1.0))], 4.0)
    assert model.marginal(axes) == pytest.approx(
        np.full(tuple(shape.values()), 1 / math.prod(shape.values()))
    )


@pytest.mark.parametrize(
    ("axes", "values"),
    [(("nowhere",), np.ones(3)), (("a",), np.ones(4)), (("a", "b"), np.ones((4, 3)))],
)
def test_marginals_that_the_shape_does_not_have_are_refused(
    axes: tuple[str, ...], values: np.ndarray
) -> None:
    with pytest.raises(ValueError):
        fit(SHAPE, [NoisyMarginal(axes, values, np.array(1.0))], 10.0)


@pytest.mark.parametrize(
    ("values", "variance"),
    [
        (np.array([1.0, np.nan]), np.array(1.0)),
        (np.ones(2), np.array(0.0)),
        (np.ones(2), np.array(np.inf)),
    ],
)
def test_measurements_that_are_not_finite_or_not_noisy_are_refused(
    values: np.ndarray, variance: np.ndarray
) -> None:
    with pytest.raises(ValueError):
        NoisyMarginal(("c",), values, variance)


@pytest.mark.parametrize(
    "options", [{"shrinkage": 0.0}, {"shrinkage": math.inf}, {"tolerance": 0.0}]
)
def test_a_fit_without_shrinkage_or_tolerance_is_refused(options: dict[str, float]) -> None:
    with pytest.raises(ValueError):
        fit(SHAPE, [], 10.0, **options)  # type: ignore[arg-type]

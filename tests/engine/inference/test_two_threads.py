from __future__ import annotations

import os
import threading
from collections.abc import Callable
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_models import noisy, random_joint, sampled_counts

from app.engine.inference import balancing, propagation, two_threads
from app.engine.inference.estimation import fit
from app.engine.inference.junction_tree import JunctionTree
from app.engine.inference.measurements import NoisyMarginal
from app.engine.inference.propagation import Propagation
from app.engine.inference.two_threads import DividedTree


@pytest.fixture(autouse=True)
def _small_work_is_divided(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(two_threads, "_LEAST_CELLS", 1)
    monkeypatch.setattr(balancing, "_MANY_ROWS", 1)


def random_tree(rng: np.random.Generator) -> JunctionTree:
    axes = [f"axis{i:02d}" for i in range(int(rng.integers(1, 14)))]
    shape = {axis: int(rng.integers(1, 6)) for axis in axes}
    joined = [(axes[i], axes[int(rng.integers(max(0, i - 4), i))]) for i in range(1, len(axes))]
    return JunctionTree.of(shape, joined)


@given(st.integers(0, 2**32))
@settings(max_examples=100, deadline=None)
def test_no_clique_of_one_thread_touches_one_of_the_other(seed: int) -> None:
    divided = DividedTree.of(random_tree(np.random.default_rng(seed)))
    owner = {
        int(clique): name for name in ("own", "other", "trunk") for clique in getattr(divided, name)
    }
    assert sorted(owner) == list(range(len(divided.tree.cliques)))
    for parent, child in divided.tree.edges:
        assert owner[parent] in (owner[child], "trunk")


@given(st.integers(0, 2**32))
@settings(max_examples=100, deadline=None)
def test_a_tree_with_another_root_is_the_same_tree(seed: int) -> None:
    tree = random_tree(np.random.default_rng(seed))
    divided = DividedTree.of(tree)
    hung = divided.tree
    assert JunctionTree.stored(hung.shape, hung.cliques, hung.parents) == hung
    assert tuple(hung.cliques[place] for place in divided.places) == tree.cliques
    links = {frozenset(divided.places[clique] for clique in edge) for edge in tree.edges}
    assert links == {frozenset(edge) for edge in hung.edges}


def test_two_like_branches_go_to_a_thread_each_and_the_link_between_them_is_the_trunk() -> None:
    shape = {"a": 9, "b": 2, "c": 2, "d": 9}
    divided = DividedTree.of(JunctionTree.of(shape, [("a", "b"), ("b", "c"), ("c", "d")]))
    cliques = divided.tree.cliques
    assert [set(cliques[i]) for i in divided.trunk] == [{"b", "c"}]
    assert {frozenset(cliques[int(i)]) for i in (*divided.own, *divided.other)} == {
        frozenset("ab"),
        frozenset("cd"),
    }
    assert divided.own.size == divided.other.size == 1


def test_a_small_part_is_not_given_to_the_second_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(two_threads, "_LEAST_CELLS", 19)
    shape = {"a": 9, "b": 2, "c": 2, "d": 9}
    divided = DividedTree.of(JunctionTree.of(shape, [("a", "b"), ("b", "c"), ("c", "d")]))
    assert not divided.other.size
    assert not divided.trunk.size


def modelled(threads: int, seed: int, monkeypatch: pytest.MonkeyPatch) -> tuple[bytes, ...]:
    """Everything that a fit gives, and a sample of it."""
    monkeypatch.setattr(two_threads, "processors", lambda: threads)
    rng = np.random.default_rng(seed)
    shape = {"u": 4, "v": 3, "w": 2, "x": 5, "y": 3}
    whole = random_joint(rng, shape)
    pairs = zip("uvwx", "vwxy", strict=True)
    measured = [noisy(rng, shape, whole, pair, 1e4, 50.0) for pair in pairs]
    model = fit(shape, measured, 1e4)
    sample = model.sample(2_000, np.random.default_rng(1))
    return (
        *(array.tobytes() for array in model.arrays().values()),
        *(values.tobytes() for values in model.potentials.values()),
        *(cells.tobytes() for cells in sample.values()),
    )


@pytest.mark.parametrize("seed", range(3))
def test_a_model_and_its_rows_are_the_same_bits_on_one_two_and_three_processors(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    divided: list[ModuleType] = []
    for module in (propagation, balancing):

        def recorded(
            own: Callable[[], None], other: Callable[[], None], module: ModuleType = module
        ) -> None:
            divided.append(module)
            two_threads.run_both(own, other)

        monkeypatch.setattr(module, "run_both", recorded)
    one, two, three = (modelled(threads, seed, monkeypatch) for threads in (1, 2, 3))
    assert {propagation, balancing} == set(divided)
    assert one == two == three


def test_values_assigned_in_halves_are_those_that_were_drawn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = np.random.default_rng(3)
    shape = {"u": 4, "v": 3, "w": 2, "x": 5}
    whole = random_joint(rng, shape)
    pairs = [("u", "v"), ("v", "w"), ("w", "x")]
    model = fit(shape, [noisy(rng, shape, whole, pair, 1e4, 50.0) for pair in pairs], 1e4)
    found = []
    for many_rows in (1, 2**62):
        monkeypatch.setattr(balancing, "_MANY_ROWS", many_rows)
        sample = model.sample(3_000, np.random.default_rng(2))
        found.append([sampled_counts(sample, shape, pair).tolist() for pair in pairs])
        across = sampled_counts(sample, shape, ("u", "x"))
        assert np.abs(across - 3_000 * model.marginal(("u", "x"))).max() < 8
    assert found[0] == found[1]


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=30))
def test_work_is_cut_between_groups_where_neither_part_is_small(work: list[int]) -> None:
    middle = balancing._middle(np.array(work, dtype=np.int64))
    least = sum(work) / balancing._SMALLEST_PART
    cuts = [cut for cut in range(1, len(work)) if least <= sum(work[:cut]) <= sum(work) - least]
    if not cuts or not sum(work):
        assert middle == 0
    else:
        assert middle in cuts


def test_a_wide_model_has_the_same_bits_on_one_and_two_processors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    axes = [f"axis{i:02d}" for i in range(9)]
    shape = dict.fromkeys(axes, 20)
    factors = [tuple(axes[i : i + 3]) for i in range(len(axes) - 2)]
    built = Propagation(JunctionTree.of(shape, factors), factors)
    assert built._divided.other.size
    potentials = np.random.default_rng(0).normal(0, 2, built.length)
    found = []
    for threads in (1, 2):
        monkeypatch.setattr(two_threads, "processors", lambda threads=threads: threads)
        log_partition, marginals = built.run(potentials)
        probabilities = b"".join(probability.tobytes() for probability in built.probabilities())
        found.append((log_partition, marginals.tobytes(), probabilities))
    assert found[0] == found[1]


def test_both_pieces_are_done_though_the_other_thread_is_busy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(two_threads, "processors", lambda: 2)
    thread = two_threads._other_thread()
    assert thread is not None
    free, done = threading.Event(), []
    thread.submit(free.wait)
    two_threads.run_both(lambda: done.append("own"), lambda: done.append("other"))
    assert done == ["own", "other"]
    free.set()


@pytest.mark.parametrize("fails", ["own", "other"])
def test_an_error_of_either_piece_is_raised_when_both_are_over(
    fails: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(two_threads, "processors", lambda: 2)

    def piece(name: str) -> None:
        if name == fails:
            raise ArithmeticError(name)

    with pytest.raises(ArithmeticError, match=fails):
        two_threads.run_both(lambda: piece("own"), lambda: piece("other"))


def test_without_a_second_thread_the_first_does_both(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(two_threads, "processors", lambda: 2)
    monkeypatch.setattr(two_threads, "_other_thread", lambda: None)
    done: list[int] = []
    two_threads.run_both(lambda: done.append(1), lambda: done.append(2))
    assert done == [1, 2]


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="the system does not tell")
def test_processors_are_those_that_the_process_may_use() -> None:
    two_threads.processors.cache_clear()
    assert two_threads.processors() == len(os.sched_getaffinity(0))


def test_measurements_of_one_axis_are_fitted_without_a_second_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(two_threads, "_other_thread", lambda: pytest.fail("no thread is needed"))
    fit({"a": 3}, [NoisyMarginal(("a",), np.array([5.0, 3.0, 2.0]), np.array(1.0))], 10)

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_models import random_axes, random_shape

from app.engine.inference.elimination import predicted_cells, predicted_cells_with_each
from app.engine.inference.junction_tree import JunctionTree
from app.engine.inference.measurements import table_order

SHAPE = {"a": 3, "b": 4, "c": 2, "d": 3}


def made(seed: int) -> tuple[JunctionTree, list[tuple[str, ...]]]:
    rng = np.random.default_rng(seed)
    shape = random_shape(rng)
    axes = random_axes(rng, shape, int(rng.integers(0, 9)))
    return JunctionTree.of(shape, axes), axes


def path(tree: JunctionTree, first: int, second: int) -> set[int]:
    def ancestors(number: int) -> list[int]:
        return [number] if number == 0 else [number, *ancestors(tree.parents[number])]

    up, down = ancestors(first), ancestors(second)
    common = set(up) & set(down)
    return (set(up) ^ set(down)) | {max(common)}


@given(st.integers(0, 2**32))
def test_each_set_of_axes_lies_in_a_clique_and_no_clique_in_another(seed: int) -> None:
    tree, asked = made(seed)
    for axes in asked:
        home = tree.home(axes)
        assert home is not None
        assert set(axes) <= set(tree.cliques[home])
    assert set().union(*tree.cliques) == set(tree.shape)
    for one, other in itertools.permutations(tree.cliques, 2):
        assert not set(one) <= set(other)


@given(st.integers(0, 2**32))
def test_what_two_cliques_share_is_in_every_clique_between_them(seed: int) -> None:
    tree, _ = made(seed)
    for first, second in itertools.combinations(range(len(tree.cliques)), 2):
        common = set(tree.cliques[first]) & set(tree.cliques[second])
        assert all(common <= set(tree.cliques[number]) for number in path(tree, first, second))


@given(st.integers(0, 2**32))
def test_the_cells_are_predicted(seed: int) -> None:
    tree, asked = made(seed)
    assert predicted_cells(tree.shape, asked) == tree.cells
    assert tree.cells == sum(math.prod(tree.shape[a] for a in c) for c in tree.cliques)
    assert tree.largest == max(tree.sizes) == tree.sizes[0]


def test_a_cycle_is_cut_by_the_cheaper_chord() -> None:
    tree = JunctionTree.of(SHAPE, [("a", "b"), ("b", "d"), ("d", "c"), ("c", "a")])
    assert sorted(map(sorted, tree.cliques)) == [["a", "b", "d"], ["a", "c", "d"]]


def test_a_chain_needs_no_chord() -> None:
    tree = JunctionTree.of(SHAPE, [("a", "b"), ("b", "c"), ("c", "d")])
    assert {frozenset(clique) for clique in tree.cliques} == {
        frozenset(pair) for pair in ("ab", "bc", "cd")
    }
    assert [set(separator) for separator in tree.separators if separator] == [{"b"}, {"c"}]


def test_separate_parts_hang_together_by_empty_separators() -> None:
    tree = JunctionTree.of(SHAPE, [("a", "b")])
    assert {frozenset(clique) for clique in tree.cliques} == {
        frozenset("ab"),
        frozenset("c"),
        frozenset("d"),
    }
    assert tree.separators == ((), (), ())


def test_axes_of_a_clique_are_listed_by_growing_cells() -> None:
    assert JunctionTree.of(SHAPE, [("b", "a", "c", "d")]).cliques == (("c", "a", "d", "b"),)


def test_the_tree_does_not_depend_on_the_order_of_the_sets() -> None:
    rng = np.random.default_rng(3)
    shape = {name: int(rng.integers(2, 9)) for name in "abcdefghij"}
    pairs = [p for p in itertools.combinations(shape, 2) if rng.random() < 0.3]
    shuffled = [pairs[i][::-1] for i in rng.permutation(len(pairs))]
    assert JunctionTree.of(shape, pairs) == JunctionTree.of(shape, shuffled)


def test_sizes_beyond_all_memory_are_still_predicted() -> None:
    shape = {f"x{i}": 1000 for i in range(100)}
    assert predicted_cells(shape, [tuple(shape)]) == 2**62


@pytest.mark.parametrize(("shape", "axes"), [({}, []), ({"a": 0}, []), (SHAPE, [("a", "nowhere")])])
def test_shapes_without_a_tree_are_refused(
    shape: dict[str, int], axes: list[tuple[str, ...]]
) -> None:
    with pytest.raises(ValueError):
        JunctionTree.of(shape, axes)


@given(st.integers(0, 2**32))
def test_a_stored_tree_is_restored(seed: int) -> None:
    tree, _ = made(seed)
    assert JunctionTree.stored(tree.shape, tree.cliques, tree.parents) == tree


@pytest.mark.parametrize(
    ("cliques", "parents"),
    [
        ((), ()),
        ((("c", "a", "d", "b"),), (0,)),
        ((("a", "b"), ("c",), ("d",)), (-1, 0)),
        ((("a", "b"), ("c",), ("d",)), (-1, 2, 0)),
        ((("b", "a"), ("c",), ("d",)), (-1, 0, 0)),
        ((("a", "b"), ("c", "b")), (-1, 0)),
        ((("a", "b"), ("c",), ("c", "d", "b")), (-1, 0, 1)),
        ((("a", "b"), ("a",), ("c",), ("d",)), (-1, 0, 0, 0)),
        ((("a", "a", "b"), ("c",), ("d",)), (-1, 0, 0)),
        ((("a", "nowhere"), ("c",), ("d", "b")), (-1, 0, 0)),
    ],
)
def test_stored_parts_that_are_not_a_junction_tree_are_refused(
    cliques: tuple[tuple[str, ...], ...], parents: tuple[int, ...]
) -> None:
    with pytest.raises(ValueError):
        JunctionTree.stored(SHAPE, cliques, parents)


def test_sizes_with_one_addition_each_are_those_of_trees_made_with_it() -> None:
    shape = {"a": 2, "b": 3, "c": 5, "d": 7}
    cliques = [("a", "b"), ("b", "c")]
    additions: list[tuple[str, ...]] = [("c", "d"), ("a",), ("a", "c", "d"), ("a", "d")]
    assert predicted_cells_with_each(shape, cliques, additions) == [
        JunctionTree.of(shape, [*cliques, addition]).cells for addition in additions
    ]
    assert predicted_cells_with_each(shape, cliques, []) == []


def elimination_cliques(joined: np.ndarray, logs: np.ndarray) -> list[set[int]]:
    """Maximal cliques of min-fill elimination, by sets."""
    near = {a: set(np.flatnonzero(row).tolist()) - {a} for a, row in enumerate(joined)}
    found: list[set[int]] = []
    while near:

        def cost(axis: int) -> tuple[int, float, int]:
            around = near[axis]
            gaps = sum(b not in near[a] for a in around for b in around if a < b)
            return gaps, round(float(logs[axis] + logs[sorted(around)].sum()), 6), axis

        axis = min(near, key=cost)
        around = near.pop(axis)
        for other in around:
            near[other] = (near[other] | around) - {axis, other}
        clique = around | {axis}
        if not any(clique <= earlier for earlier in found):
            found.append(clique)
    return found


@pytest.mark.parametrize("count", [1, 63, 64, 65, 130])
def test_axes_are_eliminated_by_fill_size_and_order(count: int) -> None:
    generator = np.random.default_rng(count)
    names = [f"a{i:03}" for i in range(count)]
    shape = dict(zip(names, generator.integers(2, 5, count).tolist(), strict=True))
    places = [names.index(name) for name in table_order(shape)]
    joined = generator.random((count, count)) < 2 / count
    joined |= joined.T
    pairs = [(names[a], names[b]) for a, b in zip(*np.nonzero(joined), strict=True) if a != b]
    tree = JunctionTree.of(shape, pairs)
    logs = np.log([shape[names[place]] for place in places])
    expected = elimination_cliques(joined[np.ix_(places, places)], logs)
    assert {frozenset(clique) for clique in tree.cliques} == {
        frozenset(names[places[axis]] for axis in clique) for clique in expected
    }

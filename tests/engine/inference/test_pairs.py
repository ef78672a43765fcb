"""Marginals of many pairs together are those asked one by one."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.engine.inference import pairs as pairs_room
from app.engine.inference.estimation import fit
from app.engine.inference.junction_tree import JunctionTree
from app.engine.inference.measurements import NoisyMarginal
from app.engine.inference.model import GraphicalModel
from app.engine.inference.pairs import pair_marginals

NAMES = tuple("abcdefgh")
EDGES = st.lists(st.sampled_from(list(permutations(NAMES, 2))), max_size=9)


def model_of(edges: list[tuple[str, str]], seed: int) -> GraphicalModel:
    """A fit to random pairs; axes that no pair holds hang by empty separators."""
    rng = np.random.default_rng(seed)
    shape = {name: int(rng.integers(1, 5)) for name in NAMES}
    joined = list({tuple(sorted(edge)): None for edge in edges})
    measured = [
        NoisyMarginal(axes, table, np.ones(table.shape))
        for axes in [*((name,) for name in NAMES), *joined]
        for table in [rng.random([shape[name] for name in axes]) * 10]
    ]
    return fit(shape, measured, 100.0, tolerance=0.5)


@settings(max_examples=25, deadline=None)
@given(EDGES, st.integers(0, 2**16))
def test_pairs_together_are_the_same_as_pairs_one_by_one(
    edges: list[tuple[str, str]], seed: int
) -> None:
    model = model_of(edges, seed)
    asked = list(permutations(NAMES, 2))
    for one, other in zip(model.marginals(asked), pair_marginals(model, asked), strict=True):
        assert one.shape == other.shape
        assert other.flags["C_CONTIGUOUS"]
        np.testing.assert_allclose(other, one, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("limit", ["_MOST_IN_MESSAGES", "_MOST_JOINED"])
def test_small_memory_limits_change_no_marginal(
    monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    model = model_of([("a", "b"), ("b", "c"), ("c", "a"), ("c", "d"), ("e", "f")], 3)
    asked = list(permutations(NAMES, 2))
    expected = pair_marginals(model, asked)
    monkeypatch.setattr(pairs_room, limit, 1)
    for one, other in zip(expected, pair_marginals(model, asked), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-15)


def test_impossible_cells_of_a_separator_stay_impossible() -> None:
    tree = JunctionTree.of({"a": 2, "b": 2, "c": 2}, [("a", "b"), ("b", "c")])
    tables: dict[tuple[str, ...], list[list[float]]] = {
        ("a", "b"): [[0.5, 0.0], [0.5, 0.0]],
        ("b", "c"): [[0.25, 0.75], [0.0, 0.0]],
    }
    model = GraphicalModel(tree, tuple(np.array(tables[clique]) for clique in tree.cliques))
    (found,) = pair_marginals(model, [("a", "c")])
    np.testing.assert_allclose(found, [[0.125, 0.375], [0.125, 0.375]])


def test_no_pairs_need_no_tables() -> None:
    assert pair_marginals(model_of([], 1), []) == []

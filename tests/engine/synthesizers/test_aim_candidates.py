from __future__ import annotations

import numpy as np
import pytest
from small_tables import digits

from app.engine.columns.axes import choose_axes
from app.engine.inference.estimation import fit
from app.engine.inference.measurements import NoisyMarginal
from app.engine.inference.model import GraphicalModel
from app.engine.privacy.queries import GridReference
from app.engine.synthesizers.aim.candidates import CandidatePool, Noise, OpenCandidate
from app.engine.synthesizers.aim.workload import Workload

CELLS = {"a": 2, "b": 4, "c": 6, "d": 8}
QUIET = Noise(0.0, 0.8)


def candidates(most_cells: int = 1000, total: float = 64.0) -> CandidatePool:
    axes, _ = choose_axes(digits(CELLS), None, {})
    return CandidatePool(axes, Workload.of_degree(axes.names, 3, {}, None), total, most_cells)


def uniform() -> GraphicalModel:
    measured = [
        NoisyMarginal((name,), np.full(size, 64.0 / size), np.ones(size))
        for name, size in CELLS.items()
    ]
    return fit(dict(CELLS), measured, 64.0)


def opened(
    most_cells: int = 1000, noise: Noise = QUIET, share: float = 1.0, total: float = 64.0
) -> dict[tuple[str, ...], OpenCandidate]:
    found = candidates(most_cells, total).open_candidates(uniform(), [], noise, share)
    return {each.clique: each for each in found}


def test_noise_counts_whole_in_large_cells_and_is_shrunk_in_small_ones() -> None:
    noise = Noise(deviation=100.0, mean=0.8)
    # 10^4 rows: the mean noise, 80. One row: the root of 1 * 100, 10. None: nothing.
    assert noise.expected_distance(np.array([1e4, 1.0, 0.0])) == pytest.approx(90.0)


def test_all_pairs_and_triples_are_offered_with_what_the_model_expects() -> None:
    found = opened()
    assert len(found) == 6 + 4
    candidate = found["b", "d"].candidate
    assert isinstance(candidate.reference, GridReference)
    assert (candidate.reference.steps == 2 * 1024).all()  # 64 rows over 32 cells
    assert candidate.count.contribution.rule == "rows"


def test_expected_noise_counts_against_a_candidate_by_its_weight() -> None:
    found = opened(noise=Noise(deviation=1.0, mean=0.5))
    pair, triple = found["a", "b"], found["a", "b", "c"]
    # 8 cells of 8 rows, 48 of 4/3: half a row each.
    assert (pair.noise, triple.noise) == (4, 24)
    assert pair.candidate.bias == pytest.approx(-4 * 6 / 9)
    assert (triple.candidate.weight, triple.candidate.bias) == (1.0, -24.0)


def test_candidates_noisier_than_rows_can_be_wrong_are_left_out() -> None:
    # Each of n cells would add the root of (64 / n * 1000), so n cells 253 roots of n.
    assert opened(noise=Noise(1000.0, 0.8)) == {}
    assert set(opened(noise=Noise(4.0, 0.8))) >= {("a", "b"), ("a", "c")}
    assert ("b", "c", "d") not in opened(noise=Noise(4.0, 0.8))  # 192 cells: 221 rows


def test_the_tree_may_grow_with_the_share_that_is_spent() -> None:
    # The columns alone are 20 cells; with cd joined they are 2 + 4 + 48.
    assert ("c", "d") in opened(most_cells=54)
    assert ("c", "d") not in opened(most_cells=54, share=0.9)
    assert ("b", "c", "d") not in opened(most_cells=190)


def test_a_winner_closes_what_overlaps_and_what_no_longer_fits() -> None:
    shop = candidates(most_cells=60)
    every = shop.open_candidates(uniform(), [], QUIET, 1.0)
    winner = next(each for each in every if each.clique == ("b", "d"))
    left = {each.clique for each in shop.still_open(every, [winner.clique], winner, 1.0)}
    assert ("a", "b") in left
    assert ("a", "b", "d") not in left  # it holds b and d
    assert ("c", "d") not in left  # with bd it takes 48 + 32 + 2 cells


def test_pairs_that_overlap_in_one_column_may_win_together() -> None:
    found = opened()
    assert not found["a", "b"].overlaps(found["b", "c"])
    assert found["a", "b"].overlaps(found["a", "b", "c"])
    assert found["a", "b", "c"].overlaps(found["b", "c", "d"])

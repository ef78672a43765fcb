from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import numpy as np
import pytest
from small_tables import EXACT, digits, session_on

from app.engine.columns.axes import Axes, choose_axes
from app.engine.graphical import spanning_tree
from app.engine.graphical.spanning_tree import Pair, choose_tree, selection_seconds
from app.engine.privacy.loss import PrivacyLoss
from app.engine.privacy.queries import Candidate

CELLS = {"a": 4, "b": 4, "c": 4, "d": 4}


def chain() -> dict[str, np.ndarray]:
    """1000 rows; b follows a closely, c follows b loosely, d is near to independent."""
    rng = np.random.default_rng(0)
    a = rng.integers(0, 4, 1000)
    b = np.where(rng.random(1000) < 0.9, a, rng.integers(0, 4, 1000))
    c = np.where(rng.random(1000) < 0.5, b, rng.integers(0, 4, 1000))
    d = np.where(rng.random(1000) < 0.3, c, rng.integers(0, 4, 1000))
    return {"a": a, "b": b, "c": c, "d": d}


def axes(names: Iterable[str] = CELLS, cells: int = 4) -> Axes:
    return choose_axes(digits(dict.fromkeys(names, cells)), None, {})[0]


def references(codes: Mapping[str, np.ndarray], cells: int = 4) -> dict[str, np.ndarray]:
    return {name: np.bincount(column, minlength=cells) * 1.0 for name, column in codes.items()}


class Recording:
    """A session that notes each selection's candidates and what it paid."""

    def __init__(
        self, loss: PrivacyLoss, codes: dict[str, np.ndarray] | None = None, cells: int = 4
    ) -> None:
        codes = codes or chain()
        self.session = session_on(digits(dict.fromkeys(codes, cells)), codes, loss)
        self.columns, self.cells = codes, cells
        self.rounds: list[tuple[set[Pair], int, int]] = []

    def select(
        self, candidates: Sequence[Candidate], loss: PrivacyLoss, winners: int = 1
    ) -> tuple[int, ...]:
        pairs = {(c.count.columns[0], c.count.columns[1]) for c in candidates}
        self.rounds.append((pairs, loss.amount, winners))
        return self.session.select(candidates, loss, winners)


def choose(recording: Recording, loss: PrivacyLoss = EXACT, **options: float) -> tuple[Pair, ...]:
    chosen = {"most_cells": 100, "noise_per_cell": 0.0} | options
    columns = axes(recording.columns, recording.cells)
    known = references(recording.columns, recording.cells)
    return choose_tree(recording, columns, known, loss, **chosen)  # type: ignore[arg-type]


def test_without_noise_the_tree_is_the_maximum_one() -> None:
    assert choose(Recording(EXACT)) == (("a", "b"), ("b", "c"), ("c", "d"))


def test_each_round_offers_the_pairs_that_join_two_components() -> None:
    recording = Recording(EXACT)
    choose(recording)
    assert [pairs for pairs, _, _ in recording.rounds] == [
        {("a", "b"), ("a", "c"), ("a", "d"), ("b", "c"), ("b", "d"), ("c", "d")},
        {("a", "c"), ("a", "d"), ("b", "c"), ("b", "d"), ("c", "d")},
        {("a", "d"), ("b", "d"), ("c", "d")},
    ]


@pytest.mark.parametrize("loss", [PrivacyLoss.pure(10**12 + 1), PrivacyLoss.zcdp(10**12 + 1)])
def test_rounds_share_the_loss_equally_and_never_exceed_it(loss: PrivacyLoss) -> None:
    recording = Recording(loss)
    assert len(choose(recording, loss)) == 3
    assert [paid for _, paid, _ in recording.rounds] == [(10**12 + 1) // 3] * 3


def test_a_pair_too_large_to_measure_leaves_a_forest() -> None:
    recording = Recording(EXACT)
    assert choose(recording, most_cells=15) == ()
    assert recording.rounds == []


def test_expected_noise_counts_against_large_pairs() -> None:
    wide = digits({"a": 100, "b": 2, "c": 2})
    b = np.arange(1000) % 2
    a = np.where(np.arange(1000) % 4 < 2, b * 50, 99)  # strongly tied to b, over 200 cells
    c = np.where(np.arange(1000) % 10 < 2, b, (np.arange(1000) // 2) % 2)  # weakly, over 4
    codes = {"a": a, "b": b, "c": c}
    counts = {
        name: np.bincount(column, minlength=100 if name == "a" else 2) * 1.0
        for name, column in codes.items()
    }
    chosen_axes = choose_axes(wide, None, {})[0]

    def first(noise_per_cell: float) -> Pair:
        session = session_on(wide, codes)
        return choose_tree(
            session, chosen_axes, counts, EXACT, most_cells=1000, noise_per_cell=noise_per_cell
        )[0]

    assert first(0.0) != ("b", "c")
    assert first(50.0) == ("b", "c")


def test_a_table_of_no_rows_still_gives_a_tree() -> None:
    schema = digits(CELLS)
    session = session_on(schema, {name: np.zeros(0, dtype=np.int64) for name in CELLS})
    nothing = dict.fromkeys(CELLS, np.zeros(4))
    edges = choose_tree(session, axes(), nothing, EXACT, most_cells=100, noise_per_cell=1.0)
    assert len(edges) == 3


def triplets() -> dict[str, np.ndarray]:
    """800 rows of columns in threes: of each three all pairs depend, less from three to three."""
    rng = np.random.default_rng(1)
    codes = {}
    for number in range(4):
        kept = rng.random((3, 800)) < 0.95 - 0.1 * number
        shared = rng.integers(0, 2, 800)
        for name, keeps in zip("abc", kept, strict=True):
            codes[f"{name}{number}"] = np.where(keeps, shared, rng.integers(0, 2, 800))
    return codes


def test_of_many_pairs_several_are_taken_at_once_for_no_more_than_the_loss(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(spanning_tree, "_MANY_PAIRS", 20)
    monkeypatch.setattr(spanning_tree, "_PART_AT_ONCE", 3)
    loss = PrivacyLoss.zcdp(10**18)
    recording = Recording(loss, triplets(), 2)
    edges = choose(recording, loss)
    assert len(edges) == 11
    assert sum(first[1:] == second[1:] for first, second in edges) == 2 * 4
    assert [winners for _, _, winners in recording.rounds][:2] == [3, 3]
    assert len(recording.rounds) < 11
    paid = [paid for _, paid, _ in recording.rounds]
    assert paid[0] == 3 * (10**18 // 11)
    assert 0.9 * 10**18 < sum(paid) <= 10**18


def test_winners_that_close_a_circle_leave_less_for_later_edges(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(spanning_tree, "_MANY_PAIRS", 0)
    monkeypatch.setattr(spanning_tree, "_PART_AT_ONCE", 2)
    loss = PrivacyLoss.zcdp(10**18)
    recording = Recording(loss, triplets(), 2)
    assert len(choose(recording, loss)) == 11
    each = [paid / winners for _, paid, winners in recording.rounds]
    assert each == sorted(each, reverse=True)
    assert each[-1] < each[0]


def test_a_choice_over_more_columns_is_forecast_to_take_longer_not_by_their_cube() -> None:
    few, many = selection_seconds(100), selection_seconds(200)
    assert 20 < few < 40
    assert 4 * few < many < 8 * few


class Circling(Recording):
    """The first pair wins each round, as often as there are winners."""

    def select(
        self, candidates: Sequence[Candidate], loss: PrivacyLoss, winners: int = 1
    ) -> tuple[int, ...]:
        first, second = candidates[0].count.columns
        self.rounds.append(({(first, second)}, loss.amount, winners))
        return (0,) * winners


@pytest.mark.parametrize("kind", ["zcdp", "pure"])
def test_no_edge_is_paid_less_than_was_forecast(
    monkeypatch: pytest.MonkeyPatch, kind: Literal["pure", "zcdp"]
) -> None:
    """Even if every winner but the first of each round is wasted."""
    monkeypatch.setattr(spanning_tree, "_MANY_PAIRS", 0)
    loss = PrivacyLoss(kind, 10**12)
    codes = {f"c{i}": np.zeros(50, dtype=np.int64) for i in range(60)}
    recording = Circling(loss, codes, 2)
    assert len(choose(recording, loss)) == 59
    least = spanning_tree.least_loss(loss, 60).amount
    assert min(paid // winners for _, paid, winners in recording.rounds) >= least
    assert sum(paid for _, paid, _ in recording.rounds) <= loss.amount
    assert any(winners == 1 for _, _, winners in recording.rounds[5:20])


def test_edges_that_nothing_is_left_for_are_not_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spanning_tree, "_MANY_PAIRS", 0)
    monkeypatch.setattr(spanning_tree, "_PART_AT_ONCE", 2)
    for _ in range(20):
        recording = Recording(PrivacyLoss.zcdp(11), triplets(), 2)
        edges = choose(recording, PrivacyLoss.zcdp(11))
        assert 1 <= len(edges) <= 11
        assert all(paid for _, paid, _ in recording.rounds)

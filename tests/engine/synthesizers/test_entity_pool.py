from __future__ import annotations

import numpy as np
import pytest
import scipy
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from small_tables import digits

from app.engine.method.model_file import ModelFormatError, pack, unpack
from app.engine.schema import PrivacyUnit
from app.engine.synthesizers.class_resampling.entity_pool import (
    ClassResamplingModel,
    Draw,
    EntityPool,
    load_model,
)
from app.engine.table import generator

UNIT = PrivacyUnit("entity", "id", 9)
SCHEMA = digits({"number": 1000})


def accepts(successes: int, trials: int, probability: float, alarm: float = 1e-6) -> bool:
    return bool(scipy.stats.binomtest(successes, trials, probability).pvalue >= alarm)


def pool_of(classes: list[int], sizes: list[int]) -> EntityPool:
    """Entity i has rows 100 i, 100 i + 1, and so on."""
    numbers = [100 * owner + row for owner, size in enumerate(sizes) for row in range(size)]
    starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    return EntityPool({"number": np.array(numbers)}, starts, np.array(classes))


def model_of(
    counts: list[int],
    classes: tuple[int, ...] = (0, 0, 1, 2),
    sizes: tuple[int, ...] = (1, 2, 3, 4),
    paths: tuple[tuple[int, ...], ...] = ((0, 0), (0, 1), (1, 0)),
    redraw: float = 0.8,
) -> ClassResamplingModel:
    return ClassResamplingModel(
        pool_of(list(classes), list(sizes)), paths, np.array(counts), redraw
    )


def people(model: ClassResamplingModel, rows: int | None = None, seed: int = 1) -> list[int]:
    """The public entity of each synthetic one, which has all its rows in order."""
    table = model.sample(rows, generator(seed))
    assert table.entity is not None
    number = table.codes["number"]
    found = []
    for entity in range(int(table.entity.max()) + 1 if table.rows else 0):
        mine = number[table.entity == entity]
        owner = int(mine[0]) // 100
        whole = 100 * owner + np.arange(model.pool.sizes[owner])
        assert np.array_equal(mine, whole[: len(mine)])
        assert rows is not None or len(mine) == len(whole)
        found.append(owner)
    return found


def published_loop(size: int, count: int, redraw: float, rng: np.random.Generator) -> list[bool]:
    """Whether each draw is of an entity drawn before, as the document tells it."""
    drawn: set[int] = set()
    repeats = []
    for _ in range(count):
        one = int(rng.integers(size))
        while one in drawn and rng.random() < redraw:
            one = int(rng.integers(size))
        repeats.append(one in drawn)
        drawn.add(one)
    return repeats


def test_each_class_gives_as_many_entities_as_counted_with_all_their_rows() -> None:
    drawn = np.array(people(model_of([5, 2, 3])))
    assert (np.isin(drawn, (0, 1)).sum(), (drawn == 2).sum(), (drawn == 3).sum()) == (5, 2, 3)


def test_synthetic_entities_are_new_and_numbered_without_gaps() -> None:
    """One public entity drawn ten times becomes ten entities, none with its rows twice over."""
    table = model_of([0, 10, 0]).sample(None, generator(2))
    assert table.entity is not None
    assert np.array_equal(np.bincount(table.entity), np.full(10, 3))


def test_an_empty_class_falls_back_to_its_parent_then_to_all() -> None:
    """The published code drew from an empty list there and stopped."""
    pool = pool_of([0, 0, 2], [1, 1, 1])
    paths = ((0, 0), (0, 1), (1, 0), (2, 0))
    found = [members.tolist() for members in pool.of_classes(paths)]
    assert found == [[0, 1], [0, 1], [2], [0, 1, 2]]


def test_an_entity_is_drawn_twice_from_two_as_often_as_computed_by_hand() -> None:
    """Of two, one drawn: the other is hit first with 1/2, else (with 1/2) it stays with 0.2
    and is tried again with 0.8: 1/2 / (1 - 1/2 * 0.8) = 5/6."""
    trials = 20_000
    fresh = 0
    rng = generator(3)
    for _ in range(trials):
        first, second = Draw(2, 0.8, rng).from_pool(np.arange(2), 2)
        fresh += first != second
    assert accepts(fresh, trials, 5 / 6)
    assert not accepts(fresh, trials, 1 / 2), "drawing with replacement"
    assert not accepts(fresh, trials, 2 / 3), "a redraw with probability 1/2"


@pytest.mark.parametrize("redraw", [0.0, 0.8])
def test_draws_repeat_as_often_as_in_the_published_loop(redraw: float) -> None:
    size, count, trials = 5, 6, 4_000
    rng = generator(4)
    ours = np.zeros(count)
    loops = np.zeros(count)
    for _ in range(trials):
        drawn = Draw(size, redraw, rng).from_pool(np.arange(size), count)
        ours += [one in drawn[:turn] for turn, one in enumerate(drawn)]
        loops += published_loop(size, count, redraw, rng)
    # 5.5 standard deviations of a difference of two binomial counts: 1e-7 for each turn
    spread = 5.5 * np.sqrt(2 * trials * 0.25)
    assert (np.abs(ours - loops) <= spread).all()


@given(
    st.integers(1, 12),
    st.lists(st.integers(0, 15), min_size=1, max_size=3),
    st.sampled_from([0.0, 0.8, 1.0]),
)
@settings(max_examples=50, deadline=None)
def test_draws_come_from_the_pool(size: int, counts: list[int], redraw: float) -> None:
    draw = Draw(20, redraw, generator(5))
    members = np.arange(20)[-size:]
    drawn = np.concatenate([draw.from_pool(members, count) for count in counts])
    assert len(drawn) == sum(counts)
    assert np.isin(drawn, members).all()
    if redraw == 1:
        assert len(set(drawn.tolist())) == min(sum(counts), size), "repeats come last"


def test_all_members_are_drawn_alike() -> None:
    trials, size = 6_000, 4
    rng = generator(6)
    hits = np.zeros((3, size))
    for _ in range(trials):
        drawn: NDArray[np.int64] = Draw(size, 0.8, rng).from_pool(np.arange(size), 3)
        hits[np.arange(3), drawn] += 1
    assert all(accepts(int(n), trials, 1 / size, 1e-6 / hits.size) for n in hits.ravel())


def test_an_entity_drawn_for_another_class_counts_as_drawn_before() -> None:
    """Both classes draw from both entities; with no repeats allowed they take one each."""
    paths = ((0,), (1,), (2,))
    model = model_of([1, 1, 0], (2, 2), (1, 1), paths, redraw=1.0)
    assert all(sorted(people(model, seed=seed)) == [0, 1] for seed in range(20))


@given(st.integers(0, 200), st.integers(0, 2**32))
@settings(max_examples=40, deadline=None)
def test_as_many_rows_as_asked_for_come_out(rows: int, seed: int) -> None:
    table = model_of([5, 2, 3]).sample(rows, generator(seed))
    assert table.rows == rows == len(table.codes["number"])
    assert table.entity is not None
    assert not rows or np.array_equal(np.unique(table.entity), np.arange(table.entity.max() + 1))


def test_rows_asked_for_keep_the_shares_of_the_classes() -> None:
    drawn = np.array(people(model_of([500, 200, 300], redraw=0.0), 24_000))
    expected = {1: 0.5, 2: 0.2, 3: 0.3}
    for owners, share in (((0, 1), expected[1]), ((2,), expected[2]), ((3,), expected[3])):
        assert np.isin(drawn, owners).mean() == pytest.approx(share, abs=0.03)


def test_counts_that_are_all_zero_leave_the_public_shares() -> None:
    model = model_of([0, 0, 0])
    assert model.sample(None, generator(7)).rows == 0
    assert model.sample(50, generator(7)).rows == 50


def test_a_stored_model_samples_as_before() -> None:
    model = model_of([5, 2, 3])
    loaded = load_model(SCHEMA, UNIT, model.dump())
    assert loaded.dump() == model.dump()
    for rows in (None, 17):
        before, after = (each.sample(rows, generator(8)) for each in (model, loaded))
        assert np.array_equal(before.codes["number"], after.codes["number"])
        assert np.array_equal(before.entity, after.entity)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "header",
    [
        {"columns": ["other"]},
        {"columns": "number"},
        {"columns": [["number"]]},
        {"paths": []},
        {"paths": [[0, "a"]] * 3},
        {"redraw": 2},
        {"redraw": "often"},
    ],
)
def test_a_stored_header_that_means_nothing_is_refused(header: dict[str, object]) -> None:
    stored, arrays = unpack(model_of([5, 2, 3]).dump())
    with pytest.raises(ModelFormatError):
        load_model(SCHEMA, UNIT, pack({**stored, **header}, arrays))


@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("codes0", np.full(10, 1000)),
        ("codes0", np.zeros(9, dtype=np.int64)),
        ("sizes", np.array([0, 2, 4, 4])),
        ("sizes", np.array([10, 2, 4, 4])),
        ("sizes", np.zeros(0, dtype=np.int64)),
        ("classes", np.array([0, 0, 1, 3])),
        ("classes", np.array([0, 0, 1])),
        ("counts", np.array([5, -2, 3])),
        ("counts", np.array([5, 2])),
        ("counts", np.array([0.5, 2, 3])),
    ],
)
def test_stored_arrays_that_mean_nothing_are_refused(name: str, array: NDArray[np.int64]) -> None:
    header, arrays = unpack(model_of([5, 2, 3]).dump())
    with pytest.raises(ModelFormatError):
        load_model(SCHEMA, UNIT, pack(header, {**arrays, name: array}))

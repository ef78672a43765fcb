"""Where rows lie within bought bins: sub-bins, their shares, and what comes of them in samples."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from small_tables import EXACT, LIMITS, ROW, quiet, session_on

from app.engine.columns import one_way
from app.engine.columns.axes import Axes
from app.engine.columns.private_bins import plan_axes
from app.engine.columns.within_bins import WithinBinDensity, with_sub_bins
from app.engine.grouping import Grouping
from app.engine.inference.measurements import NoisyMarginal
from app.engine.method.model_file import ModelFormatError, pack, unpack
from app.engine.privacy.loss import PrivacyLoss
from app.engine.privacy.queries import Contribution
from app.engine.privacy.unit_budget import UnitBudget
from app.engine.schema import PrivacyUnit, Schema
from app.engine.synthesizers.aim import Aim, bounds
from app.engine.synthesizers.aim.params import AimParams
from app.engine.synthesizers.independent import Independent, IndependentParams
from app.engine.synthesizers.mst import Mst, MstParams
from app.engine.synthesizers.swift import Swift
from app.engine.synthesizers.swift.params import SwiftParams
from app.engine.table import generator

GAUSSIAN = PrivacyLoss.zcdp(10**12)
SHAPED: list[tuple[Any, Any]] = [
    (Independent(), IndependentParams),
    (Mst(), MstParams),
    (Swift(), SwiftParams),
    (Aim(), AimParams),
]
NAMES = [synthesizer.name for synthesizer, _ in SHAPED]
CELLS = Grouping((0, 1, 9, 100), tail=2)

edges = st.lists(st.integers(1, 10**6), min_size=1, max_size=30, unique=True)


def shape_of(
    cells: Grouping,
    most: int,
    exact: NDArray[np.float64],
    deviation: float,
    public: NDArray[np.int64] | None = None,
) -> WithinBinDensity:
    """The shape told by counts of sub-bins with noise, exact ones for the cells."""
    sub_bins = with_sub_bins(Axes({"x": cells}), ["x"], most).sub_bins["x"]
    noise = np.random.default_rng(0).normal(0, deviation, exact.size) if deviation else 0.0
    variance = np.full(exact.size, max(deviation, 1e-3) ** 2)
    counted = NoisyMarginal(("x",), exact + noise, variance)
    sums = np.zeros(cells.cells)
    starts = np.concatenate([sub_bins.edges[:-1], sub_bins.regular + np.arange(sub_bins.tail)])
    np.add.at(sums, cells.cell_of(starts), exact)
    return WithinBinDensity.of(cells, sub_bins, counted, sums, public)


@given(edges, st.integers(0, 3), st.integers(2, 64))
def test_each_cell_is_cut_into_pieces_of_nearly_one_length_or_ever_wider_ones(
    rising: list[int], tail: int, most: int
) -> None:
    cells = Grouping((0, *sorted(rising)), tail)
    sub_bins = with_sub_bins(Axes({"x": cells}), ["x"], most).sub_bins.get("x", cells)
    assert set(cells.edges) <= set(sub_bins.edges)
    assert sub_bins.tail == tail
    for low, high in zip(cells.edges, cells.edges[1:], strict=False):
        widths = np.diff([edge for edge in sub_bins.edges if low <= edge <= high])
        assert widths.size <= min(most, high - low)
        is_equal = widths.size == min(most, high - low) and np.ptp(widths) <= 1
        assert is_equal or np.all(np.diff(widths) >= -1) or np.all(np.diff(widths) <= 1)


def test_pieces_of_a_bin_far_wider_than_its_neighbour_widen_away_from_it() -> None:
    above = with_sub_bins(Axes({"x": Grouping((0, 100, 100_000), 0)}), ["x"], 8).sub_bins["x"]
    below = with_sub_bins(Axes({"x": Grouping((0, 99_900, 100_000), 0)}), ["x"], 8).sub_bins["x"]
    # 99,900 divided by 4, seven times.
    outwards = [106, 124, 197, 490, 1660, 6343, 25_075, 100_000]
    assert above.edges[8:] == (100, *outwards)
    assert below.edges[:9] == (0, *(100_000 - edge for edge in outwards[-2::-1]), 99_900)


def test_a_mass_is_one_cell_and_special_values_other_and_null_are_too() -> None:
    sub_bins = with_sub_bins(Axes({"x": CELLS}), ["x"], 4).sub_bins["x"]
    assert sub_bins.edges == (0, 1, 3, 5, 7, 9, 31, 54, 77, 100)
    assert sub_bins.cells == 11
    assert with_sub_bins(Axes({"x": CELLS, "y": CELLS}), ["y"], 4).sub_bins.keys() == {"y"}
    assert not with_sub_bins(Axes({"x": Grouping.identity(5, 1)}), ["x"], 4).sub_bins


def test_without_noise_a_piece_has_its_share_of_the_cell() -> None:
    exact = np.array([50, 0, 0, 300, 100, 10, 20, 30, 40, 7, 0], dtype=float)
    shape = shape_of(CELLS, 4, exact, 0)
    assert shape.within.merge.tolist() == [0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 4]
    assert shape.within.shares == pytest.approx(
        [1, 0, 0, 0.75, 0.25, 0.1, 0.2, 0.3, 0.4, 1, 1], abs=1e-6
    )


def test_a_cell_without_rows_is_even_over_its_codes() -> None:
    exact = np.array([50, 0, 0, 0, 0, 10, 20, 30, 40, 7, 0], dtype=float)
    shares = shape_of(CELLS, 4, exact, 0).within.shares
    assert shares[1:5].tolist() == [0.25] * 4


def test_a_shape_that_noise_drowns_is_even() -> None:
    cells = Grouping((0, 500, 1000), 0)
    exact = np.tile(np.linspace(80, 120, 16), 2)
    shares = shape_of(cells, 16, exact, deviation=500).within.shares
    even = cells_even(cells)
    drowned = 500 / 1600
    assert np.abs(shares - even).max() < drowned / 3, "as large as the noise, were it taken as is"


def test_a_shape_that_noise_does_not_drown_stays() -> None:
    cells = Grouping((0, 500, 1000), 0)
    exact = np.zeros(32)
    exact[[3, 20]] = 1600
    shares = shape_of(cells, 16, exact, deviation=50).within.shares
    assert shares[3] > 0.8
    assert shares[20] > 0.8


def test_public_rows_give_the_shape_that_noise_drowns_but_not_where_they_are_further_off() -> None:
    """A slope: of a public table that has the same, and of one that falls where it rises."""
    cells = Grouping((0, 500, 1000), 0)
    exact = np.tile(np.arange(16.0) * 20, 2)
    slope = exact / exact[:16].sum()
    alike = np.repeat(np.arange(1000), np.arange(1000) % 500)
    off = {}
    for name, public in (("none", None), ("alike", alike), ("drifted", 999 - alike)):
        shares = shape_of(cells, 16, exact, 100, public).within.shares
        off[name] = float(np.abs(shares - slope).sum())
    assert off["alike"] < 0.5 * off["none"]
    assert off["drifted"] == off["none"]


def cells_even(cells: Grouping) -> NDArray[np.float64]:
    return np.full(16 * cells.cells, 1 / 16)


@given(st.integers(0, 2**32), st.integers(0, 400))
def test_codes_lie_in_their_cell_and_follow_the_shares(seed: int, rows: int) -> None:
    exact = np.array([50, 0, 0, 300, 100, 10, 20, 30, 40, 7, 0], dtype=float)
    shape = shape_of(CELLS, 4, exact, 0)
    rng = np.random.default_rng(seed)
    cells = rng.integers(0, 5, rows)
    codes = shape.expand(cells, rng)
    assert np.array_equal(CELLS.cell_of(codes), cells)
    drawn = np.bincount(shape.sub_bins.cell_of(codes), minlength=11)
    expected = np.bincount(cells, minlength=5)[shape.within.merge] * shape.within.shares
    assert np.abs(drawn - expected).max() < 1 + 1e-6


def table(most: int = 10**6) -> tuple[Schema, dict[str, NDArray[np.int64]], int]:
    """Sums of money in round numbers, and days without Sundays: 6000 rows."""
    fields = [
        {
            "name": "paid",
            "type": "integer",
            "constraints": {"minimum": 0, "maximum": most, "required": True},
            "bins": {"quantiles": 8},
        },
        {
            "name": "day",
            "type": "date",
            "constraints": {"minimum": "2000-01-01", "maximum": "2030-12-31", "required": True},
            "bins": {"quantiles": 8},
        },
        {
            "name": "sex",
            "type": "string",
            "constraints": {"enum": ["f", "m"], "required": True},
        },
    ]
    rows, rng = 6000, np.random.default_rng(1)
    first = (dt.date(2024, 1, 1) - dt.date(2000, 1, 1)).days  # a Monday
    sex = rng.integers(0, 2, rows)
    paid = 1000 * np.minimum(rng.geometric(0.2, rows), 60)
    day = first + 7 * rng.integers(0, 8, rows) + rng.integers(0, 3, rows) * 2
    return Schema.parse({"fields": fields}), {"paid": paid, "day": day, "sex": sex}, rows


def distance(real: NDArray[np.int64], made: NDArray[np.int64], width: int) -> float:
    """Total variation over cells of `width` codes, with every multiple of it in the middle."""
    cells = [(each + width // 2) // width for each in (real, made)]
    most = 1 + int(max(each.max() for each in cells))
    shares = [np.bincount(each, minlength=most) / len(each) for each in cells]
    return float(np.abs(shares[0] - shares[1]).sum() / 2)


@pytest.mark.parametrize(("synthesizer", "form"), SHAPED, ids=NAMES)
def test_rows_lie_where_the_real_ones_do_within_bins(synthesizer: Any, form: Any) -> None:
    schema, codes, rows = table()
    off = {}
    for within in (1, 16):
        session = session_on(schema, codes, PrivacyLoss.zcdp(10**13))
        params = form(within_bins=within)
        model = synthesizer.fit(session, params, None, 1, quiet)
        loaded = synthesizer.load(schema, ROW, model.dump())
        made = loaded.sample(rows, generator(2)).codes
        assert np.array_equal(made["paid"], model.sample(rows, generator(2)).codes["paid"])
        off[within] = [
            distance(codes["paid"], made["paid"], 500),
            distance(codes["day"], made["day"], 1),
        ]
        assert session.remaining.amount <= 40
    for uniform, shaped in zip(off[1], off[16], strict=True):
        assert uniform > 0.25
        assert shaped < 0.2 * uniform


def test_pieces_are_counted_beside_the_columns_for_half_a_share() -> None:
    schema, codes, _ = table()
    plan = plan_axes(schema, IndependentParams(), UnitBudget(ROW, GAUSSIAN), within_bins=8)
    axes = plan.measure(session_on(schema, codes, GAUSSIAN))
    assert axes.sub_bins.keys() == {"paid", "day"}
    assert all(
        sub_bins.cells > axes.groupings[name].cells for name, sub_bins in axes.sub_bins.items()
    )
    asked = one_way.questions(axes, Contribution(), ROW)
    assert [count.columns for count in asked] == [
        ("paid",), ("day",), ("sex",), (), ("paid",), ("day",),
    ]  # fmt: skip
    shares = one_way.weights(axes, Contribution(), UnitBudget(ROW, GAUSSIAN))
    assert sum(shares) == pytest.approx(1)
    assert shares[4] == shares[5] == shares[0] / 2
    widest = {name: plan.axes.sub_bins[name].cells for name in axes.sub_bins}
    assert all(axes.sub_bins[name].cells <= most for name, most in widest.items())
    none = plan_axes(schema, IndependentParams(), UnitBudget(ROW, GAUSSIAN))
    assert plan.draws - none.draws == sum(widest.values())
    assert not none.axes.sub_bins


def test_nothing_is_counted_in_pieces_where_nothing_is_bought() -> None:
    schema, codes, _ = table()
    form = IndependentParams(bins={"paid": 8, "day": 8})
    plan = plan_axes(schema, form, UnitBudget(ROW, GAUSSIAN), within_bins=8)
    session = session_on(schema, codes, GAUSSIAN)
    assert not plan.measure(session).sub_bins
    assert plan.draws == 0
    assert session.remaining == GAUSSIAN


def test_the_error_of_the_rows_is_told_of_the_size_whatever_is_counted_in_pieces() -> None:
    schema, codes, _ = table()
    plan = plan_axes(schema, IndependentParams(), UnitBudget(ROW, EXACT), within_bins=8)
    axes = plan.measure(session_on(schema, codes))
    unit, rule = PrivacyUnit("entity", "id", 5), Contribution()
    errors = [
        bounds.rows_error(each, rule, UnitBudget(unit, GAUSSIAN))
        for each in (axes, Axes(axes.groupings))
    ]
    assert errors[0] == pytest.approx(errors[1], rel=0.3)


@pytest.mark.parametrize(
    ("sub_bins", "shares"),
    [
        ([["paid", {"edges": [0, 10, 1_000_001], "tail": 0}]], [0.5, 0.5]),
        ([["town", {"edges": [0, 10], "tail": 0}]], [1.0]),
        ([["sex", {"regular": 2, "tail": 0}]], [0.5, 0.5]),
        (None, [1.0]),
    ],
)
@pytest.mark.parametrize(("synthesizer", "form"), SHAPED[:2], ids=NAMES[:2])
def test_pieces_that_cut_no_cells_are_refused(
    synthesizer: Any, form: Any, sub_bins: object, shares: list[float]
) -> None:
    schema, codes, _ = table()
    model = synthesizer.fit(session_on(schema, codes), form(), None, 1, quiet)
    header, arrays = unpack(model.dump())
    changed = pack(header | {"pieces": sub_bins}, {**arrays, "pieces0": np.array(shares)})
    with pytest.raises(ModelFormatError):
        synthesizer.load(schema, ROW, changed)


def test_pieces_that_no_message_would_carry_are_refused() -> None:
    column = {
        "type": "number",
        "constraints": {"minimum": 0, "maximum": 1, "required": True},
        "bins": {"quantiles": 256},
    }
    schema = Schema.parse({"fields": [column | {"name": f"x{i}"} for i in range(28)]})
    for most, pointers in ((64, ["/params/columns"]), (32, [])):
        form = IndependentParams(within_bins=most)
        limits = replace(LIMITS, time_s=3600.0)
        found = Independent().check(schema, ROW, form, GAUSSIAN, None, limits).problems
        assert [problem.pointer for problem in found] == pointers


@pytest.mark.parametrize(("synthesizer", "form"), SHAPED, ids=NAMES)
def test_preflight_knows_of_pieces(synthesizer: Any, form: Any) -> None:
    schema, _, _ = table()
    many, none = (
        synthesizer.check(schema, ROW, form(within_bins=most), GAUSSIAN, None, LIMITS)
        for most in (8, 1)
    )
    assert not many.problems
    assert many.expected_error > none.expected_error or synthesizer.name != "independent"

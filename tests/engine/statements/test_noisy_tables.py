"""What noisy histograms say together about the same cells."""

from __future__ import annotations

import numpy as np
import pytest
from small_tables import digits

from app.engine.grouping import Grouping
from app.engine.privacy.queries import Contribution, Count, Measurement
from app.engine.schema import PrivacyUnit
from app.engine.statements.noisy import NoisyTable, coarsened

SCHEMA = digits({"x": 6, "y": 4})
ROW = PrivacyUnit("row")


def table(values: np.ndarray, error: float, columns: tuple[str, ...] = ("x", "y")) -> NoisyTable:
    measured = Measurement(
        Count(columns), values.astype(np.int64), "gaussian", error, error, 1.0, 1.0
    )
    found = NoisyTable.of(measured, SCHEMA, ROW)
    assert found is not None
    return found


def test_a_finer_grouping_is_mapped_to_a_coarser_one() -> None:
    fine, coarse = Grouping((0, 2, 4, 6), 1), Grouping((0, 4, 6), 1)
    assert coarsened(fine, coarse).tolist() == [0, 0, 1, 2]
    assert coarsened(coarse, fine) is None
    merged = Grouping((0, 4, 6), 1, (0, 1, 0))
    assert coarsened(fine, merged).tolist() == [0, 0, 1, 0]
    assert coarsened(merged, coarse) is None


def test_an_interval_that_spans_merged_cells_is_not_taken_for_one_of_them() -> None:
    """Codes 0 and 2 share a cell that code 1 is not in: no cell of all three lies in it."""
    assert coarsened(Grouping((0, 3), 0), Grouping((0, 1, 2, 3), 0, (0, 1, 0))) is None


def test_columns_are_summed_out_with_their_noise() -> None:
    values = np.arange(24).reshape(6, 4)
    one = table(values, 3.0).over(("y",), (SCHEMA.column("y").grouping,))
    assert one.values.tolist() == values.sum(axis=0).tolist()
    assert one.variance.tolist() == [6 * 9.0] * 4
    halves = table(values, 3.0).over(
        ("y", "x"), (SCHEMA.column("y").grouping, Grouping((0, 3, 6), 0))
    )
    assert halves.values.tolist() == [[values[:3, y].sum(), values[3:, y].sum()] for y in range(4)]
    assert halves.variance[0].tolist() == [27.0, 27.0]


def test_answers_are_weighted_by_inverse_variance() -> None:
    one = table(np.full((6, 4), 10), 1.0)
    both = one.with_([table(np.full((6, 4), 20), 3.0)])
    assert both.values[0, 0] == pytest.approx(11)
    assert both.variance.item() == pytest.approx(0.9)


def test_only_what_counts_the_same_is_joined() -> None:
    def of(rule: Contribution) -> NoisyTable:
        counted = Measurement(
            Count(("x", "y"), contribution=rule), np.zeros((6, 4), np.int64), "gaussian", 1, 1, 1, 1
        )
        found = NoisyTable.of(counted, SCHEMA, PrivacyUnit("entity", "id", 5))
        assert found is not None
        return found

    rows, two, three = of(Contribution()), of(distinct(2)), of(distinct(3))
    assert rows.comparable(rows, ("x",))
    assert not two.comparable(rows, ("x", "y"))
    assert not two.comparable(three, ("x", "y"))
    assert two.comparable(of(distinct(2)), ("x", "y"))
    # Distinct pairs of an entity do not add up to its distinct values.
    assert not two.comparable(of(distinct(2)), ("x",))


def distinct(limit: int) -> Contribution:
    return Contribution("distinct", limit=limit)

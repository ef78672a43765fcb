from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_tables import EXACT, ROW, colours, random_codes, session_on

from app.engine.columns.table_size import (
    MOST_PULL,
    Size,
    SizeEstimate,
    pooled,
    pooled_variance,
    pulled,
    size_questions,
)
from app.engine.method.model_file import ModelFormatError
from app.engine.privacy.loss import PrivacyLoss
from app.engine.privacy.references import LARGEST_REFERENCE
from app.engine.schema import PrivacyUnit

HOUSEHOLD = PrivacyUnit("entity", "id", 4)


def measured(unit: PrivacyUnit, rows: float | None = None) -> Size:
    """The size of a table of 30 rows, three for each of 10 entities."""
    entity = unit.kind == "entity"
    schema = colours(entity)
    entities = np.arange(30) % 10 if entity else None
    session = session_on(schema, random_codes(schema, 30), EXACT, unit, entities)
    answers = session.count(size_questions(unit), EXACT)
    return Size.from_answers(unit, float(answers[0].values) if rows is None else rows, answers)


def test_a_row_unit_has_rows_alone() -> None:
    size = measured(ROW)
    assert (size.rows, size.entities) == (30, None)
    assert size.deal(7, np.random.default_rng(0)) is None


def test_an_entity_unit_has_entities_too() -> None:
    assert measured(HOUSEHOLD) == Size(30, 10, 4)


def test_noise_cannot_make_a_size_impossible() -> None:
    assert measured(ROW, rows=-3.2).rows == 0
    assert measured(HOUSEHOLD, rows=1e9).rows == 40
    assert measured(HOUSEHOLD, rows=-3.2).rows == 10, "an entity has a row at least"


def test_however_many_rows_noise_tells_they_can_be_compared() -> None:
    assert measured(ROW, rows=1e15).rows <= LARGEST_REFERENCE / 2


@given(
    st.integers(0, 500), st.integers(0, 500), st.integers(1, 7), st.integers(0, 400), st.integers(0)
)
def test_dealt_entities_are_numbered_from_0_and_within_their_bound(
    rows: int, entities: int, most: int, wanted: int, seed: int
) -> None:
    assembled_rows = Size(rows, entities, most).deal(wanted, np.random.default_rng(seed % 2**32))
    assert assembled_rows is not None
    assert assembled_rows.size == wanted
    if wanted:
        held = np.bincount(assembled_rows)
        assert held.min() >= 1
        assert held.max() <= most
        assert held.max() - held.min() <= 1


def test_a_larger_sample_has_more_entities_of_the_same_size() -> None:
    assembled_rows = Size(30, 10, 4).deal(300, np.random.default_rng(0))
    assert assembled_rows is not None
    assert np.bincount(assembled_rows).tolist() == [3] * 100


def test_estimates_are_pooled_by_precision() -> None:
    assert pooled([(10.0, 1.0), (20.0, 4.0)]) == pytest.approx(12.0)


@given(st.floats(-100, 100), st.floats(0.01, 100), st.floats(-1e6, 1e6), st.floats(0.01, 100))
def test_another_estimate_moves_a_value_by_so_many_standard_errors_at_most(
    value: float, variance: float, estimate: float, of_estimate: float
) -> None:
    moved = pulled(value, variance, estimate, of_estimate)
    assert abs(moved - value) <= MOST_PULL * variance**0.5 + 1e-9
    assert min(value, estimate) - 1e-6 <= moved <= max(value, estimate) + 1e-6


def test_a_near_estimate_is_pooled() -> None:
    assert pulled(10.0, 4.0, 12.0, 4.0) == pytest.approx(11.0)
    assert pooled_variance([4.0, 4.0]) == pytest.approx(2.0)


def test_a_size_takes_what_else_is_known_of_entities() -> None:
    schema = colours(entity=True)
    loss = PrivacyLoss.zcdp(10**10)
    session = session_on(schema, random_codes(schema, 30), loss, HOUSEHOLD, np.arange(30) % 10)
    answers = session.count(size_questions(HOUSEHOLD), loss)
    known = SizeEstimate(30.0, 1.0, float(answers[1].values) + 3, 1e-6)
    assert Size.from_answers(HOUSEHOLD, 30.0, answers, known).entities == max(
        0, round(float(answers[1].values) + 3)
    )


@pytest.mark.parametrize("unit", [ROW, HOUSEHOLD])
def test_a_stored_size_comes_back(unit: PrivacyUnit) -> None:
    size = measured(unit)
    assert Size.from_json(size.to_json(), unit) == size


@pytest.mark.parametrize(
    "wire", [None, {}, {"rows": -1}, {"rows": 3}, {"rows": 3, "entities": 2, "max_rows": 5}]
)
def test_a_stored_size_of_another_unit_is_refused(wire: object) -> None:
    with pytest.raises(ModelFormatError):
        Size.from_json(wire, HOUSEHOLD)

"""Counts of listed combinations, as `aggregate_seeded` measures them, are evidence too."""

from __future__ import annotations

import numpy as np
import pytest
from small_tables import digits, session_on

from app.engine.privacy.loss import PrivacyLoss
from app.engine.privacy.queries import TupleCount, Tuples
from app.engine.schema import PrivacyUnit, Schema
from app.engine.statements import KeptRows, Released, Statement, stated_and_pictured
from app.engine.statements.pictures import Pictures
from app.engine.table import Table

FIELDS = digits({"x": 4, "y": 3}).to_wire()["fields"]
# Items 0 to 3 are the values of x, 4 to 6 those of y.
SINGLES = np.arange(7)[:, None]
PAIRS = np.array([(x, 4 + y) for x in range(4) for y in range(3) if (x, y) != (0, 0)])


def made(unit: PrivacyUnit, items: np.ndarray, limit: int) -> tuple[Statement, Pictures]:
    entity = unit.kind == "entity"
    own = [{"name": "id", "type": "string", "role": "entity"}] if entity else []
    schema = Schema.parse({"fields": own + FIELDS})
    rng = np.random.default_rng(0)
    codes = {"x": rng.integers(0, 4, 2000), "y": rng.integers(0, 3, 2000)}
    owner = np.arange(2000) // 2 if entity else None
    session = session_on(schema, codes, PrivacyLoss.zcdp(10**13), unit, owner)
    answer = session.tuples(
        TupleCount(Tuples(("x", "y"), {}, items), limit), PrivacyLoss.zcdp(10**13)
    )
    kept = KeptRows(schema)
    kept.see(Table(codes, 2000, owner))
    released = Released(schema, unit, [answer], kept.rows(entities=entity))
    return stated_and_pictured(released)


@pytest.mark.parametrize("limit", [1, 2])
def test_single_values_of_rows_are_columns(limit: int) -> None:
    """Of two values of a row one counts at a time: of the sample as of the table."""
    found, pictures = made(PrivacyUnit("row"), SINGLES, limit)
    for each in found.columns:
        assert each.basis == "measured"
        assert each.interval is not None
        # With a limit of 1, the draw of one value of each row moves shares by 0.02 or so.
        assert each.interval[1] < 0.08
    assert [len(each.cells) for each in pictures.columns] == [4, 3]
    assert not pictures.pairs


def test_pairs_that_are_not_listed_are_left_out_on_both_sides() -> None:
    found, pictures = made(PrivacyUnit("row"), PAIRS, 1)
    (pair,) = found.pairs
    assert (pair.basis, pair.cells, pair.verdict) == ("measured", 11, "good")
    (picture,) = pictures.pairs
    assert picture.measured[0][0] == picture.synthetic[0][0] == 0
    assert picture.measured[1][0] == pytest.approx(1 / 11, abs=0.03)


def test_an_entity_counts_in_each_combination_that_it_holds() -> None:
    found, _ = made(PrivacyUnit("entity", "id", 2), SINGLES, 3)
    assert {each.verdict for each in found.columns} <= {"good", "usable"}
    assert found.columns[0].note == "each entity counts once in each of at most 3 cells that it has"

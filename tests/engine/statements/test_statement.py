"""Statements of whole releases, through a real kernel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from small_tables import digits, session_on

from app.engine.method import ExpectedError
from app.engine.privacy.loss import PrivacyLoss
from app.engine.privacy.queries import Candidate, Contribution, Count
from app.engine.schema import PrivacyUnit, Schema
from app.engine.statements import KeptRows, Released, StatedDistance, Statement, stated
from app.engine.statements.statement import RULES, verdict_of
from app.engine.table import Table

ROW = PrivacyUnit("row")
FAMILY = PrivacyUnit("entity", "id", 4)
LOSS = PrivacyLoss.zcdp(10**12)
ROWS = 3000
SCHEMA = digits({"x": 6, "y": 4, "z": 3})


def schema(entity: bool) -> Schema:
    if not entity:
        return SCHEMA
    fields = [{"name": "id", "type": "string", "role": "entity"}, *SCHEMA.to_wire()["fields"]]
    return Schema.parse({"fields": fields})


def rows(seed: int = 0, total: int = ROWS) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.choice(6, total, p=[0.4, 0.3, 0.1, 0.1, 0.05, 0.05])
    return {"x": x, "y": np.minimum(x, 3), "z": rng.choice(3, total, p=[0.96, 0.03, 0.01])}


def statement(
    counts: Sequence[Count],
    unit: PrivacyUnit = ROW,
    sample: dict[str, np.ndarray] | None = None,
    scores: Sequence[Candidate] = (),
    errors: Sequence[ExpectedError] = (),
) -> Statement:
    entity = unit.kind == "entity"
    owner = np.arange(ROWS) // 3 if entity else None
    session = session_on(schema(entity), rows(), LOSS, unit, owner)
    answers: list[Any] = []
    if counts:
        answers += session.count(list(counts), PrivacyLoss.zcdp(5 * 10**11))
    if scores:
        answers.append(session.scores(list(scores), PrivacyLoss.zcdp(10**11)))
    kept = KeptRows(schema(entity))
    made = rows(1) if sample is None else sample
    kept.see(Table(made, len(made["x"]), owner))
    return stated(
        Released(schema(entity), unit, answers, kept.rows(entities=entity), tuple(errors))
    )


def of(found: Statement, *columns: str) -> StatedDistance:
    everything = (*found.columns, *found.pairs)
    return next(each for each in everything if each.columns == columns)


ONE_WAY = [Count(("x",)), Count(("y",)), Count(("z",))]


def test_what_was_counted_is_measured_and_a_close_sample_is_good() -> None:
    found = statement([*ONE_WAY, Count(("y", "x"))])
    for columns in (("x",), ("y",), ("z",), ("x", "y")):
        each = of(found, *columns)
        assert (each.basis, each.verdict) == ("measured", "good")
        assert each.interval is not None
        assert each.distance is not None
        assert each.interval[0] <= each.distance <= each.interval[1]
    assert of(found, "x", "y").cells == 24
    assert of(found, "x").sampling_error == pytest.approx(0.012, abs=0.005)


def test_a_sample_that_is_off_is_weak() -> None:
    wrong = rows(1)
    wrong["x"] = 5 - wrong["x"]
    found = statement(ONE_WAY, sample=wrong)
    each = of(found, "x")
    assert each.verdict == "weak"
    assert each.interval is not None
    assert each.interval[0] > 0.5


def test_a_pair_that_was_not_counted_is_bounded_by_its_columns() -> None:
    """`z` is nearly constant, so its pairs cannot be far off; `x` and `y` can."""
    found = statement(ONE_WAY)
    free, tied = of(found, "x", "y"), of(found, "x", "z")
    for each in (free, tied):
        assert (each.basis, each.verdict, each.distance) == (
            "implied by the model",
            "not measured",
            None,
        )
    assert free.interval is None or free.interval[1] > 0.5
    assert tied.interval is not None
    assert tied.interval[1] < 0.8


def test_columns_and_pairs_come_from_larger_tables() -> None:
    found = statement([Count(("x", "y", "z"))])
    assert all(each.basis == "measured" for each in (*found.columns, *found.pairs))
    assert of(found, "x").verdict == "good"


def test_without_answers_nothing_is_stated() -> None:
    found = statement([])
    assert {each.basis for each in found.columns} == {"not measured"}
    assert {each.verdict for each in (*found.columns, *found.pairs)} == {"not measured"}
    assert all(each.interval is None for each in found.numbers)
    assert [each.value is not None for each in found.numbers] == [True] * len(found.numbers)


def test_a_method_s_own_bound_narrows_what_is_known() -> None:
    reference = np.outer(np.bincount(rows()["x"]), np.bincount(rows()["z"])) / ROWS
    score = Candidate(Count(("x", "z")), (reference,))
    bound = ExpectedError(("x", "z"), 0.04, 0.95)
    found = of(statement([], scores=[score], errors=[bound]), "x", "z")
    assert (found.basis, found.verdict) == ("measured", "usable")
    assert found.interval is not None
    # Drawing 3,000 rows adds to the bound of the model.
    assert 0.05 < found.interval[1] < 0.15


def test_entities_are_compared_under_the_rule_of_the_count() -> None:
    clipped = Contribution("clipped", norm=1.0)
    counts = [Count((name,), contribution=clipped) for name in "xyz"]
    found = statement([*counts, Count(()), Count((), contribution=Contribution("one"))], FAMILY)
    assert found.unit == "entities"
    assert of(found, "x").note == "the counts of each entity are scaled down to norm 1"
    assert of(found, "x").verdict in ("good", "usable")
    assert any("`clipped`" in note and "of the rows' weight" in note for note in found.notes)
    assert all(each.interval is None for each in found.numbers)
    assert any(each.note and "not of rows" in each.note for each in found.numbers)


@pytest.mark.parametrize("rule", [Contribution("distinct", limit=2), Contribution("one")])
def test_other_rules_of_entities_too(rule: Contribution) -> None:
    found = statement([Count(("x", "y"), contribution=rule)], FAMILY)
    assert of(found, "x", "y").basis == "measured"
    assert of(found, "x", "y").verdict in ("good", "usable")


def test_numbers_of_rows_have_intervals() -> None:
    found = statement([*ONE_WAY, Count(("x", "y"))])
    real = rows()
    numbers = {(each.statistic, each.columns, each.q): each for each in found.numbers}
    mean = numbers["mean", ("x",), None]
    assert mean.interval is not None
    # The noise moves an end by 0.005; that an interval holds is tested over many runs.
    assert mean.interval[0] < real["x"].mean() + 0.05
    assert mean.interval[1] > real["x"].mean() - 0.05
    assert mean.interval[1] - mean.interval[0] < 0.1
    assert numbers["quantile", ("x",), 0.5].interval == (1.0, 1.0)
    correlation = numbers["correlation", ("x", "y"), None]
    assert correlation.interval is not None
    assert correlation.interval[0] > 0.9
    assert numbers["correlation", ("x", "z"), None].interval is None


def test_text_has_no_numbers() -> None:
    text = Schema.parse(
        {
            "fields": [
                {"name": n, "type": "string", "constraints": {"enum": ["a", "b"]}} for n in "uv"
            ]
        }
    )
    kept = KeptRows(text)
    kept.see(Table({name: np.arange(10) % 2 for name in "uv"}, 10))
    found = stated(Released(text, ROW, [], kept.rows(entities=False)))
    assert (found.numbers, len(found.pairs)) == ((), 1)


def test_an_empty_sample_has_a_statement() -> None:
    empty = {name: codes[:0] for name, codes in rows().items()}
    found = statement(ONE_WAY, sample=empty)
    assert of(found, "x").verdict == "weak"
    assert all(each.value is None for each in found.numbers)


def test_verdicts_follow_the_rules_that_are_stated() -> None:
    ends = {"good": 0.05, "usable": 0.15, "weak": 0.151}
    for verdict, end in ends.items():
        assert verdict_of("measured", (0.0, end)) == verdict
    assert verdict_of("implied by the model", (0.0, 0.01)) == "not measured"
    assert {"0.05" in RULES["good"], "0.15" in RULES["usable"]} == {True}


def test_the_json_has_what_a_reader_needs() -> None:
    wire = statement(ONE_WAY).to_json()
    assert set(wire) == {
        "confidence", "unit", "rows", "rules", "columns", "pairs", "numbers", "notes"
    }  # fmt: skip
    assert wire["columns"][0]["column"] == "x"
    assert set(wire["pairs"][0]) == {
        "columns", "distance", "interval", "verdict", "basis", "cells", "sampling_error", "note"
    }  # fmt: skip
    assert set(wire["numbers"][0]) == {
        "statistic", "columns", "q", "value", "interval", "basis", "note"
    }  # fmt: skip

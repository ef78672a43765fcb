"""What the bench of real tables reads off certificates, measurements and files."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pytest

from app.engine.importers import import_nist_dictionary
from app.engine.schema import Schema
from bench.real_tables import census_dictionary, undeclared
from bench.real_tables.purchases import Households, bounded, dealt_at_random
from bench.real_tables.undeclared import Step, discovered, first_steps, quantiles, rank_error


def mechanism(question: int, name: str, *columns: list[str], **loss: str) -> dict[str, Any]:
    return {"question": question, "mechanism": name, "columns": list(columns), "loss": loss}


CODED = (
    "EDU",
    "DREM",
    "DPHY",
    "MSP",
    "PINCP_DECILE",
    "INDP_CAT",
    "HOUSING_TYPE",
    "OWN_RENT",
    "NOC",
    "NPF",
)
CERTIFICATE = {
    "mechanisms": [
        mechanism(0, "discovery of values with threshold 55", ["area"], rho="0.1", delta="1e-7"),
        mechanism(1, "histogram", ["fare"], rho="0.01"),
        mechanism(2, "quantile 0.5 out of 23 points", ["fare"], rho="0.02"),
        mechanism(3, "quantile 0.25 out of 47 points", ["fare"], rho="0.02"),
        mechanism(4, "histogram", ["area"], rho="0.3"),
        mechanism(4, "histogram", ["fare"], rho="0.3"),
        mechanism(5, "scores of 1 candidates", ["area", "fare"], rho="0.05"),
        mechanism(6, "histogram", ["area", "fare"], rho="0.1"),
        mechanism(7, "histogram", [], rho="0.1"),
    ]
}


def test_first_steps_are_questions_about_one_column_before_all_columns_are_counted() -> None:
    assert first_steps(CERTIFICATE, ["area", "fare"]) == [
        Step("area", "discovery of values with threshold 55", 1, Decimal("0.1"), Decimal("1e-7")),
        Step("fare", "histogram", 1, Decimal("0.01"), Decimal(0)),
        Step("fare", "quantile", 2, Decimal("0.04"), Decimal(0)),
    ]
    assert [each.column for each in first_steps(CERTIFICATE, ["area"])] == ["area"]


def test_found_values_and_quantiles_are_among_the_measurements() -> None:
    quantile = {"of": "fare", "q": 0.5, "point": "7", "rank_error": 2.0}
    measured: list[dict[str, Any]] = [
        {"values": [3], "listed": [{"area": "north"}, {"area": "south"}]},
        {"values": [1], "listed": [{"area": "north", "day": 1}]},
        {"values": [], "quantile": quantile},
        {"values": [4, 4]},
    ]
    assert discovered(measured, "area") == ["north", "south"]
    assert quantiles(measured) == [quantile]


@pytest.mark.parametrize(
    ("point", "q", "error"),
    [("4", 0.5, 1), ("5", 0.5, 0), ("6", 0.5, 3), ("1", 0.5, 4), ("9", 1, 0)],
)
def test_a_point_misses_its_rank_by_the_numbers_between(point: str, q: float, error: int) -> None:
    numbers = np.array([1, 2, 3, 4, 5, 5, 5, 5, 7, 8])
    assert rank_error(numbers, {"q": q, "point": point}) == error


def test_the_columns_of_the_examples_are_declared_anew() -> None:
    for spec, names in (
        (undeclared.incidents(), {"Neighborhood"}),
        (undeclared.adult(), {"fnlwgt", "capital-gain"}),
    ):
        columns = {column.name: column for column in Schema.parse(spec["schema"]).columns}
        assert names <= columns.keys()
        assert all(columns[name].discovers or columns[name].grouping.cells <= 30 for name in names)


def test_what_is_added_to_the_imported_dictionary_completes_a_declaration() -> None:
    codes = {str(code): "meaning" for code in range(19)}
    ends = {"N": "N/A", "min": -9000, "max": 2_000_000}
    document = {name: {"description": name, "values": {"N": "N/A", **codes}} for name in CODED}
    document |= {name: {"description": name, "values": ends} for name in census_dictionary.ADDED}
    document["INDP"] = {"description": "Industry codes"}
    document["DENSITY"] = {"description": "Density", "values": {"min": 16.3, "max": 52864.7}}
    wire = census_dictionary.completed(import_nist_dictionary(document))
    schema = Schema.parse(wire)
    assert schema.column("DENSITY").discovers == 50
    assert schema.column("INDP").grouping.cells == 19
    assert len(schema.constraints) == len(census_dictionary.RULES)


def test_households_are_told_by_their_rows_and_weeks() -> None:
    table = pd.DataFrame({"household_id": [1, 1, 1, 2, 2, 3], "week": [5, 5, 6, 1, 1, 9]})
    made = Households.of(table)
    assert sorted(zip(made.rows.tolist(), made.weeks.tolist(), strict=True)) == [
        (1, 1),
        (2, 1),
        (3, 2),
    ]
    assert made.apart(made) == 0
    fewer = Households.of(bounded(table, 2))
    assert sorted(fewer.rows.tolist()) == [1, 2, 2]
    assert made.apart(fewer) == pytest.approx(1 / 3)
    assert len(dealt_at_random(table)) == len(table)

"""What stands in the way of an adapted method, known before anything is charged."""

from __future__ import annotations

from dataclasses import replace

import pytest
from adapter_tables import pairs_schema

from app.engine.adapters.synthesizer import Adapted, DpmmAim, DpmmMst, SmartnoiseAim
from app.engine.method import Limits, Preflight
from app.engine.privacy.loss import PrivacyLoss
from app.engine.schema import PrivacyUnit, Schema

METHODS = (DpmmAim(), DpmmMst(), SmartnoiseAim())
ROW = PrivacyUnit("row")
ZCDP = PrivacyLoss.zcdp(10**11)
LIMITS = Limits(10_000, None, 2**32, 3600)


def wide(*cells: int) -> Schema:
    return Schema.parse(
        {
            "fields": [
                {
                    "name": f"c{i}",
                    "type": "integer",
                    "constraints": {"minimum": 1, "maximum": most, "required": True},
                }
                for i, most in enumerate(cells)
            ]
        }
    )


def checked(
    method: Adapted,
    schema: Schema | None = None,
    loss: PrivacyLoss = ZCDP,
    unit: PrivacyUnit = ROW,
    limits: Limits = LIMITS,
    **form: object,
) -> Preflight:
    params = method.Params.model_validate(form)
    return method.check(schema or pairs_schema(), unit, params, loss, None, limits)


def pointers(preflight: Preflight) -> list[str]:
    return [problem.pointer for problem in preflight.problems]


@pytest.mark.parametrize("method", METHODS)
def test_a_small_table_and_a_gaussian_guarantee_have_no_problem(method: Adapted) -> None:
    preflight = checked(method)
    assert preflight.problems == ()
    assert preflight.memory_bytes > 2**28
    assert preflight.expected_error > 1


@pytest.mark.parametrize("method", METHODS)
def test_no_pure_guarantee_is_kept(method: Adapted) -> None:
    assert pointers(checked(method, loss=PrivacyLoss.pure(10**12))) == ["/guarantee"]


@pytest.mark.parametrize("method", METHODS)
def test_an_entity_of_many_rows_takes_more_than_there_is(method: Adapted) -> None:
    schema, small = pairs_schema(entity=True), PrivacyLoss.zcdp(10**10)
    assert pointers(checked(method, schema, small, PrivacyUnit("entity", "id", 200))) == [
        "/guarantee"
    ]
    few = checked(method, schema, small, PrivacyUnit("entity", "id", 4))
    assert few.problems == ()
    alone = checked(method, schema, small, PrivacyUnit("entity", "id", 1))
    assert few.expected_error == pytest.approx(4 * alone.expected_error, rel=1e-6)


@pytest.mark.parametrize("method", METHODS)
def test_one_column_is_too_few(method: Adapted) -> None:
    assert pointers(checked(method, columns=("a",))) == ["/params/columns"]


@pytest.mark.parametrize("method", METHODS)
def test_a_table_beyond_the_memory_of_a_job_is_refused(method: Adapted) -> None:
    many = replace(LIMITS, max_total_rows=10**9)
    assert "/params" in pointers(checked(method, limits=many))


@pytest.mark.parametrize("method", METHODS)
def test_bought_bins_and_values_are_left_to_methods_that_buy(method: Adapted) -> None:
    number = {"type": "number", "constraints": {"minimum": 0, "maximum": 9}, "bins": "quantiles"}
    fields = [{"name": "x", **number}, *pairs_schema().to_wire()["fields"]]
    assert pointers(checked(method, Schema.parse({"fields": fields}))) == ["/params/bins/x"]


def test_a_tree_that_no_message_would_carry_is_refused() -> None:
    assert pointers(checked(DpmmMst(), wide(4000, 4000))) == ["/params/columns"]


def test_a_column_that_is_in_no_small_marginal_is_pointed_at() -> None:
    found = checked(DpmmAim(), wide(3, 4000, 5), max_cells=10_000)
    assert pointers(found) == ["/params/max_cells"]
    assert "`c1`" in found.problems[0].message
    assert checked(DpmmAim(), wide(3, 4000, 5), max_cells=12_000).problems == ()


def test_a_marginal_needs_as_many_columns_as_its_degree() -> None:
    assert pointers(checked(DpmmAim(), degree=3)) == ["/params/degree"]

"""Graphical synthesizers know the combinations that a dictionary rules out."""

from __future__ import annotations

import numpy as np
import pytest
from ruled_tables import broken, category, dictionary, integer

from app.engine.catalog import registry
from app.engine.method import Limits, Model
from app.engine.privacy.library import open_session
from app.engine.privacy.loss import PrivacyLoss
from app.engine.schema import PrivacyUnit, Schema

RULED = dictionary(
    [integer("work", 0, 3), category("pay", "none", "some", "much"), integer("city", 0, 4)],
    {"kind": "implied", "when": {"work": [0]}, "then": {"pay": ["none"]}},
    {"kind": "order", "columns": ["work", "city"]},
)
FREE = Schema.parse({"fields": RULED.to_wire()["fields"]})
ROW = PrivacyUnit("row")
FORM = {"columns": ["work", "pay", "city"]}


def fitted(name: str, schema: Schema, rows: int = 4000) -> Model:
    """On rows that keep the rules, under noise that hides which pairs belong together."""
    rng = np.random.default_rng(1)
    city = rng.integers(0, 5, rows)
    work = np.minimum(rng.integers(0, 4, rows), city)
    codes = {"work": work, "pay": np.where(work > 0, rng.integers(0, 3, rows), 0), "city": city}
    session = open_session(codes, schema, ROW, PrivacyLoss.zcdp(2 * 10**9))
    synthesizer = registry.builtin(name)
    params = synthesizer.Params.model_validate(FORM)
    model = synthesizer.fit(session, params, None, 0, lambda fraction, stage: None)  # noqa: ARG005
    return synthesizer.load(schema, ROW, model.dump())


@pytest.mark.parametrize("name", ["mst", "swift", "aim"])
def test_a_fitted_model_makes_no_row_that_a_small_rule_forbids(name: str) -> None:
    table = fitted(name, RULED).sample(3000, np.random.default_rng(0))
    assert broken(RULED, table.codes) == [0, 0]
    unruled = fitted(name, FREE).sample(3000, np.random.default_rng(0))
    assert min(broken(RULED, unruled.codes)) > 0


@pytest.mark.parametrize("name", ["mst", "swift", "aim"])
def test_the_forecast_counts_what_rules_add(name: str) -> None:
    synthesizer = registry.builtin(name)
    params = synthesizer.Params.model_validate(FORM)
    limits = Limits(max_total_rows=10_000, rows=None, memory_bytes=2**30, time_s=60.0)
    needs = [
        synthesizer.check(schema, ROW, params, PrivacyLoss.zcdp(10**10), None, limits).memory_bytes
        for schema in (FREE, RULED)
    ]
    assert needs[1] > needs[0]


CHILDREN = dictionary(
    [
        integer("age", 0, 39),
        category("married", "yes", "no", "child"),
        category("paid", "yes", "no", "child"),
        category("home", "own", "rent", "child"),
    ],
    {
        "kind": "implied",
        "when": {"age": {"maximum": 14}},
        "then": {"married": ["child"], "paid": ["child"], "home": ["child"]},
    },
)


@pytest.mark.parametrize("name", ["mst", "swift", "aim"])
def test_a_rule_over_many_columns_holds_though_its_ages_are_too_few_to_be_told_apart(
    name: str,
) -> None:
    """Ages whose rows drown in noise are merged, but not children with others."""
    rng = np.random.default_rng(2)
    age = np.where(rng.random(4000) < 0.1, rng.integers(0, 15, 4000), rng.integers(15, 40, 4000))
    others = {
        n: np.where(age < 15, 2, rng.integers(0, 2, 4000)) for n in ("married", "paid", "home")
    }
    session = open_session({"age": age, **others}, CHILDREN, ROW, PrivacyLoss.zcdp(5 * 10**9))
    synthesizer = registry.builtin(name)
    model = synthesizer.fit(
        session,
        synthesizer.Params.model_validate({}),
        None,
        0,
        lambda fraction, stage: None,  # noqa: ARG005
    )
    table = model.sample(3000, np.random.default_rng(0))
    assert (table.codes["age"] < 15).any()
    assert broken(CHILDREN, table.codes) == [0]

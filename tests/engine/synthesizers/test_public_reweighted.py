from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from small_tables import EXACT, LIMITS, ROW, colours, digits, quiet, random_codes, session_on

from app.engine.marginals import total_variation
from app.engine.method import Limits, Preflight, PublicFacts
from app.engine.method.model_file import ModelFormatError, pack, unpack
from app.engine.prior.entities.model import PublicReweightedModel
from app.engine.prior.entities.params import PublicReweightedParams
from app.engine.privacy.kernel import Kernel
from app.engine.privacy.library import LocalSession
from app.engine.privacy.loss import PrivacyLoss
from app.engine.privacy.source import ArraySource
from app.engine.public.rows import PublicDataUnfit
from app.engine.schema import PrivacyUnit, Schema
from app.engine.synthesizers.public_reweighted import PublicReweighted
from app.engine.table import PublicTable, Table, generator

DOCS = Path(__file__).parents[3] / "docs"
PAGE = DOCS / "reference/synthesizers/public_reweighted.md"
REQUESTS = PAGE.read_text() + (DOCS / "results/public_reweighted.md").read_text()
TRIPS = digits({"zone": 6, "kind": 3, "fare": 8})
PERSON = PrivacyUnit("entity", "id", 8)
GAUSSIAN = PrivacyLoss.zcdp(5 * 10**11)

Codes = dict[str, NDArray[np.int64]]


def params(**form: object) -> PublicReweightedParams:
    return PublicReweightedParams.model_validate(form)


def trips(rows: int, seed: int, zones: tuple[float, ...] = (4, 3, 2, 1, 1, 1)) -> Codes:
    """Fares that follow the zone, and kinds that follow nothing."""
    rng = np.random.default_rng(seed)
    zone = rng.choice(6, rows, p=np.array(zones) / sum(zones))
    return {
        "zone": zone.astype(np.int64),
        "kind": rng.integers(0, 3, rows),
        "fare": np.minimum(zone + rng.integers(0, 3, rows), 7).astype(np.int64),
    }


def people(entities: int, seed: int, zones: tuple[float, ...] = (4, 3, 2, 1, 1, 1)) -> Any:
    """Trips of entities with 1 to 8 of them, and the entity of each."""
    sizes = np.random.default_rng(seed).integers(1, 9, entities)
    owner = np.repeat(np.arange(entities), sizes)
    return trips(len(owner), seed, zones), owner


def public(codes: Codes, entity: NDArray[np.int64] | None = None) -> PublicTable:
    return PublicTable(TRIPS, Table(codes, len(codes["zone"]), entity))


def fit(
    private: tuple[Codes, NDArray[np.int64] | None],
    prior: PublicTable,
    form: PublicReweightedParams | None = None,
    loss: PrivacyLoss = GAUSSIAN,
    seed: int = 7,
) -> PublicReweightedModel:
    codes, entities = private
    unit = ROW if entities is None else PERSON
    session = session_on(TRIPS, codes, loss, unit, entities)
    model = PublicReweighted().fit(session, form or params(), prior, seed, quiet)
    assert session.remaining.amount < 1000, "all but what is rounded away is spent"
    return model


def check(
    form: PublicReweightedParams | None = None,
    unit: PrivacyUnit = PERSON,
    loss: PrivacyLoss = GAUSSIAN,
    facts: PublicFacts | None = None,
    schema: Schema = TRIPS,
    limits: Limits = LIMITS,
) -> Preflight:
    named = facts or PublicFacts(with_entities() if unit.kind == "entity" else TRIPS, 1000)
    return PublicReweighted().check(schema, unit, form or params(), loss, named, limits)


def with_entities() -> Schema:
    fields = [
        {
            "name": name,
            "type": "integer",
            "constraints": {"minimum": 0, "maximum": most - 1, "required": True},
        }
        for name, most in (("zone", 6), ("kind", 3), ("fare", 8))
    ]
    return Schema.parse({"fields": [*fields, {"name": "id", "type": "string", "role": "entity"}]})


def pair(codes: Codes) -> NDArray[np.int64]:
    return np.bincount(codes["zone"] * 8 + codes["fare"], minlength=48)


def distance(one: Codes, other: Codes) -> float:
    return total_variation(pair(one), pair(other))


@pytest.mark.parametrize("unit", ["row", "entity"])
def test_a_drifted_public_table_is_pulled_to_the_private_one(unit: str) -> None:
    mirrored = (1, 1, 1, 2, 3, 4)
    if unit == "row":
        private, prior = (trips(4000, 1), None), public(trips(3000, 2, mirrored))
    else:
        private, prior = people(900, 1), public(*people(700, 2, mirrored))
    made = fit(private, prior).sample(None, generator(3))
    as_it_is = distance(private[0], prior.table.codes)
    assert as_it_is > 0.35
    assert distance(private[0], made.codes) < as_it_is / 3


def test_a_public_table_of_the_same_kind_stays_as_it_is_under_much_noise() -> None:
    """In the median of 15 runs: one in some 30 finds, in the noise, a value that no row has."""
    private, prior = (trips(4000, 1), None), public(trips(3000, 2))
    models = [fit(private, prior, loss=PrivacyLoss.zcdp(10**8)) for _ in range(15)]
    made = [model.sample(3000, generator(3)).codes for model in models]
    median = np.median([distance(codes, private[0]) for codes in made])
    assert median < distance(prior.table.codes, private[0]) + 0.03


def test_values_that_the_public_table_lacks_are_found() -> None:
    private = people(900, 1)
    lacking = people(700, 2, (4, 3, 0, 1, 1, 1))
    made = fit(private, public(*lacking)).sample(None, generator(3)).codes
    assert 2 not in lacking[0]["zone"]
    real = np.mean(private[0]["zone"] == 2)
    assert np.mean(made["zone"] == 2) == pytest.approx(real, abs=0.05)


def test_entities_are_as_many_as_there_are_and_none_has_too_many_rows() -> None:
    private = people(900, 1)
    made = fit(private, public(*people(400, 2))).sample(None, generator(3))
    assert made.entity is not None
    found = np.unique(made.entity)
    assert found.tolist() == list(range(len(found)))
    assert len(found) == pytest.approx(900, abs=60)
    assert np.bincount(made.entity).max() <= PERSON.max_rows
    assert made.rows == pytest.approx(len(private[1]), rel=0.08)


def test_rows_per_entity_follow_the_private_table() -> None:
    """Private entities have 1 or 2 rows, public ones 1 to 8 of which few have so few."""
    owner = np.repeat(np.arange(600), np.tile([1, 2], 300))
    private = trips(len(owner), 1), owner
    made = fit(private, public(*people(900, 2))).sample(None, generator(3))
    assert made.entity is not None
    assert np.bincount(made.entity).mean() == pytest.approx(1.5, abs=0.3)


@pytest.mark.parametrize("rows", [0, 1, 37, 5000])
def test_as_many_rows_as_are_asked_for(rows: int) -> None:
    model = fit(people(100, 1), public(*people(80, 2)))
    made = model.sample(rows, generator(3))
    assert made.rows == rows
    assert made.entity is not None
    assert np.bincount(made.entity, minlength=1).max() <= PERSON.max_rows


@pytest.mark.parametrize("loss", [PrivacyLoss.zcdp(10**9), PrivacyLoss.pure(10**11), EXACT])
@pytest.mark.parametrize("rows", [0, 1, 3])
def test_tiny_tables_are_no_trouble(rows: int, loss: PrivacyLoss) -> None:
    private = trips(rows, 1), np.arange(rows)
    for entity in (None, np.zeros(2, dtype=np.int64)):
        table = private if entity is not None else (private[0], None)
        model = fit(table, public(trips(2, 2), entity), loss=loss)
        made = model.sample(5, generator(1))
        assert {len(column) for column in made.codes.values()} == {5}


def test_one_column_and_nulls_and_bins_are_handled() -> None:
    schema = colours()
    session = session_on(schema, random_codes(schema, 300), EXACT)
    prior = PublicTable(schema, Table(random_codes(schema, 200, seed=1), 200))
    model = PublicReweighted().fit(session, params(columns=["fare"]), prior, 1, quiet)
    assert list(model.sample(10, generator(1)).codes) == ["fare"]
    session = session_on(schema, random_codes(schema, 300), EXACT)
    made = PublicReweighted().fit(session, params(smooth=0.5, mixed=0.2), prior, 1, quiet)
    assert made.sample(50, generator(1)).rows == 50


def test_a_lost_run_is_replayed_with_the_same_questions_and_the_same_bytes() -> None:
    codes, entities = people(200, 1)
    prior = public(*people(150, 2))
    session = session_on(TRIPS, codes, GAUSSIAN, PERSON, entities)
    heard: list[tuple[str, str, Any]] = []

    def hear(method: str) -> Any:
        def answer(*question: Any) -> Any:
            given = getattr(session, method)(*question)
            heard.append((method, asked(question), given))
            return given

        return answer

    def replay(method: str) -> Any:
        def answer(*question: Any) -> Any:
            known = heard.pop(0)
            assert known[:2] == (method, asked(question))
            remaining.append(remaining[-1] - question[1])
            return known[2]

        return answer

    class Recorded:
        schema, unit, allowance = TRIPS, PERSON, session.allowance
        count, scores = staticmethod(hear("count")), staticmethod(hear("scores"))

        @property
        def remaining(self) -> PrivacyLoss:
            return session.remaining

    recorded: Any = Recorded()
    first = PublicReweighted().fit(recorded, params(), prior, 5, quiet).dump()
    assert [method for method, _, _ in heard] == ["count", "count", "scores", "count"]
    remaining = [session.allowance]

    class Replayed(Recorded):
        count, scores = staticmethod(replay("count")), staticmethod(replay("scores"))

        @property
        def remaining(self) -> PrivacyLoss:
            return remaining[-1]

    replayed: Any = Replayed()
    assert PublicReweighted().fit(replayed, params(), prior, 5, quiet).dump() == first
    assert not heard


def asked(question: tuple[Any, ...]) -> str:
    """A question to the last bit of its references."""
    queries, loss, *_ = question
    told = []
    for each in queries:
        references = [part.tobytes().hex() for part in getattr(each, "reference", ())]
        told.append((repr(getattr(each, "count", each)), references))
    return repr((told, loss))


def test_a_stored_model_draws_the_same_rows() -> None:
    model = fit(people(100, 1), public(*people(80, 2)))
    again = PublicReweighted().load(TRIPS, PERSON, model.dump())
    for rows in (None, 60):
        one, other = (each.sample(rows, generator(9)) for each in (model, again))
        assert all(np.array_equal(one.codes[name], other.codes[name]) for name in one.codes)
        assert one.entity is not None
        assert np.array_equal(one.entity, other.entity)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("codes0", np.full(3, 99, dtype=np.int8)),
        ("sizes", np.array([9], dtype=np.int8)),
        ("entities", np.array([-1.0])),
        ("rows", np.array([np.nan])),
        ("pool", np.array([-1], dtype=np.int8)),
        ("kept", [1]),
        ("smooth", 2),
        ("columns", ["unknown"]),
        ("units", -1),
        ("model", "mst"),
    ],
)
def test_what_is_no_model_is_refused(part: str, value: Any) -> None:
    header, arrays = unpack(fit(people(20, 1), public(*people(20, 2))).dump())
    (arrays if isinstance(value, np.ndarray) else header)[part] = value
    with pytest.raises(ModelFormatError):
        PublicReweighted().load(TRIPS, PERSON, pack(header, arrays))


def test_public_rows_are_required() -> None:
    found = PublicReweighted().check(TRIPS, PERSON, params(), GAUSSIAN, None, LIMITS)
    assert [problem.pointer for problem in found.problems] == ["/public_dataset"]
    found = check(facts=PublicFacts(TRIPS, 100))
    assert [problem.pointer for problem in found.problems] == ["/public_dataset"], "no entities"


@pytest.mark.parametrize(
    ("form", "pointer"),
    [
        ({"measure": [["zone", "colour"]]}, "/params/measure/0/1"),
        ({"measure": [["zone", "zone"]]}, "/params/measure/0"),
        ({"watch": ["colour"]}, "/params/watch/0"),
        ({"pool": ["colour"]}, "/params/pool/0"),
        ({"keep": ["kind", "kind"]}, "/params/keep"),
        ({"columns": ["zone"], "keep": ["kind"]}, "/params/keep/0"),
        ({"columns": ["fare"], "most_cells": 4}, "/params/most_cells"),
    ],
)
def test_what_cannot_be_is_told_at_its_field(form: dict[str, Any], pointer: str) -> None:
    found = check(params(**form))
    assert pointer in [problem.pointer for problem in found.problems]


def test_clipped_counts_and_a_pure_guarantee_do_not_go_together() -> None:
    form = params(contribution={"rule": "clipped", "norm": 3})
    found = check(form, loss=PrivacyLoss.pure(10**12))
    assert [problem.pointer for problem in found.problems] == ["/params/contribution/rule"]
    assert not check(loss=PrivacyLoss.pure(10**12)).problems


def test_preflight_tells_cells_memory_and_error() -> None:
    found = check(params(measure=[["zone", "fare"]], watch=["kind"]))
    assert not found.problems
    assert found.cells == 48 + 3
    # The counts have 0.82 of 0.9 of rho = 0.5, and one entity moves them by at most 7.
    assert found.expected_error == pytest.approx(7 / np.sqrt(2 * 0.5 * 0.82 / 0.9), rel=1e-6)
    tight = Limits(max_total_rows=10_000, rows=None, memory_bytes=2**20, time_s=60.0)
    assert [each.pointer for each in check(limits=tight).problems] == ["/params"]


def test_a_named_measurement_needs_no_scores() -> None:
    codes, entities = people(50, 1)
    session = session_on(TRIPS, codes, GAUSSIAN, PERSON, entities)
    counted: list[tuple[Any, ...]] = []

    def count(*question: Any) -> Any:
        counted.append(tuple(each.columns for each in question[0]))
        return session.count(*question)

    listening = SimpleNamespace(
        schema=TRIPS, unit=PERSON, allowance=session.allowance, remaining=GAUSSIAN, count=count
    )
    form = params(measure=[["zone", "fare"]], watch=[])
    listening.remaining = session.allowance - session.allowance.split([0.5, 0.5])[0]
    PublicReweighted().fit(listening, form, public(*people(50, 2)), 1, quiet)
    assert counted == [((), ()), (("zone", "fare"),)]


def test_the_examples_of_its_page_are_valid_requests() -> None:
    found = re.findall(r"```json\n(.*?)```", REQUESTS, re.DOTALL)
    assert len(found) >= 2
    for text in found:
        request = json.loads(text)
        assert request["synthesizer"] == "public_reweighted"
        params(**request["params"])
    rows = re.findall(r"^\| `(\w+)` \|", PAGE.read_text(), re.MULTILINE)
    assert set(PublicReweightedParams.model_fields) <= set(rows)


def shops(**keys: object) -> Schema:
    """`town`, found, and `spent` from 0 to 99,999 in bought bins, and `kind`."""
    fields = [
        {"name": "town", "type": "string", "values": {"discover": 20}, "other": "Other"},
        {
            "name": "spent",
            "type": "integer",
            "constraints": {"minimum": 0, "maximum": 99_999, "required": True},
            "bins": {"quantiles": 8},
        },
        {"name": "kind", "type": "integer", "constraints": {"minimum": 0, "maximum": 2}},
        {"name": "id", "type": "string", "role": "entity"},
    ]
    return Schema.parse({"fields": fields, **keys})


@pytest.mark.parametrize("kind", ["row", "entity"])
def test_bins_and_values_are_bought_and_public_rows_weighed_in_them(kind: str) -> None:
    """Private rows spend more in Ur than public ones do; nobody else is from Zzyzx."""
    rng = np.random.default_rng(4)
    listed = ["Kish", "Ur", "Zzyzx"]
    fields = shops().to_wire()["fields"]
    fields[0] = {"name": "town", "type": "string", "constraints": {"enum": listed}}
    prior_schema = Schema.parse({"fields": fields})
    rows = 3000
    at = rng.integers(0, 2, rows)
    spent = np.minimum(rng.lognormal(7, 0.6, rows), 99_999).astype(np.int64)
    entity = np.arange(rows) // 3
    alike = {"town": np.append(at[1:], 2), "spent": spent, "kind": at}
    prior = PublicTable(prior_schema, Table(alike, rows, entity))
    more = {"town": np.zeros(rows, np.int64), "spent": spent * (1 + at), "kind": at}
    unit = ROW if kind == "row" else PERSON
    texts = {"town": [listed[place] for place in at]}
    entities = None if kind == "row" else entity
    schema, loss = shops(), PrivacyLoss.zcdp(10**12, 10**11)
    source = ArraySource(schema, unit, more, entities, texts=texts)
    session = LocalSession(Kernel(source, loss))
    model = PublicReweighted().fit(session, params(), prior, 1, quiet)
    assert session.remaining.amount < 1000
    assert session.schema.column("town").labels()[:2] == ["Kish", "Ur"]
    table = PublicReweighted().load(session.schema, unit, model.dump()).sample(rows, generator(1))
    town, bought = table.codes["town"], table.codes["spent"]
    assert np.mean(town == 2) < 0.01, "what nobody found is `other`"
    dear = np.median(spent[at == 1]) * 1.4
    assert np.mean(bought[town == 1] > dear) > np.mean(spent[at == 1] > dear) + 0.1
    preflight = check(unit=unit, loss=loss, schema=schema, facts=PublicFacts(prior_schema, rows))
    assert not preflight.problems
    assert PublicReweighted().delta_share(params(), schema) == 0.1
    assert PublicReweighted().delta_share(params(columns=["kind"]), schema) == 0


def test_what_is_bought_goes_off_the_rest_of_the_budget() -> None:
    facts = PublicFacts(shops(), 1000)
    loss = PrivacyLoss.zcdp(10**12, 10**11)
    usual, most = (
        check(params(bins_share=share), loss=loss, schema=shops(), facts=facts)
        for share in (0.1, 0.6)
    )
    # A fifth finds values; of what is left nine tenths, or four, are for counting.
    assert most.expected_error / usual.expected_error == pytest.approx(1.5, rel=0.01)
    lacking = check(schema=shops(), facts=facts)
    assert [problem.pointer for problem in lacking.problems] == ["/guarantee"]


RULED = Schema.parse(
    with_entities().to_wire()
    | {
        "constraints": [
            {"kind": "forbidden", "when": {"zone": [0], "fare": [2]}},
            {"kind": "forbidden", "when": {"kind": [1], "fare": [7]}},
        ]
    }
)


@pytest.mark.parametrize("unit", [ROW, PERSON], ids=["row", "entity"])
def test_no_public_row_that_breaks_a_rule_has_weight(unit: PrivacyUnit) -> None:
    """Nor has one that was mixed, or moved to a value that the public table lacks (fare 7)."""
    schema = RULED if unit is PERSON else Schema.parse(
        TRIPS.to_wire() | {"constraints": RULED.to_wire()["constraints"]}
    )  # fmt: skip
    private, owner = people(1500, 3, (0, 1, 1, 1, 1, 4))
    codes, entity = people(400, 4)
    codes["fare"] = np.minimum(codes["fare"], 6)
    assert np.any(schema.violations(codes)[0])
    entities = owner if unit is PERSON else None
    session = session_on(schema, private, GAUSSIAN, unit, entities)
    prior = public(codes, entity if unit is PERSON else None)
    model = PublicReweighted().fit(session, params(mixed=0.5, smooth=0), prior, 1, quiet)
    assert np.any(model.codes["fare"] == 7), "moved"
    assert not np.any(schema.violations(model.codes))
    drawn = model.sample(None, generator(2)).codes
    assert not np.any(schema.violations(drawn))
    assert distance(drawn, private) < 0.75 * distance(codes, private)


def test_a_public_table_that_keeps_no_rule_is_of_no_use() -> None:
    codes = {name: np.full(50, code) for name, code in (("zone", 0), ("kind", 1), ("fare", 2))}
    schema = Schema.parse(TRIPS.to_wire() | {"constraints": RULED.to_wire()["constraints"]})
    with pytest.raises(PublicDataUnfit, match="rules"):
        PublicReweighted().fit(session_on(schema, codes), params(), public(codes), 1, quiet)


@pytest.mark.parametrize(
    "form",
    [
        {"shares": {"one_way": 1e-12}},
        {"shares": {"scores": 1e-13}},
        {"shares": {"counts": 1e-13}, "measure": [["zone"], ["kind"]]},
    ],
)
def test_a_step_to_which_nothing_is_left_is_refused(form: dict[str, Any]) -> None:
    assert [problem.pointer for problem in check(params(**form)).problems] == ["/guarantee"]


@pytest.mark.parametrize("amount", range(30, 400, 10))
@pytest.mark.parametrize("form", [{}, {"measure": [["zone", "fare"], ["kind"]]}])
def test_however_little_the_loss_what_is_let_pass_can_run(
    amount: int, form: dict[str, Any]
) -> None:
    loss = PrivacyLoss.zcdp(amount)
    if not check(params(**form), ROW, loss).problems:
        fit((trips(500, 1), None), public(trips(300, 2)), params(**form), loss)

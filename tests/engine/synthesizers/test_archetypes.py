from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from pydantic import ValidationError
from small_tables import EXACT, LIMITS, ROW, quiet, session_on

from app.engine.method import Preflight, PublicFacts
from app.engine.method.model_file import ModelFormatError, pack, unpack
from app.engine.privacy.declared import MixtureMode, RowNumber
from app.engine.privacy.functions import evaluate
from app.engine.privacy.library import LocalSession
from app.engine.privacy.loss import PrivacyLoss
from app.engine.privacy.queries import Count, Measurement
from app.engine.schema import PrivacyUnit, Schema
from app.engine.synthesizers.archetypes import Archetypes
from app.engine.synthesizers.archetypes.model import ArchetypesModel
from app.engine.synthesizers.archetypes.params import SPRINT3, ArchetypesParams, Design
from app.engine.table import PublicTable, Table, generator

CAB = PrivacyUnit("entity", "cab", 8)
GAUSSIAN = PrivacyLoss.zcdp(10**12)
LAPLACE = PrivacyLoss.pure(10**12)
FORM: dict[str, object] = {
    "features": ["hour", "zone"],
    "components": 2,
    "attributes": ["firm"],
    "conditionals": [
        {"column": "fare", "given": ["hour", "zone"]},
        {"column": "tip", "given": ["hour", "zone", "fare"]},
    ],
}
Codes = dict[str, NDArray[np.int64]]


def cabs(entity: bool = True, firms: Sequence[str] = ("a", "b", "c")) -> Schema:
    """`hour` (0 to 23), `zone` (0 to 4), `firm`, `fare` (0 to 9), `tip` (0 to 9)."""

    def whole(name: str, most: int) -> dict[str, object]:
        limits = {"minimum": 0, "maximum": most, "required": True}
        return {"name": name, "type": "integer", "constraints": limits}

    limits = {"enum": list(firms), "required": True}
    fields: list[dict[str, object]] = [
        whole("hour", 23),
        whole("zone", 4),
        {"name": "firm", "type": "string", "constraints": limits},
        whole("fare", 9),
        whole("tip", 9),
    ]
    if entity:
        fields.insert(0, {"name": "cab", "type": "string", "role": "entity"})
    return Schema.parse({"fields": fields})


def trips(night: int, day: int, seed: int = 0) -> tuple[Codes, NDArray[np.int64]]:
    """Cabs of the night (3 trips, hours 0 to 3, zones 0 and 1) and of the day (6 trips, hours
    12 to 15, zones 3 and 4). The tip is a function of hour, zone and fare, and of no fewer;
    a cab of the night is of firm a or b, one of the day of firm c, on all its trips."""
    rng = np.random.default_rng(seed)
    is_day = np.repeat([False] * night + [True] * day, [3] * night + [6] * day)
    cab = np.repeat(np.arange(night + day), [3] * night + [6] * day)
    rows = len(cab)
    hour = rng.integers(0, 4, rows) + 12 * is_day
    zone = rng.integers(0, 2, rows) + 3 * is_day
    fare = rng.integers(0, 10, rows)
    firm = np.where(is_day, 2, cab % 2)
    codes = {"hour": hour, "zone": zone, "firm": firm, "fare": fare, "tip": tip(hour, zone, fare)}
    return codes, cab


def tip(hour: NDArray[Any], zone: NDArray[Any], fare: NDArray[Any]) -> NDArray[np.int64]:
    tips: NDArray[np.int64] = (hour + 3 * zone + 7 * fare) % 10
    return tips


def public(night: int = 60, day: int = 40, schema: Schema | None = None) -> PublicTable:
    codes, cab = trips(night, day, seed=5)
    return PublicTable(schema or cabs(), Table(codes, len(cab), cab))


def params(**form: object) -> ArchetypesParams:
    return ArchetypesParams.model_validate({**FORM, **form})


def private_session(
    night: int = 30, day: int = 90, loss: PrivacyLoss = EXACT, schema: Schema | None = None
) -> LocalSession:
    codes, cab = trips(night, day)
    return session_on(schema or cabs(), codes, loss, CAB, cab)


def fit(
    form: ArchetypesParams | None = None,
    loss: PrivacyLoss = EXACT,
    night: int = 30,
    day: int = 90,
    known: PublicTable | None = None,
) -> ArchetypesModel:
    session = private_session(night, day, loss)
    model = Archetypes().fit(session, form or params(), known or public(), 7, quiet)
    assert session.remaining.amount <= 5, "all is spent but what rounding down leaves"
    return model


class Scripted:
    """A session that answers with the counts it was given, and keeps what it was asked."""

    def __init__(self, *answers: list[int], loss: PrivacyLoss = GAUSSIAN) -> None:
        self.schema, self.unit, self.allowance = cabs(), CAB, loss
        self.asked: tuple[Count, ...] = ()
        self._answers = answers

    def count(
        self, queries: Sequence[Count], loss: PrivacyLoss, shares: Sequence[float]
    ) -> tuple[Measurement, ...]:
        assert len(queries) == len(shares) == len(self._answers)
        assert loss == self.allowance
        self.asked = tuple(queries)
        return tuple(
            Measurement(query, np.array(answer), "gaussian", 1.0, 1.0, 1.0, 1.0)
            for query, answer in zip(queries, self._answers, strict=True)
        )


def fitted_to(
    *answers: list[int], known: PublicTable | None = None, **form: object
) -> ArchetypesModel:
    session: Any = Scripted(*answers)
    return Archetypes().fit(session, params(**form), known or public(), 7, quiet)


def day_cabs(table: Table) -> NDArray[np.bool_]:
    """Which synthetic entities have trips in the zones of the day."""
    assert table.entity is not None
    day = np.zeros(int(table.entity.max()) + 1, dtype=bool)
    day[table.entity[table.codes["zone"] >= 3]] = True
    return day


# What each flaw of the published system did, and what is done here.


def test_the_archetype_counts_that_were_paid_for_decide_how_many_entities_there_are() -> None:
    """Published: scaled down by public counts, so that the private ones changed nothing."""
    night, day = 30, 90
    made = day_cabs(fit(night=night, day=day).sample(None, generator(3)))
    assert len(made) == night + day
    assert made.sum() == day
    swapped = day_cabs(fit(night=day, day=night).sample(None, generator(3)))
    assert swapped.sum() == night


def test_tips_follow_the_fare_as_well_as_the_place_and_time() -> None:
    """Published: the tables given the fare were never hit, and all fell back to the triple."""
    codes = fit().sample(None, generator(3)).codes
    right = codes["tip"] == tip(codes["hour"], codes["zone"], codes["fare"])
    assert right.all()
    without_fare = params(
        conditionals=[
            {"column": "fare", "given": ["hour", "zone"]},
            {"column": "tip", "given": ["hour", "zone"]},
        ]
    )
    codes = fit(without_fare).sample(None, generator(3)).codes
    assert (codes["tip"] == tip(codes["hour"], codes["zone"], codes["fare"])).mean() < 0.5


def test_the_mixture_judges_private_rows_on_the_scale_it_was_fitted_on() -> None:
    """Published: fitted on standardised values, applied to raw ones."""
    known = public()
    codes, cab = known.table.codes, known.table.entity
    assert cab is not None
    session = session_on(cabs(), codes, EXACT, CAB, cab)
    model = Archetypes().fit(session, params(), known, 7, quiet)
    counts = np.bincount(model.archetype, minlength=2)
    assert np.allclose(model.archetype_shares * model.entities, counts)
    assert sorted(counts.tolist()) == [40, 60]

    mixture = asked_mixture(known)
    raw = dataclasses.replace(mixture, centre=np.zeros(2), scale=np.ones(2))
    on_raw = np.bincount(evaluate(raw, codes, cab, cabs()), minlength=2)
    assert sorted(on_raw.tolist()) != [40, 60]


def asked_mixture(known: PublicTable) -> MixtureMode:
    session: Any = Scripted([1, 1], [1, 1, 1])
    Archetypes().fit(session, params(), known, 7, quiet)
    function = session.asked[0].function
    assert isinstance(function, MixtureMode)
    return function


def test_the_bins_of_an_attribute_are_the_declared_values_and_no_others() -> None:
    """Published: a company that only private rows had became a bin of its own."""
    session: Any = Scripted([30, 90], [20, 10, 90])
    Archetypes().fit(session, params(), public(), 7, quiet)
    asked = session.asked[1]
    assert asked.columns == ("firm",)
    assert asked.groupings["firm"].cells == 3
    codes, cab = trips(4, 4)
    answers = session_on(cabs(), codes, GAUSSIAN, CAB, cab).count((asked,), GAUSSIAN)
    assert answers[0].shape == (3,), "declared and never seen is a cell with noise too"


def test_a_firm_that_only_public_rows_have_changes_nothing() -> None:
    strange = cabs(firms=("a", "b", "c", "zz"))
    known = public(schema=strange)
    known.table.codes["firm"][:] = 3
    firms = fit(known=known).sample(None, generator(3)).codes["firm"]
    assert set(firms.tolist()) <= {0, 1, 2}


def test_all_rows_of_an_entity_have_its_attribute() -> None:
    """Published: a company was drawn for each trip, although it belongs to the taxi."""

    def most_firms_of_one(form: ArchetypesParams) -> int:
        table = fit(form).sample(None, generator(3))
        assert table.entity is not None
        pairs = np.unique(np.column_stack([table.entity, table.codes["firm"]]), axis=0)
        return int(np.bincount(pairs[:, 0]).max())

    assert most_firms_of_one(params()) == 1
    assert most_firms_of_one(params(attributes_per="row")) > 1


def test_the_whole_budget_is_used_beyond_epsilon_1() -> None:
    """Published: epsilon was clamped to 0.999999999."""
    scales = {}
    for epsilon in (1, 10):
        loss = PrivacyLoss.pure(epsilon * 10**12)
        design = Design(params(), cabs(), CAB)
        answers = private_session(loss=loss).count(
            design.questions(asked_mixture(public())), loss, design.weights(loss)
        )
        scales[epsilon] = [answer.scale for answer in answers]
    assert scales[1] == pytest.approx([2.0, 2.0])
    assert scales[10] == pytest.approx([0.2, 0.2])


def test_a_model_is_made_of_public_rows_and_noisy_answers_alone() -> None:
    """Published: the exact counts were written to a file beside the noisy ones."""
    answers = ([31, 88], [22, 9, 91])
    codes, cab = trips(30, 90)

    class Answering(Scripted):
        def count(self, queries: Any, loss: Any, shares: Any) -> tuple[Measurement, ...]:
            session_on(cabs(), codes, EXACT, CAB, cab).count(queries, EXACT, shares)
            return super().count(queries, loss, shares)

    session: Any = Answering(*answers)
    near_private_rows = Archetypes().fit(session, params(), public(), 7, quiet).dump()
    assert near_private_rows == fitted_to(*answers).dump()


def test_mixture_and_model_are_arrays() -> None:
    """Published: a pickle, which runs code when it is read."""
    mixture = asked_mixture(public())
    assert all(isinstance(number, float) for number in mixture.to_json()["weights"])
    header, arrays = unpack(fit().dump())
    assert header["model"] == "archetypes"
    assert all(array.dtype.kind in "if" for array in arrays.values())


# The joint release and the published split.


def test_the_joint_release_gives_both_histograms_the_same_noise() -> None:
    """Two histograms of sensitivity 1 have L2 sqrt(2) and L1 2 together."""
    design = Design(params(), cabs(), CAB)
    questions = design.questions(asked_mixture(public()))
    for loss, scale in ((GAUSSIAN, math.sqrt(2) / math.sqrt(2 * 1)), (LAPLACE, 2.0)):
        answers = private_session(loss=loss).count(questions, loss, design.weights(loss))
        assert [answer.scale for answer in answers] == pytest.approx([scale] * 2, rel=1e-6)
        assert [answer.l2_sensitivity for answer in answers] == [1, 1]


def test_the_published_split_is_of_epsilon_in_either_kind_of_loss() -> None:
    design = Design(params(release="split"), cabs(), CAB)
    questions = design.questions(asked_mixture(public()))
    answers = private_session(loss=LAPLACE).count(questions, LAPLACE, design.weights(LAPLACE))
    assert [answer.scale for answer in answers] == pytest.approx([1 / 0.1, 1 / 0.9])
    answers = private_session(loss=GAUSSIAN).count(questions, GAUSSIAN, design.weights(GAUSSIAN))
    assert answers[0].scale == pytest.approx(9 * answers[1].scale)
    spent = sum(1 / (2 * answer.scale**2) for answer in answers)
    assert spent == pytest.approx(1, abs=1e-9), "rho"


def test_the_forecast_is_the_noise_of_the_archetypes() -> None:
    for form, error in (({}, 1.0), ({"release": "split"}, math.sqrt(82 / 2))):
        preflight = checked(form)
        assert preflight.problems == ()
        assert preflight.cells == 2 + 3
        assert preflight.expected_error == pytest.approx(error, rel=1e-3)


# Entities and their rows.


@pytest.mark.parametrize("loss", [GAUSSIAN, LAPLACE])
@pytest.mark.parametrize("rule", ["public", "public_mean", "bought"])
@pytest.mark.parametrize("rows", [None, 0, 1, 500])
def test_samples_have_their_rows_in_the_dictionary_and_unique_entities_within_the_bound(
    loss: PrivacyLoss, rule: str, rows: int | None
) -> None:
    table = fit(params(rows_per_entity=rule), loss).sample(rows, generator(9))
    assert rows is None or table.rows == rows
    assert set(table.codes) == {"hour", "zone", "firm", "fare", "tip"}
    for name, codes in table.codes.items():
        assert codes.shape == (table.rows,)
        assert not table.rows or 0 <= codes.min() <= codes.max() < cabs().column(name).codes
    assert table.entity is not None
    if table.rows:
        sizes = np.bincount(table.entity)
        assert sizes.min() >= 1, "entities are numbered without gaps"
        assert sizes.max() <= CAB.max_rows


def test_rows_per_entity_are_those_of_public_entities_of_the_archetype() -> None:
    for rule in ("public", "public_mean"):
        table = fit(params(rows_per_entity=rule)).sample(None, generator(9))
        assert table.entity is not None
        sizes, day = np.bincount(table.entity), day_cabs(table)
        assert set(sizes[~day].tolist()) == {3}
        assert set(sizes[day].tolist()) == {6}


def test_a_mean_is_kept_although_rows_are_whole() -> None:
    codes, cab = trips(60, 40, seed=5)
    kept = np.ones(len(cab), dtype=bool)
    kept[np.flatnonzero(np.diff(cab, prepend=-1))[:30]] = False  # half the night cabs lose one
    known = PublicTable(
        cabs(), Table({n: c[kept] for n, c in codes.items()}, int(kept.sum()), cab[kept])
    )
    model = fit(params(rows_per_entity="public_mean"), night=400, day=0, known=known)
    # 400 cabs at 2 or 3 rows, a half each: standard deviation 10; 5 of them: 6e-7.
    assert abs(model.sample(None, generator(2)).rows - 1000) < 50


def test_bought_rows_are_the_private_ones_and_cost_a_third_histogram() -> None:
    bought = params(rows_per_entity="bought")
    design = Design(bought, cabs(), CAB)
    function = design.questions(asked_mixture(public()))[-1].function
    assert function == RowNumber(8)
    # Public cabs have 6 rows by day; here the private ones of the day have 3.
    model = fitted_to([0, 90], [30, 30, 30], [0, 0, 90, 0, 0, 0, 0, 0], rows_per_entity="bought")
    assert model.sample(None, generator(3)).rows == 270
    assert checked({"rows_per_entity": "bought"}).cells == 2 + 3 + 8


def test_bought_rows_go_to_the_archetypes_whose_public_entities_have_more() -> None:
    model = fitted_to([50, 50], [40, 30, 30], [50, 0, 0, 0, 0, 0, 0, 50], rows_per_entity="bought")
    table = model.sample(None, generator(3))
    assert table.entity is not None
    sizes, day = np.bincount(table.entity), day_cabs(table)
    assert set(sizes[day].tolist()) == {8}
    assert set(sizes[~day].tolist()) == {1}


def test_the_noise_of_bought_rows_beyond_the_largest_real_number_is_dropped() -> None:
    """Without it, a hundred cells of noise would each keep its positive half."""
    rng = np.random.default_rng(3)
    most = 200
    real = np.zeros(most, dtype=np.int64)
    real[:10] = 100
    noisy = real + rng.integers(-3, 4, most)  # as noise of standard deviation 2
    unit = PrivacyUnit("entity", "cab", most)
    session: Any = Scripted([400, 600], [300, 300, 400], noisy.tolist())
    session.unit = unit
    form = params(rows_per_entity="bought")
    model = Archetypes().fit(session, form, public(), 7, quiet)
    assert model.row_shares is not None
    mean = float(model.row_shares @ np.arange(1, len(model.row_shares) + 1))
    assert mean == pytest.approx(5.5, abs=0.2)
    clipped = np.maximum(noisy, 0)
    assert clipped @ np.arange(1, most + 1) / clipped.sum() > 15


def test_rows_beyond_the_cap_scale_all_archetypes_down_alike() -> None:
    model = fit(params(most_rows=1000), night=400, day=400)
    table = model.sample(None, generator(3))
    assert table.rows == 1000
    day = day_cabs(table)
    # As many of the one as of the other among some 222 in random order of 800: 6.3; 5 of them.
    assert abs(int(day.sum()) - int((~day).sum())) < 64
    assert model.sample(3000, generator(3)).rows == 3000, "rows that are asked for are given"


def test_an_archetype_that_no_public_entity_has_is_like_all_of_them() -> None:
    known = public(night=60, day=40)
    model = fitted_to([10, 10], [5, 5, 10], known=known)
    lonely = dataclasses.replace(model, archetype=np.zeros(100, dtype=np.int64))
    table = lonely.sample(None, generator(3))
    assert table.rows > 0
    assert set(np.unique(table.codes["zone"]).tolist()) == {0, 1, 3, 4}


def test_nothing_left_of_the_counts_is_even_shares_and_no_rows() -> None:
    model = fitted_to([-3, -2], [-1, 0, -4])
    assert model.entities == 0
    assert model.sample(None, generator(1)).rows == 0
    assert model.sample(40, generator(1)).rows == 40


def test_clipping_is_kept_as_published_and_projection_keeps_the_total() -> None:
    answers = ([60, 40], [120, -10, -10])
    clipped = fitted_to(*answers, post_processing="clip")
    projected = fitted_to([100, -6], [60, 40, 0])
    assert clipped.attribute_shares["firm"].tolist() == [1, 0, 0]
    assert projected.archetype_shares.tolist() == [1, 0]
    assert projected.entities == pytest.approx(96, abs=3), "the sums, by their precision"


def test_a_row_unit_has_a_row_of_its_own_for_each() -> None:
    codes, _ = trips(30, 90)
    session = session_on(cabs(False), codes, EXACT, ROW)
    known = PublicTable(cabs(), public().table)
    model = Archetypes().fit(session, params(), known, 7, quiet)
    table = model.sample(None, generator(3))
    assert table.entity is None
    assert table.rows == 30 * 3 + 90 * 6
    assert int((table.codes["zone"] >= 3).sum()) == 90 * 6


def test_columns_left_over_are_drawn_given_the_core() -> None:
    form = ArchetypesParams.model_validate({"features": ["hour", "zone"], "components": 2})
    design = Design(form, cabs(), CAB)
    assert design.chain == tuple((name, ("hour", "zone")) for name in ("firm", "fare", "tip"))
    assert fit(form).sample(10, generator(1)).codes.keys() == {
        "hour", "zone", "firm", "fare", "tip"
    }  # fmt: skip


def test_text_may_be_drawn_with_the_core() -> None:
    form = params(core=["firm", "zone"], attributes=[], conditionals=[])
    table = fit(form).sample(200, generator(1))
    assert np.array_equal(table.codes["firm"] == 2, table.codes["zone"] >= 3)


# Again from the same answers, and from storage.


def test_the_same_answers_give_the_same_questions_and_bytes() -> None:
    assert asked_mixture(public()) == asked_mixture(public())
    assert fit().dump() == fit().dump()


@pytest.mark.parametrize("rule", ["public", "bought"])
def test_a_stored_model_gives_the_same_sample(rule: str) -> None:
    model = fit(params(rows_per_entity=rule))
    loaded = Archetypes().load(cabs(), CAB, model.dump())
    for rows in (None, 50):
        before, after = (each.sample(rows, generator(11)) for each in (model, loaded))
        assert all(np.array_equal(before.codes[name], after.codes[name]) for name in before.codes)
        assert np.array_equal(before.entity, after.entity)  # type: ignore[arg-type]


def test_a_model_that_does_not_fit_is_refused() -> None:
    header, arrays = unpack(fit().dump())
    spoilt = [
        ({**header, "unit": {"kind": "row"}}, arrays),
        ({**header, "core": None}, arrays),
        ({**header, "core": ["weight"]}, arrays),
        ({**header, "columns": ["weight", *header["columns"][1:]]}, arrays),
        ({**header, "links": [["tip", [["zone"]]]]}, arrays),
        ({**header, "links": [["tip", [["weight"], []]]]}, arrays),
        ({**header, "attributes": ["weight"]}, arrays),
        ({**header, "attributes_per": "trip"}, arrays),
        ({**header, "rows_per_entity": "guessed"}, arrays),
        ({**header, "rows_per_entity": "bought"}, arrays),
        (header, {**arrays, "archetype": arrays["archetype"] + 2}),
        (header, {**arrays, "archetype_shares": arrays["archetype_shares"] * 2}),
        (header, {**arrays, "column0": arrays["column0"] + 100}),
        (header, {**arrays, "entity": arrays["entity"] * 0}),
    ]
    for changed, held in spoilt:
        with pytest.raises(ModelFormatError):
            Archetypes().load(cabs(), CAB, pack(changed, held))


# The form.


def checked(
    form: dict[str, object], known: PublicFacts | None = None, loss: PrivacyLoss = GAUSSIAN
) -> Preflight:
    facts = known or PublicFacts(cabs(), 500)
    return Archetypes().check(cabs(), CAB, params(**form), loss, facts, LIMITS)


def test_public_rows_are_required() -> None:
    assert Archetypes.uses_public == "required"
    preflight = Archetypes().check(cabs(), CAB, params(), GAUSSIAN, None, LIMITS)
    assert [problem.pointer for problem in preflight.problems] == ["/public_dataset"]


def test_a_mixture_that_no_question_could_tell_is_refused() -> None:
    names = [f"c{number}" for number in range(30)]
    limits = {"minimum": 0, "maximum": 3, "required": True}
    fields: list[dict[str, object]] = [{"name": "cab", "type": "string", "role": "entity"}]
    fields += [{"name": name, "type": "integer", "constraints": limits} for name in names]
    schema = Schema.parse({"fields": fields})

    def problems(components: int, covariance: str) -> list[str]:
        form = {"features": names, "components": components, "covariance": covariance}
        asked = ArchetypesParams.model_validate(form)
        facts = PublicFacts(schema, 500)
        found = Archetypes().check(schema, CAB, asked, GAUSSIAN, facts, LIMITS)
        return [each.pointer for each in found.problems]

    assert problems(200, "full") == ["/params/components"]
    assert not problems(100, "full")
    assert not problems(1000, "diag")


def test_a_mixture_of_more_columns_than_the_kernel_takes_is_no_form() -> None:
    names = [f"c{number}" for number in range(65)]
    ArchetypesParams.model_validate({"features": names[:64]})
    with pytest.raises(ValidationError, match="features"):
        ArchetypesParams.model_validate({"features": names})


@pytest.mark.parametrize(
    ("form", "pointer"),
    [
        ({"features": None}, "/params/features"),
        ({"features": ["hour", "weight"]}, "/params/features/1"),
        ({"features": ["hour", "firm"], "core": ["hour", "zone"]}, "/params/features/1"),
        ({"features": ["hour", "hour"], "core": ["hour", "zone"]}, "/params/features"),
        ({"core": []}, "/params/core"),
        ({"core": ["weight", "hour", "zone"]}, "/params/core/0"),
        ({"attributes": ["weight"]}, "/params/attributes/0"),
        ({"attributes": ["firm", "zone"]}, "/params"),
        ({"conditionals": [{"column": "weight", "given": []}]}, "/params/conditionals/0/column"),
        (
            {"conditionals": [{"column": "tip", "given": ["fare"]}]},
            "/params/conditionals/0/given/0",
        ),
        ({"conditionals": [{"column": "hour", "given": []}]}, "/params"),
        ({"bins": {"weight": 3}}, "/params/bins/weight"),
        ({"bins": {"firm": 3}}, "/params/bins/firm"),
        ({"release": "split", "split": [1, 1, 1]}, "/params/split"),
        ({"release": "split", "rows_per_entity": "bought"}, "/params/split"),
    ],
)
def test_what_is_wrong_with_a_form_is_told(form: dict[str, object], pointer: str) -> None:
    problems = checked(form).problems
    assert pointer in [problem.pointer for problem in problems]
    assert all(problem.message and problem.remedy for problem in problems)


def test_too_little_loss_and_too_large_a_public_table_are_told() -> None:
    assert "/guarantee" in [p.pointer for p in checked({}, loss=PrivacyLoss.pure(1)).problems]
    slow = checked({"components": 100}, PublicFacts(cabs(), 10**5))
    assert [p.pointer for p in slow.problems] == ["/params/components"]
    huge = checked({}, PublicFacts(cabs(), 10**9))
    assert {p.pointer for p in huge.problems} == {"/params", "/params/columns"}


def test_the_preset_is_the_published_set_up_and_other_params_override_it() -> None:
    preset = ArchetypesParams.model_validate({"preset": "sprint3"})
    places = ("shift", "pickup_community_area", "dropoff_community_area")
    assert preset.features == preset.core == places
    assert preset.components == 10
    assert preset.attributes == ("company_id",)
    assert preset.conditionals is not None
    assert {form.column: form.given for form in preset.conditionals} == {
        "fare": places,
        "tips": (*places, "fare"),
        "trip_total": ("fare", "tips"),
        "trip_seconds": (*places, "fare"),
        "trip_miles": (*places, "fare"),
        "payment_type": ("fare", "tips", "trip_total"),
    }
    assert preset.most_rows == 2_000_000
    changed = ArchetypesParams.model_validate({"preset": "sprint3", "components": 4})
    assert (changed.components, changed.attributes) == (4, ("company_id",))
    again = ArchetypesParams.model_validate(changed.model_dump(mode="json", exclude_none=True))
    assert again == changed
    assert set(SPRINT3) < set(ArchetypesParams.model_fields)


# The page, on the challenge's schema.

DOCS = Path(__file__).parents[3] / "docs"
PAGE = DOCS / "reference/synthesizers/archetypes.md"
REQUESTS = PAGE.read_text() + (DOCS / "results/archetypes.md").read_text()
EXAMPLES = [json.loads(block) for block in re.findall(r"```json\n(.*?)```", REQUESTS, re.S)]
TAXI = PrivacyUnit("entity", "taxi_id", 200)


def challenge() -> Schema:
    def whole(name: str, least: int, most: int) -> dict[str, object]:
        limits = {"minimum": least, "maximum": most, "required": True}
        return {"name": name, "type": "integer", "constraints": limits}

    ranges = {
        "shift": (0, 20),
        "company_id": (0, 100),
        "pickup_community_area": (-1, 77),
        "dropoff_community_area": (-1, 77),
        "payment_type": (-1, 8),
        "fare": (-1, 10_000),
        "tips": (-1, 1000),
        "trip_total": (-1, 9975),
        "trip_seconds": (-1, 100_000),
        "trip_miles": (-1, 2000),
        "trip_hour_of_day": (0, 23),
    }
    fields = [whole(name, *ends) for name, ends in ranges.items()]
    return Schema.parse(
        {"fields": [{"name": "taxi_id", "type": "string", "role": "entity"}, *fields]}
    )


@pytest.mark.parametrize("request_", EXAMPLES)
def test_the_examples_of_the_page_run_as_printed(request_: dict[str, Any]) -> None:
    assert request_["synthesizer"] == "archetypes"
    rng = np.random.default_rng(2)
    codes = {each.name: rng.integers(0, min(each.codes, 30), 600) for each in challenge().columns}
    taxis = np.arange(600) % 150
    known = PublicTable(challenge(), Table(codes, 600, taxis))
    loss = GAUSSIAN if "delta" in request_["guarantee"] else LAPLACE
    form = ArchetypesParams.model_validate(request_["params"])
    facts = PublicFacts(challenge(), 600)
    limits = dataclasses.replace(LIMITS, rows=request_.get("rows"))
    assert not Archetypes().check(challenge(), TAXI, form, loss, facts, limits).problems
    session = session_on(challenge(), codes, loss, TAXI, taxis)
    table = Archetypes().fit(session, form, known, 7, quiet).sample(None, generator(1))
    assert "trip_hour_of_day" not in table.codes, "only named columns are needed and made"
    assert table.rows > 100


def test_every_param_is_on_the_page() -> None:
    for name in ArchetypesParams.model_fields:
        assert f"`{name}`" in PAGE.read_text()

"""What the published baseline got wrong, each with a test that its behaviour fails."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from small_tables import LIMITS, ROW, digits, quiet, session_on

from app.engine.privacy.loss import PrivacyLoss
from app.engine.privacy.queries import Count, Measurement
from app.engine.schema import PrivacyUnit, Schema
from app.engine.synthesizers.histogram import Histogram, HistogramModel, HistogramParams

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "synthesizers" / "histogram.md"
MAP = {"neighborhood": 278, "month": 12, "incident_type": 174}
RESIDENT = PrivacyUnit("entity", "sim_resident", 20)
EPSILON_1 = PrivacyLoss.pure(10**12)


def params(**form: object) -> HistogramParams:
    return HistogramParams.model_validate({"preset": "sprint1"} | form)


def challenge(cells: dict[str, int], entity: bool = False) -> Schema:
    """Columns of whole numbers in the challenge's dictionary, with one that it adds."""
    wire = digits({**cells, "year": 1}).to_wire()
    if entity:
        wire["fields"].append({"name": "sim_resident", "type": "integer", "role": "entity"})
    return Schema.parse(wire)


class NoisyOnly:
    """A session on an empty table, whose noise is quick: for the size of the whole map."""

    unit = RESIDENT
    allowance = EPSILON_1
    remaining = EPSILON_1

    def __init__(self, schema: Schema) -> None:
        self.schema = schema

    def count(
        self, queries: Sequence[Count], loss: PrivacyLoss, shares: Sequence[float]
    ) -> tuple[Measurement, ...]:
        rng = np.random.default_rng(1)
        answers = []
        for query, part in zip(queries, loss.split(shares), strict=True):
            moved = RESIDENT.max_rows if query.contribution.rule == "rows" else 1
            scale = moved / part.value
            shape = tuple(query.groupings[name].cells for name in query.columns)
            values = np.rint(rng.laplace(0, scale, shape)).astype(np.int64)
            answers.append(
                Measurement(query, values, "laplace", scale, scale * math.sqrt(2), moved, moved)
            )
        return tuple(answers)


def fit_whole_map(form: HistogramParams) -> HistogramModel:
    session = NoisyOnly(challenge(MAP, entity=True))
    return Histogram().fit(session, form, None, 5, quiet)  # type: ignore[arg-type]


def test_the_preset_counts_the_challenges_580464_cells_from_the_dictionary() -> None:
    preflight = Histogram().check(
        challenge(MAP, entity=True), RESIDENT, params(), EPSILON_1, None, LIMITS
    )
    assert preflight.cells == 278 * 12 * 174 == 580_464
    assert preflight.problems == ()
    assert params().columns == ("neighborhood", "month", "incident_type")


def test_the_preset_follows_another_dictionary_and_gives_way_to_other_params() -> None:
    small = challenge({"neighborhood": 3, "month": 2, "incident_type": 4})
    assert Histogram().check(small, ROW, params(), EPSILON_1, None, LIMITS).cells == 24
    form = params(columns=["month"], post_processing="clip")
    assert Histogram().check(small, ROW, form, EPSILON_1, None, LIMITS).cells == 2
    assert params(columns=None) == params()


def test_the_preset_names_the_column_that_a_dictionary_lacks() -> None:
    preflight = Histogram().check(
        digits({"neighborhood": 2, "month": 2}), ROW, params(), EPSILON_1, None, LIMITS
    )
    assert [(each.pointer, "incident_type" in each.message) for each in preflight.problems] == [
        ("/params/columns/2", True)
    ]


def test_clipping_invents_half_a_scale_of_events_in_every_empty_cell_of_the_map() -> None:
    """The mean of max(noise, 0) is b / 2, half of it in each tail: with b = 20 / 0.85 at
    epsilon 1 (the numbers of rows and entities take 0.15) 11.8 events in each of 580,464
    cells. The sum's standard deviation is below 0.2 % of that."""
    events = fit_whole_map(params(post_processing="clip")).counts().values.sum()
    assert events == pytest.approx(580_464 * 20 / 0.85 / 2, rel=0.02)
    assert events > 5_800_000


def test_the_projection_keeps_to_the_noisy_number_of_rows_on_the_whole_map() -> None:
    """The number of rows is bought with a tenth: Laplace of scale 200, pooled with nothing
    that weighs more; beyond 14 scales with probability e^-14 < 1e-6."""
    model = fit_whole_map(params())
    values = model.counts().values
    assert values.sum() == model.size.rows <= 14 * 200
    assert (values >= 0).all()
    assert values.dtype == np.int64


def test_a_threshold_leaves_little_of_the_empty_map() -> None:
    """Beyond 3 standard errors of Laplace noise lies e^(-3 sqrt 2) / 2 = 0.7 % of a tail."""
    kept = np.count_nonzero(fit_whole_map(params(post_processing="threshold")).counts().values)
    assert kept == pytest.approx(580_464 * math.exp(-3 * math.sqrt(2)) / 2, rel=0.1)


def test_a_person_with_more_records_than_k_counts_k_times() -> None:
    """The baseline assumed 20 records a person and counted all there were."""
    schema = challenge({"neighborhood": 2, "month": 2, "incident_type": 2}, entity=True)
    codes = {column.name: np.zeros(500, dtype=np.int64) for column in schema.columns}
    session = session_on(
        schema, codes, PrivacyLoss.pure(10**18), RESIDENT, np.zeros(500, dtype=np.int64)
    )
    model = Histogram().fit(session, params(), None, 5, quiet)
    assert model.counts().values.sum() == model.size.rows == 20


def test_distinct_counts_cost_the_root_of_k_in_euclidean_norm() -> None:
    schema = challenge(MAP, entity=True)
    rows, distinct = (
        Histogram()
        .check(schema, RESIDENT, params(contribution=rule), PrivacyLoss.zcdp(10**12), None, LIMITS)
        .expected_error
        for rule in ({"rule": "rows"}, {"rule": "distinct", "limit": 20})
    )
    # Shares of the histogram: 0.94 beside `rows`, 0.83 beside `distinct`.
    assert rows == pytest.approx(20 / math.sqrt(2 * 0.94), rel=1e-6)
    assert distinct == pytest.approx(math.sqrt(20) / math.sqrt(2 * 0.83), rel=1e-6)


def test_distinct_counts_a_person_once_in_a_cell() -> None:
    schema = challenge({"neighborhood": 2, "month": 1, "incident_type": 1}, entity=True)
    codes = {column.name: np.zeros(6, dtype=np.int64) for column in schema.columns}
    codes["neighborhood"] = np.array([0, 0, 0, 1, 1, 1])
    entities = np.array([0, 0, 0, 0, 1, 1])
    session = session_on(schema, codes, PrivacyLoss.pure(10**18), RESIDENT, entities)
    form = params(contribution={"rule": "distinct", "limit": 20})
    values = Histogram().fit(session, form, None, 5, quiet).counts().values
    assert values.ravel().tolist() == [1, 2]


def test_the_noise_is_whole_numbers_of_scale_k_over_epsilon() -> None:
    """Floating-point noise gives values away by its low bits; the kernel's has none."""
    schema = challenge({"neighborhood": 4, "month": 3, "incident_type": 5}, entity=True)
    codes = {column.name: np.zeros(1, dtype=np.int64) for column in schema.columns}
    session = session_on(schema, codes, EPSILON_1, RESIDENT, np.zeros(1, dtype=np.int64))
    heard: list[Measurement] = []

    def count(*question: object) -> tuple[Measurement, ...]:
        heard.extend(session.count(*question))  # type: ignore[arg-type]
        return tuple(heard)

    listening = SimpleNamespace(
        schema=schema,
        unit=RESIDENT,
        allowance=session.allowance,
        remaining=session.allowance,
        count=count,
    )
    Histogram().fit(listening, params(), None, 5, quiet)
    cells = heard[0]
    assert cells.values.dtype == np.int64
    assert cells.noise == "laplace"
    assert cells.scale == pytest.approx(20 / 0.85, rel=1e-6)
    assert cells.l1_sensitivity == 20


def test_clipped_counts_are_the_measured_ones_without_the_negatives() -> None:
    """All three answers come of the same noisy counts: only what is made of them differs."""
    clipped, kept = (
        fit_whole_map(params(post_processing=choice)).counts().values
        for choice in ("clip", "threshold")
    )
    assert (clipped >= 0).all()
    assert np.array_equal(kept[kept > 0], clipped[kept > 0])


def test_the_page_shows_requests_that_work() -> None:
    examples = [
        json.loads(text) for text in re.findall(r"```json\n(.*?)```", PAGE.read_text(), re.DOTALL)
    ]
    schemas = [
        challenge({"neighborhood": 3, "month": 2, "incident_type": 4}, entity=True),
        challenge({"pickup_community_area": 78, "shift": 21}, entity=True),
    ]
    for request, schema in zip(examples, schemas, strict=True):
        assert request["synthesizer"] == Histogram.name
        form = HistogramParams.model_validate(request["params"])
        loss = PrivacyLoss.zcdp(10**10)
        assert Histogram().check(schema, RESIDENT, form, loss, None, LIMITS).problems == ()


def test_the_page_names_every_param() -> None:
    assert all(f"`{name}`" in PAGE.read_text() for name in HistogramParams.model_fields)

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from acceptance import accepts_law, discrete_gaussian
from aggregate_formulas import sigmas

from app.engine.privacy.library import LocalSession, open_session
from app.engine.privacy.loss import PrivacyLoss
from app.engine.privacy.queries import Measurement, TupleCount
from app.engine.schema import PrivacyUnit, Schema
from app.engine.synthesizers.aggregate_seeded import AggregateSeeded
from app.engine.synthesizers.aggregate_seeded.params import AggregateSeededParams

RHO = 0.1
LOSS = PrivacyLoss.zcdp(10**11)


class Listening:
    """A session whose counts of combinations are remembered."""

    def __init__(self, session: LocalSession) -> None:
        self._session = session
        self.heard: list[tuple[TupleCount, Measurement]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def tuples(self, query: TupleCount, loss: PrivacyLoss) -> Measurement:
        answer = self._session.tuples(query, loss)
        self.heard.append((query, answer))
        return answer


def run(cells: int, columns: str, unit: PrivacyUnit) -> list[tuple[TupleCount, Measurement]]:
    """What a run heard of an empty table, of so many cells a column."""
    bounds = {"required": True, "minimum": 0, "maximum": cells - 1}
    fields: list[dict[str, Any]] = [
        {"name": name, "type": "integer", "constraints": bounds} for name in columns
    ]
    if unit.kind == "entity":
        fields.append({"name": "id", "type": "string", "role": "entity"})
    schema = Schema.parse({"fields": fields})
    nothing = np.zeros(0, dtype=np.int64)
    rows = dict.fromkeys(columns, nothing)
    entities = nothing if unit.kind == "entity" else None
    session: Any = Listening(open_session(rows, schema, unit, LOSS, entities=entities))
    params = AggregateSeededParams.model_validate(
        {
            "reporting_length": len(columns),
            "fabrication_mode": "uncontrolled",
            "number_of_records_epsilon_proportion": 0.005,
        }
    )
    AggregateSeeded().fit(session, params, None, 1, lambda *_: None)
    heard: list[tuple[TupleCount, Measurement]] = session.heard
    return heard


def assert_noise(drawn: np.ndarray[Any, Any], scale: float) -> None:
    assert accepts_law(drawn, discrete_gaussian(scale), scale)
    for off in (0.9, 1.1):
        assert not accepts_law(drawn, discrete_gaussian(off * scale), scale)


def test_single_items_carry_the_stated_noise_and_no_other() -> None:
    (sigma,) = sigmas(RHO * 0.995, 0.01, (1,))
    answers = [answer for _ in range(6) for _, answer in run(4000, "a", PrivacyUnit("row"))]
    assert [answer.scale for answer in answers] == pytest.approx([sigma] * 6, rel=1e-4)
    assert_noise(np.concatenate([answer.values for answer in answers]), sigma)


def test_pairs_of_an_entity_carry_the_noise_of_their_bought_limit_and_no_other() -> None:
    _, sigma = sigmas(RHO * 0.995, 0.01, (1, 1 / 2))
    query, answer = run(400, "ab", PrivacyUnit("entity", "id", 3))[1]
    scale = sigma * query.limit**0.5
    assert len(answer.values) > 20_000, "about half of the items of either column survive"
    assert answer.scale == pytest.approx(scale, rel=1e-4)
    assert_noise(answer.values, scale)

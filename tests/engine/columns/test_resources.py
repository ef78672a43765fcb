from __future__ import annotations

from dataclasses import replace

import pytest
from small_tables import LIMITS, digits

from app.engine.catalog import registry
from app.engine.privacy.loss import PrivacyLoss
from app.engine.schema import PrivacyUnit


@pytest.mark.parametrize(
    "method", ["aggregate_seeded", "aim", "histogram", "independent", "mst", "swift"]
)
def test_rows_of_the_first_sample_count_against_the_time_of_a_run(method: str) -> None:
    synthesizer = registry.builtin(method)
    schema, unit = digits({"a": 2, "b": 2, "c": 2}), PrivacyUnit("row")
    limits = replace(LIMITS, max_total_rows=10**8, memory_bytes=2**40, time_s=500.0)

    def told(rows: int) -> list[str]:
        loss = PrivacyLoss.zcdp(10**12)
        case = replace(limits, rows=rows)
        params = synthesizer.Params()
        found = synthesizer.check(schema, unit, params, loss, None, case).problems
        messages = [problem.message for problem in found]
        return [message for message in messages if "drawing the noise" in message]

    assert told(10**7) == []
    (message,) = told(10**8)
    assert "100000000 rows of 3 columns" in message
    assert "over half of the 500 seconds" in message

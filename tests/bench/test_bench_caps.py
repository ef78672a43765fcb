"""The caps that preflight asks for."""

from dataclasses import replace

import numpy as np
import pytest

from app.engine.catalog import registry
from app.engine.method import Limits
from app.engine.privacy.accounting import open_guarantee
from app.engine.privacy.loss import Accountant
from bench.synthesizers.caps import Caps, least_caps
from bench.synthesizers.guarantee import guarantee
from bench.synthesizers.tables import CodedTable


def table(columns: int, rows: int = 1234) -> CodedTable:
    names = [f"c{number}" for number in range(columns)]
    fields = [
        {"name": name, "type": "string", "constraints": {"required": True, "enum": ["0", "1"]}}
        for name in names
    ]
    codes = {name: np.zeros(rows, dtype=np.int64) for name in names}
    return CodedTable("small_one", {"fields": fields}, codes, None, (), None)


def problems(of: CodedTable, caps: Caps) -> tuple[str, ...]:
    mst = registry.builtin("mst")
    _, loss = open_guarantee(guarantee("1"), Accountant.BASIC)
    limits = Limits(of.declared_rows, None, caps.memory_bytes, caps.time_s)
    told = mst.check(of.schema, of.unit, mst.Params(), loss, None, limits)
    return tuple(each.message for each in told.problems)


def test_with_the_least_caps_a_release_is_allowed_and_with_any_less_it_is_not() -> None:
    of = table(60)
    caps = least_caps("mst", of, "1")
    assert problems(of, caps) == ()
    assert problems(of, replace(caps, memory_bytes=caps.memory_bytes - 1))
    assert problems(of, replace(caps, time_s=caps.time_s / 1.02))


def test_what_no_caps_would_do_for_is_an_error() -> None:
    with pytest.raises(ValueError, match="no caps would do for mst on small_one"):
        least_caps("mst", table(201), "1")


@pytest.mark.parametrize(("rows", "declared"), [(170_254, 180_000), (39_074, 40_000), (9, 10)])
def test_a_table_is_declared_to_have_not_many_more_rows_than_it_has(
    rows: int, declared: int
) -> None:
    assert table(1, rows).declared_rows == declared


def test_a_server_is_told_its_caps_by_its_settings() -> None:
    assert Caps(10**9, 12.34).settings == {
        "HALFTONE_JOB_MEMORY_BYTES": "1000000000",
        "HALFTONE_JOB_TIME_LIMIT_S": "13",
    }

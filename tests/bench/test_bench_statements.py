"""The bench of statements makes one of every built-in, by rows and by entities."""

from __future__ import annotations

import pytest

from app.engine.catalog import registry
from bench.statements.__main__ import _line, _tallied
from bench.statements.tables import subjects

# Counts classes of entities, and no column.
WITHOUT_COLUMNS = ("class_resampling",)


@pytest.mark.parametrize("method", registry.built_ins())
def test_every_built_in_has_a_statement_of_what_it_counted(method: str) -> None:
    for number, subject in enumerate(subjects()[:2]):
        tally = _tallied(method, number, range(1))
        assert tally.failure == ""
        assert (tally.distances > 0) == (method not in WITHOUT_COLUMNS)
        assert f"`{method}` | few | {subject.unit.kind}" in _line(method, subject, [tally])

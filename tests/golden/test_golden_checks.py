"""Golden preflights: what `check` says of each golden request, and of requests at the edges.

Cells, bytes, the share of delta, and the pointers of problems, in order, are equal to those of
`records/checks.json`; expected errors are equal up to the rounding of floats. Messages and
remedies stand in `records/messages.json`, so that they can be reworded by themselves.
"""

from __future__ import annotations

from typing import Any

import pytest
from golden_checks import CHECKS, FORMS, ROW_CHECKS, refused, told, told_of_rows
from golden_records import differences, recorded

# Errors are closed formulas of public numbers: nothing but the last digits may differ.
TOLERANCE = 1e-9
METHODS = tuple(dict.fromkeys(asked.method for asked in CHECKS))


@pytest.fixture(scope="module")
def found() -> dict[str, tuple[dict[str, Any], list[list[str]]]]:
    return {asked.name: told(asked) for asked in CHECKS}


@pytest.mark.parametrize("method", METHODS)
def test_numbers_and_pointers_are_those_recorded(method: str, found: dict[str, Any]) -> None:
    golden = recorded("checks")
    names = [asked.name for asked in CHECKS if asked.method == method]
    of_method = {name: found[name][0] for name in names}
    of_method_golden = {name: golden[name] for name in names}
    assert differences(of_method, of_method_golden, tolerance=TOLERANCE) == []


def test_messages_and_remedies_are_those_recorded(found: dict[str, Any]) -> None:
    assert (
        differences({name: said for name, (_, said) in found.items() if said}, recorded("messages"))
        == []
    )


def test_every_recorded_check_is_made() -> None:
    assert list(recorded("checks")) == [asked.name for asked in CHECKS]


def test_forms_are_refused_where_they_were() -> None:
    golden = recorded("forms")
    assert len(golden) == len(FORMS)
    made = [[method, dict(form), refused(method, form)] for method, form in FORMS]
    assert differences(made, golden) == []


def test_public_rows_are_refused_where_they_were() -> None:
    made = {asked.name: told_of_rows(asked) for asked in ROW_CHECKS}
    assert differences(made, recorded("public_rows")) == []

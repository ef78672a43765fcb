"""One shape for every error, and a page for every type."""

from __future__ import annotations

from app.problems import (
    BudgetExceeded,
    FieldError,
    HalftoneError,
    Invalid,
    problem_types,
    remedy_for,
)


def test_every_problem_has_a_status_a_title_and_a_meaning() -> None:
    kinds = problem_types()
    assert len({kind.slug for kind in kinds.values()}) == len(kinds)
    for kind in kinds.values():
        assert 400 <= kind.status < 600
        assert kind.title
        assert kind.__doc__


def test_an_error_names_pointer_message_and_remedy() -> None:
    wire = Invalid("Two fields.", errors=[FieldError("/a", "is wrong", "mend it")]).as_wire("/v1/x")
    assert wire == {
        "type": "/problems/invalid",
        "title": "Invalid request",
        "status": 422,
        "detail": "Two fields.",
        "instance": "/v1/x",
        "errors": [{"pointer": "/a", "message": "is wrong", "remedy": "mend it"}],
    }


def test_what_mends_a_fault_follows_from_its_type() -> None:
    assert remedy_for("missing", "read the docs") == "Add the field."
    assert "larger" in remedy_for("greater_than_equal", "read the docs")
    assert remedy_for("never heard of", "read the docs") == "read the docs"


def test_a_refusal_carries_the_amounts() -> None:
    error: HalftoneError = BudgetExceeded(
        "No.",
        requested={"epsilon": "1", "delta": "0"},
        spent={"epsilon": "10", "delta": "0"},
        remaining={"epsilon": "0", "delta": "0"},
        scope="account",
        limited_by="epsilon",
        largest_epsilon=None,
    )
    wire = error.as_wire("/")
    assert (wire["status"], wire["scope"], wire["largest_epsilon"]) == (409, "account", None)
    assert wire["requested"] == {"epsilon": "1", "delta": "0"}

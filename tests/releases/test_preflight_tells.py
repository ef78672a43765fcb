"""What a preflight tells beyond the charge: why the budget refuses, and how large errors may be."""

from __future__ import annotations

from typing import Any

import pytest
from release_world import COLOURS, Client, World, wanted

PERSON = {"kind": "entity", "column": "id", "max_rows": 5}
TOLD = (
    "detail", "scope", "limited_by", "spent", "spent_as_epsilon", "remaining",
    "remaining_as_epsilon", "largest_epsilon",
)  # fmt: skip


def preflight(client: Client, dataset: str, **changes: Any) -> dict[str, Any]:
    answer = client.post(f"/v1/datasets/{dataset}/releases/preflight", wanted(**changes))
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_what_fits_has_no_refusal(service: World) -> None:
    assert preflight(service.custodian, service.add_dataset())["refusal"] is None


def test_a_budget_that_is_too_small_is_told_as_the_release_would_be_refused(
    service: World,
) -> None:
    dataset = service.add_dataset(epsilon="1.5")
    assert service.custodian.release(dataset).status_code == 202
    told = preflight(service.custodian, dataset)
    assert (told["fits"], told["problems"], told["remaining_after"]) == (False, [], None)
    refused = service.custodian.release(dataset).json()
    assert told["refusal"] == {name: refused[name] for name in TOLD}
    assert told["refusal"]["limited_by"] == "epsilon"
    assert told["refusal"]["largest_epsilon"] == "0.5"
    largest = preflight(service.custodian, dataset, guarantee={"epsilon": "0.5"})
    assert (largest["fits"], largest["refusal"]) == (True, None)


def test_an_analyst_learns_the_accounts_totals_where_they_are_shown_alone(
    service: World,
) -> None:
    dataset = service.add_dataset(epsilon="1.5")
    for who in ("ana", "ben"):
        service.add_analyst(who)
        service.grant(dataset, who, show_budget=who == "ana")
    assert service.custodian.release(dataset).status_code == 202
    shown = preflight(service.client("ana"), dataset)["refusal"]
    assert (shown["scope"], shown["limited_by"]) == ("account", "epsilon")
    assert shown["largest_epsilon"] == "0.5"
    hidden = preflight(service.client("ben"), dataset)
    assert (hidden["fits"], hidden["refusal"], hidden["remaining_after"]) == (True, None, None)
    refused = service.client("ben").release(dataset).json()
    assert refused["scope"] == "account"
    assert {refused[name] for name in TOLD[2:]} == {None}


def test_an_allowance_that_is_too_small_is_told_to_whom_it_belongs(service: World) -> None:
    dataset = service.add_dataset()
    service.add_analyst("ana")
    service.grant(dataset, "ana", epsilon=4 * 10**11, delta=0)
    told = preflight(service.client("ana"), dataset)["refusal"]
    assert (told["scope"], told["largest_epsilon"]) == ("grant", "0.4")
    assert told["remaining"] == {"epsilon": "0.4", "delta": "0"}


def test_where_nothing_could_be_picked_no_reason_for_a_choice_is_told(service: World) -> None:
    dataset = service.add_dataset()
    told = preflight(
        service.custodian, dataset, synthesizer="auto", params={}, public_dataset="ds_nowhere"
    )
    assert (told["fits"], told["why"]) == (False, None)
    assert [each["pointer"] for each in told["problems"]] == ["/public_dataset"]


def test_other_problems_and_the_budget_are_both_told(service: World) -> None:
    dataset = service.add_dataset(epsilon="0.5")
    told = preflight(service.custodian, dataset, params={"columns": ["nothing"]})
    assert told["problems"]
    assert told["refusal"]["limited_by"] == "epsilon"


@pytest.mark.parametrize("guarantee", [{"epsilon": "1"}, {"epsilon": "1", "delta": "0.0000001"}])
@pytest.mark.parametrize("name", ["independent", "mst", "swift", "aim"])
def test_the_error_of_a_rule_yet_to_be_chosen_is_a_range(
    service: World, name: str, guarantee: dict[str, str]
) -> None:
    """From a rule by which an entity counts as one row, to one by which all five count."""
    dataset = service.add_dataset(schema=COLOURS, unit=PERSON)
    told = preflight(service.custodian, dataset, synthesizer=name, params={}, guarantee=guarantee)
    assert told["problems"] == []
    assert told["expected_error"] == pytest.approx(5 * told["expected_error_at_least"], rel=0.05)


def test_where_the_rule_is_known_the_range_is_a_point(service: World) -> None:
    entities = service.add_dataset(schema=COLOURS, unit=PERSON)
    params = {"contribution": {"rule": "rows"}}
    for dataset, form in ((entities, params), (service.add_dataset(), {})):
        told = preflight(service.custodian, dataset, synthesizer="mst", params=form)
        assert told["expected_error_at_least"] == told["expected_error"] > 0

"""What an admission asks of the store, in statements: few, and no more as releases add up."""

from __future__ import annotations

from release_world import Client, World, wanted
from statements import statements

from app.database import new_id

AUTHENTICATION, CHECKS, CHARGE = 2, 6, 9
"""BEGIN counts, COMMIT does not."""
ALLOWANCE = 3
"""SAVEPOINT and RELEASE are two of them."""


def asked(service: World, client: Client, dataset: str) -> list[str]:
    path, headers = f"/v1/datasets/{dataset}/releases", {"Idempotency-Key": new_id("key")}
    with statements(service.database) as seen:
        answer = client.post(path, wanted(), headers=headers)
    assert answer.status_code == 202, answer.text
    return [one.text for one in seen]


def test_an_admission_keeps_to_its_statements(service: World) -> None:
    dataset = service.add_dataset()
    asked(service, service.custodian, dataset)
    seen = asked(service, service.custodian, dataset)
    assert len(seen) <= AUTHENTICATION + CHECKS + CHARGE, "\n".join(seen)
    assert sum(one == "BEGIN IMMEDIATE" for one in seen) == 1


def test_an_allowance_costs_little_more(service: World) -> None:
    dataset, analyst = service.add_dataset(), service.add_analyst("ana")
    service.grant(dataset, "ana", epsilon=10**13, delta=0)
    seen = asked(service, analyst, dataset)
    assert len(seen) <= AUTHENTICATION + CHECKS + CHARGE + ALLOWANCE, "\n".join(seen)

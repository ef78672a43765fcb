"""Principals, their keys, grants on datasets, and the audit log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Literal

from halftone_client import wire
from halftone_client.flows.datasets import DatasetRef
from halftone_client.protocol import Body, Call, Flow, Service, path_to
from halftone_client.records import Record, id_of

PrincipalRef = str | Mapping[str, Any]


def me(service: Service) -> Flow[Record]:
    """The principal this key belongs to."""
    return Record((yield from service.get(path_to("me"))))


def principals(service: Service) -> Flow[list[Record]]:
    """All principals (admin)."""
    found = yield from service.items(path_to("principals"))
    return [Record(item) for item in found]


def create_principal(service: Service, name: str, *, roles: Sequence[str]) -> Flow[Record]:
    """A principal with roles among admin, custodian, analyst and auditor (admin)."""
    body = {"name": name, "roles": list(roles)}
    return Record((yield from service.post(path_to("principals"), body, makes=True)))


def change_principal(
    service: Service,
    principal: PrincipalRef,
    *,
    name: str | None = None,
    roles: Sequence[str] | None = None,
    state: Literal["active", "disabled"] | None = None,
) -> Flow[Record]:
    """Rename, give other roles, disable or enable; what is left out stays (admin)."""
    asked = {"name": name, "roles": None if roles is None else list(roles), "state": state}
    body = {name: value for name, value in asked.items() if value is not None}
    call = Call("PATCH", path_to("principals", id_of(principal)), Body(json=body))
    return Record(wire.decode((yield from service.call(call))))


def keys(service: Service, principal: PrincipalRef) -> Flow[list[Record]]:
    """A principal's API keys, without their secrets."""
    found = yield from service.items(path_to("principals", id_of(principal), "keys"))
    return [Record(item) for item in found]


def create_key(
    service: Service,
    principal: PrincipalRef,
    *,
    label: str | None = None,
    expires_at: datetime | None = None,
) -> Flow[Record]:
    """A new API key; its secret stands in `["key"]`, this once.

    It is None if the first answer was lost and the request repeated: revoke the key then, and
    make another.
    """
    body: dict[str, Any] = {}
    if label is not None:
        body["label"] = label
    if expires_at is not None:
        body["expires_at"] = expires_at.astimezone(UTC).isoformat()
    path = path_to("principals", id_of(principal), "keys")
    return Record((yield from service.post(path, body, makes=True)))


def revoke_key(
    service: Service, principal: PrincipalRef, key: str | Mapping[str, Any]
) -> Flow[None]:
    """End a key at once."""
    yield from service.delete(path_to("principals", id_of(principal), "keys", id_of(key)))


def grants(service: Service, dataset: DatasetRef) -> Flow[list[Record]]:
    """Who may use a dataset, and how much of its budget (custodian)."""
    found = yield from service.items(path_to("datasets", id_of(dataset), "grants"))
    return [Record(item) for item in found]


def grant(
    service: Service,
    dataset: DatasetRef,
    principal: PrincipalRef,
    *,
    role: Literal["analyst", "auditor"] = "analyst",
    allowance: Mapping[str, wire.Amount] | None = None,
    show_budget: bool = False,
) -> Flow[Record]:
    """Let an analyst use a dataset, within an allowance if one is given (custodian).

    With the role "auditor" the principal reads the whole ledger, and no data; it has no allowance.
    """
    body: dict[str, Any] = {"principal_id": id_of(principal), "role": role}
    if show_budget:
        body["show_budget"] = True
    if allowance is not None:
        body["allowance"] = wire.amounts(allowance)
    path = path_to("datasets", id_of(dataset), "grants")
    return Record((yield from service.post(path, body, makes=True)))


def change_grant(
    service: Service,
    dataset: DatasetRef,
    grant: str | Mapping[str, Any],
    *,
    allowance: Mapping[str, wire.Amount] | None = None,
    show_budget: bool | None = None,
) -> Flow[Record]:
    """Put other terms in force; what is left out stays (custodian)."""
    body: dict[str, Any] = {}
    if allowance is not None:
        body["allowance"] = wire.amounts(allowance)
    if show_budget is not None:
        body["show_budget"] = show_budget
    call = Call(
        "PATCH", path_to("datasets", id_of(dataset), "grants", id_of(grant)), Body(json=body)
    )
    return Record(wire.decode((yield from service.call(call))))


def revoke_grant(
    service: Service, dataset: DatasetRef, grant: str | Mapping[str, Any]
) -> Flow[None]:
    """Revoke a grant; what was charged under it stays charged (custodian)."""
    yield from service.delete(path_to("datasets", id_of(dataset), "grants", id_of(grant)))


def audit(service: Service) -> Flow[list[Record]]:
    """The audit log, as far as you may see it."""
    found = yield from service.items(path_to("audit"))
    return [Record(item) for item in found]

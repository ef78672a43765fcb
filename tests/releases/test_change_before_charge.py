"""What changes between the checks of a request and its charge still counts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from release_world import World
from sqlalchemy.orm import Session

from app.datasets.models import DatasetRow
from app.ledger.models import GrantRow
from app.releases import admission


@pytest.fixture
def after_checks(
    service: World, monkeypatch: pytest.MonkeyPatch
) -> Callable[[Callable[[Session], None]], None]:
    def install(change: Callable[[Session], None]) -> None:
        check = admission.prepare

        def prepare(*facts: Any) -> Any:
            prepared = check(*facts)
            with service.database.write() as session:
                change(session)
            return prepared

        monkeypatch.setattr(admission, "prepare", prepare)

    return install


def released(service: World) -> list[Any]:
    found: list[Any] = service.custodian.get("/v1/releases").json()["items"]
    return found


@pytest.mark.parametrize("change", [{"closed": True}, {"state": "erased"}, {"state": "ingesting"}])
def test_a_dataset_that_takes_no_more_releases_is_a_conflict(
    service: World, after_checks: Any, change: dict[str, Any]
) -> None:
    dataset = service.add_dataset()

    def apply(session: Session) -> None:
        row = session.get_one(DatasetRow, dataset)
        for name, value in change.items():
            setattr(row, name, value)

    after_checks(apply)
    assert service.custodian.release(dataset).status_code == 409
    assert released(service) == []


def test_a_revoked_grant_opens_nothing(service: World, after_checks: Any) -> None:
    dataset, analyst = service.add_dataset(), service.add_analyst("ana")
    grant = service.grant(dataset, "ana")

    def revoke(session: Session) -> None:
        session.get_one(GrantRow, grant).state = "revoked"

    after_checks(revoke)
    assert analyst.release(dataset).status_code == 404
    assert released(service) == []


def test_a_budget_that_is_hidden_meanwhile_is_not_told(service: World, after_checks: Any) -> None:
    dataset, analyst = service.add_dataset(), service.add_analyst("ana")
    grant = service.grant(dataset, "ana", show_budget=True)

    def hide(session: Session) -> None:
        session.get_one(GrantRow, grant).show_budget = False

    after_checks(hide)
    refusal = analyst.release(dataset, guarantee={"epsilon": "1000"})
    assert refusal.status_code == 409
    assert refusal.json().get("remaining") is None


def test_what_nobody_changed_is_admitted(service: World, after_checks: Any) -> None:
    dataset, analyst = service.add_dataset(), service.add_analyst("ana")
    service.grant(dataset, "ana")
    after_checks(lambda _: None)
    assert analyst.release(dataset).status_code == 202

"""Delta that a synthesizer sets aside, from its word to the ledger; and who gets public rows."""

from __future__ import annotations

from typing import Any

import pytest
from release_world import World, wanted

from app.engine.catalog import registry
from app.engine.catalog.registry import Entry
from app.engine.catalog.third_party import adapted
from app.engine.method import Preflight
from app.engine.privacy.accounting import rho_for
from app.engine.privacy.loss import Accountant, PrivacyLoss
from app.engine.sandbox import child
from app.engine.sandbox.protocol import FormRead, ReadForm
from app.engine.schema import Schema
from app.engine.synthesizers.histogram import Histogram
from app.jobs.fit import _Admitted
from app.releases.models import ReleaseRow

ONE = 10**12
SCHEMA = Schema.parse({"fields": [{"name": "good", "type": "boolean"}]})
GUARANTEE = {"epsilon": "1", "delta": "0.000001"}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[PrivacyLoss]:
    """Lets `histogram` set a quarter of delta aside; the losses that its `check` was told."""
    losses = []
    check = Histogram.check

    def told(self: Histogram, schema: Any, unit: Any, params: Any, loss: Any, *rest: Any) -> Any:
        losses.append(loss)
        return check(self, schema, unit, params, loss, *rest)

    monkeypatch.setattr(Histogram, "check", told)
    monkeypatch.setattr(Histogram, "delta_share", lambda *_: 0.25, raising=False)
    return losses


def booked(service: World, release_id: str) -> ReleaseRow:
    with service.database.read() as session:
        return session.get_one(ReleaseRow, release_id)


def test_the_share_is_set_aside_in_the_session_and_comes_out_of_the_guarantee(
    service: World, asked: list[PrivacyLoss]
) -> None:
    dataset = service.add_dataset()
    answer = service.custodian.release(dataset, guarantee=GUARANTEE)
    assert answer.status_code == 202, answer.text
    row = booked(service, answer.json()["id"])
    assert (row.charge_primary, row.charge_delta) == (ONE, ONE)
    assert (row.loss_amount, row.loss_delta) == (rho_for(ONE, ONE * 3 // 4), ONE // 4)
    # The guarantee is opened once, after the form was read, and `check` is asked once.
    assert asked == [PrivacyLoss.zcdp(row.loss_amount, row.loss_delta)]


def test_on_zcdp_the_share_is_charged_beside_rho(service: World, asked: list[PrivacyLoss]) -> None:
    dataset = service.add_dataset(
        accountant=Accountant.ZCDP, delta="0.00001", delta_for_approximate="0.0000004"
    )
    path = f"/v1/datasets/{dataset}/releases"
    preview = service.custodian.post(f"{path}/preflight", wanted(guarantee=GUARANTEE)).json()
    assert preview["fits"]
    answer = service.custodian.release(dataset, guarantee=GUARANTEE)
    assert answer.status_code == 202, answer.text
    row = booked(service, answer.json()["id"])
    assert (row.charge_primary, row.charge_delta) == (row.loss_amount, ONE // 4)
    assert preview["charge"]["delta"] == "0.00000025"
    # The rest of what the account set aside is too little for another.
    assert not service.custodian.post(f"{path}/preflight", wanted(guarantee=GUARANTEE)).json()[
        "fits"
    ]
    refused = service.custodian.release(dataset, guarantee=GUARANTEE)
    assert refused.status_code == 409
    assert refused.json()["limited_by"] == "delta"
    assert asked


def test_a_guarantee_without_delta_sets_nothing_aside(
    service: World, asked: list[PrivacyLoss]
) -> None:
    answer = service.custodian.release(service.add_dataset(), guarantee={"epsilon": "1"})
    assert answer.status_code == 202, answer.text
    assert booked(service, answer.json()["id"]).loss_delta == 0
    assert set(asked) == {PrivacyLoss.pure(ONE)}


class Guest:
    """A third party with approximate steps."""

    name = "guest"
    Params = Histogram.Params
    fit = load = Histogram.load

    def check(self, *_: Any) -> Preflight:
        return Preflight(1, 1, 1.0)

    def delta_share(self, params: Any) -> float:
        return 0.5 if params.columns else 0.0


def test_a_child_tells_the_share_of_a_third_party(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "load", lambda _: adapted(Guest()))
    request = ReadForm("guest", {"columns": ["good"]}, SCHEMA)
    read = FormRead.from_frame(child._form_read(request).to_frame())
    assert read.delta_share == 0.5


@pytest.mark.parametrize("share", [-0.1, 1.0, float("nan")])
def test_no_other_share_is_one(share: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Guest, "delta_share", lambda *_: share)
    with pytest.raises(ValueError, match="share"):
        adapted(Guest()).delta_set_aside(None, SCHEMA)
    assert Histogram().delta_set_aside(Histogram.Params(), SCHEMA) == 0


def test_built_ins_get_public_rows_if_they_say_so_and_third_parties_always() -> None:
    def gets(entry: Entry, public: str | None = "ds_public") -> bool:
        release = ReleaseRow(public_dataset_id=public, synthesizer=entry.name)
        return _Admitted(release, entry, Accountant.BASIC, "", None, 1000).uses_public

    assert Histogram().uses_public == "no"
    for entry in registry.entries():
        if entry.builtin:
            assert gets(entry) == (registry.builtin(entry.name).uses_public != "no")
    assert gets(registry.entry("archetypes"))
    assert not gets(registry.entry("archetypes"), None)
    assert gets(Entry("guest", "guest", "1", False, "enforced"))

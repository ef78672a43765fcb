"""The client against a real service, from upload to refusal, by a custodian and an analyst."""

from __future__ import annotations

import asyncio
import base64
import json
import zipfile
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import halftone_client
import pandas as pd
import pytest
from halftone_client import AsyncHalftone, Halftone
from halftone_client.verification import verify
from serving import ADMIN_KEY, LiveServer, serving

pytestmark = pytest.mark.e2e

SCHEMA = {
    "fields": [
        {"name": "size", "type": "integer", "constraints": {"minimum": 0, "maximum": 9}},
        {"name": "kind", "type": "string", "constraints": {"enum": ["a", "b"]}},
    ]
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    with serving(tmp_path_factory.mktemp("client") / "store") as live:
        yield live


@pytest.fixture
def custodian(server: LiveServer) -> Iterator[Halftone]:
    with Halftone(server.url, ADMIN_KEY) as client:
        yield client


def spec(name: str, **more: Any) -> dict[str, Any]:
    unit = {"kind": "row"}
    budget = {"epsilon": 1, "delta": 0}
    return {"name": name, "schema": SCHEMA, "unit": unit, "budget": budget, **more}


def table(rows: int) -> pd.DataFrame:
    """Rows of known content; another number makes another table."""
    return pd.DataFrame({"size": [n % 10 for n in range(rows)], "kind": ["a", "b"] * (rows // 2)})


def test_from_a_frame_to_a_frame_and_a_refusal(custodian: Halftone, tmp_path: Path):
    seen: list[tuple[float, str]] = []
    dataset = custodian.upload(spec("whole way"), table(400))
    plan = custodian.preflight(dataset, "histogram", {"epsilon": 0.6})
    assert plan.fits
    done = custodian.release(
        dataset, "histogram", {"epsilon": 0.6}, rows=50, progress=lambda *told: seen.append(told)
    )
    assert seen[-1][0] == 1.0
    assert custodian.get_release(done.id).state == "succeeded"
    frame = custodian.download(done)
    assert list(frame.columns) == ["size", "kind"]
    assert len(frame) == 50
    again = custodian.sample(done, 20, seed=3)
    saved = custodian.save(again, tmp_path / "again.csv")
    assert len(pd.read_csv(saved)) == 20
    assert {sample.id for sample in custodian.samples(done)} == {done.samples[0].id, again.id}
    counts = custodian.sample(done, kind="counts")
    assert len(custodian.download(counts, "jsonl")) > 0
    assert custodian.measurements(done)["measurements"]
    assert custodian.certificate(done)
    bundle = custodian.save_bundle(done, tmp_path / "bundle.zip", [done.samples[0], again])
    keys = {key.id: base64.b64decode(key["public_key"]) for key in custodian.signing_keys()}
    assert verify(bundle, keys).release_id == done.id
    with zipfile.ZipFile(bundle) as archive:
        stated = json.loads(archive.read("statement.json"), parse_float=Decimal)
        assert stated == dict(custodian.statement(done))
        assert archive.read("report.html").decode() == custodian.report_page(done)
    assert custodian.statement(done)["release_id"] == done.id
    assert custodian.report(done)["exact"] is None
    assert custodian.make_report(done)["exact"]["rows"]["synthetic"] == 50
    custodian.delete_report(done)
    assert custodian.report(done)["exact"] is None

    with pytest.raises(halftone_client.BudgetExceeded) as caught:
        custodian.release(dataset, "histogram", {"epsilon": "0.5"})
    assert caught.value.remaining == {"epsilon": Decimal("0.4"), "delta": 0}
    assert caught.value.largest_epsilon == Decimal("0.4")
    assert [line["kind"] for line in custodian.ledger(dataset)] == ["opened", "charge"]
    assert custodian.verify_ledger(dataset)["ok"] is True

    raised = custodian.set_budget(dataset, epsilon="1.5", reason="a second wave")
    assert raised["remaining"]["epsilon"] == "0.9"
    custodian.delete_sample(again)
    with pytest.raises(halftone_client.NotFound):
        custodian.get_sample(again)
    assert custodian.rename_dataset(dataset, "another name")["name"] == "another name"
    custodian.delete_dataset(dataset)
    assert custodian.dataset(dataset).state == "erased"


def test_a_table_is_brought_to_a_dataset_that_awaits_it(custodian: Halftone, tmp_path: Path):
    empty = custodian.create_dataset(spec("awaiting"))
    assert empty.state == "awaiting_data"
    faulty, sound = tmp_path / "faulty.csv", tmp_path / "sound.jsonl"
    faulty.write_text("size,kind\n3,c\n")
    table(80).to_json(sound, orient="records", lines=True)
    with pytest.raises(halftone_client.UploadRejected, match=r"kind, undeclared: 1\n    row 1: "):
        custodian.put_data(empty, faulty)
    assert custodian.put_data(empty, sound).state == "ready"
    assert custodian.ingest_report(empty)["rows"] == 80


def test_what_is_wrong_with_a_spec_is_told_by_pointer(custodian: Halftone):
    with pytest.raises(halftone_client.ValidationFailed) as caught:
        custodian.create_dataset(
            spec("wrong", schema={"fields": [{"name": "x", "type": "colour"}]})
        )
    assert "/schema/fields/0/type" in {error.pointer for error in caught.value.errors}
    assert all(error.remedy for error in caught.value.errors)


def test_an_analyst_works_within_an_allowance(custodian: Halftone, server: LiveServer):
    analyst = custodian.create_principal("Ada", roles=["analyst"])
    key = custodian.create_key(analyst, label="notebook")
    dataset = custodian.upload(spec("granted"), table(120))
    with Halftone(server.url, key["key"]) as client:
        with pytest.raises(halftone_client.NotFound):
            client.dataset(dataset)
        grant = custodian.grant(dataset, analyst, allowance={"epsilon": 0.3})
        assert [seen.id for seen in client.datasets()] == [dataset.id]
        with pytest.raises(halftone_client.BudgetExceeded) as caught:
            client.release(dataset, "independent", {"epsilon": 0.4})
        assert (caught.value.scope, caught.value.largest_epsilon) == ("grant", Decimal("0.3"))
        custodian.change_grant(dataset, grant, allowance={"epsilon": 0.5})
        client.release(dataset, "independent", {"epsilon": 0.4}, rows=5)
        assert [made.state for made in client.releases(dataset)] == ["succeeded"]
        with pytest.raises(halftone_client.NotAllowed):
            client.create_principal("Eve", roles=["admin"])
        custodian.revoke_grant(dataset, grant)
        custodian.revoke_key(analyst, custodian.create_key(analyst, label="spare"))
        custodian.change_principal(analyst, state="disabled")
        with pytest.raises(halftone_client.NotAuthenticated):
            client.me()
    assert {line["state"] for line in custodian.keys(analyst)} == {"active", "revoked"}
    assert any(line["action"].startswith("grant") for line in custodian.audit())


def test_an_analyst_samples_a_shared_release_at_no_charge(custodian: Halftone, server: LiveServer):
    dataset = custodian.upload(spec("to share"), table(140))
    release = custodian.release(dataset, "independent", {"epsilon": 0.4}, rows=20)
    analyst = custodian.create_principal("Bea", roles=["analyst"])
    custodian.grant(dataset, analyst)
    spent = custodian.budget(dataset)["spent"]
    with Halftone(server.url, custodian.create_key(analyst)["key"]) as client:
        assert client.releases(dataset) == []
        custodian.set_visibility(release, "grantees")
        (found,) = client.releases(dataset)
        sample = client.sample(found, 30, seed=7)
        assert len(client.download(sample)) == 30
        assert client.certificate(found)["guarantee"]["epsilon"] == "0.4"
        assert client.ledger(dataset) == []
        client.delete_sample(sample)
        with pytest.raises(halftone_client.NotAllowed):
            client.delete_sample(found.samples[0])
        with pytest.raises(halftone_client.NotAllowed):
            client.set_visibility(found, "public")
    assert custodian.budget(dataset)["spent"] == spent


def test_an_auditor_prints_the_statement(custodian: Halftone, server: LiveServer, tmp_path: Path):
    dataset = custodian.upload(spec("to audit"), table(160))
    release = custodian.release(dataset, "independent", {"epsilon": 0.4}, rows=20)
    auditor = custodian.create_principal("Otto", roles=["auditor"])
    custodian.grant(dataset, auditor, role="auditor")
    with Halftone(server.url, custodian.create_key(auditor)["key"]) as client:
        (seen,) = client.datasets()
        assert seen["role"] == "auditor"
        stated = client.account_statement(seen)
        assert [line["kind"] for line in stated["entries"]] == ["opened", "charge"]
        assert stated["budget"]["remaining"]["epsilon"] == "0.6"
        assert stated["verification"]["ok"]
        page = client.save_account_statement(seen, tmp_path / "statement.html").read_text()
        assert f"Release {release.id} charged for epsilon 0.4" in page
        lines = client.export_ledger(seen, tmp_path / "ledger.jsonl").read_text().splitlines()
        assert len(lines) == 3
        assert client.certificate(release)["charge"]["epsilon"] == "0.4"
        assert {line["subject"] for line in client.audit()} == {dataset.id}
        for forbidden in (client.get_release, client.samples, client.measurements):
            with pytest.raises(halftone_client.NotFound):
                forbidden(release)


def test_many_coroutines_share_one_client_and_one_budget(server: LiveServer):
    async def tour() -> tuple[int, int]:
        async with AsyncHalftone(server.url, ADMIN_KEY) as client:
            dataset = await client.upload(spec("shared"), table(200))
            asked = [
                client.release(dataset, "independent", {"epsilon": 0.25}, rows=10) for _ in range(6)
            ]
            ended = await asyncio.gather(*asked, return_exceptions=True)
            done = [made for made in ended if isinstance(made, halftone_client.Release)]
            frame = await client.download(done[0], "csv")
            assert len(frame) == 10
            refused = [one for one in ended if isinstance(one, halftone_client.BudgetExceeded)]
            return len(done), len(refused)

    assert asyncio.run(tour()) == (4, 2)


def test_a_release_can_be_cancelled(custodian: Halftone):
    dataset = custodian.upload(spec("cancelled"), table(60))
    queued = custodian.release(dataset, "mst", {"epsilon": 0.1}, wait=False)
    try:
        ended = custodian.cancel(queued)
    except halftone_client.Conflict:
        assert custodian.get_release(queued).state == "succeeded"
        return
    assert ended.state in {"cancelling", "cancelled"}
    with pytest.raises(halftone_client.JobFailed, match="cancelled"):
        custodian.wait(ended)


def test_a_stored_table_can_be_proposed_as_a_dictionary(custodian: Halftone):
    proposed = custodian.propose_dictionary(table(40))
    assert {field["name"] for field in proposed["schema"]["fields"]} == {"size", "kind"}
    imported = custodian.import_dictionary({"age": 85, "income": 2}, "private-pgm")
    assert {field["name"] for field in imported["schema"]["fields"]} == {"age", "income"}
    excerpt = custodian.import_dictionary({"SEX": {"values": {"1": "Male"}}}, "nist-dictionary")
    assert excerpt["schema"]["fields"][0]["constraints"]["enum"] == [1]


def test_what_the_service_offers_and_who_asks_can_be_read(custodian: Halftone):
    names = {one["name"] for one in custodian.synthesizers()}
    assert {"histogram", "independent", "mst"} <= names
    assert custodian.synthesizer("mst")["name"] == "mst"
    assert custodian.me()["name"] == "admin"
    assert "admin" in {one["name"] for one in custodian.principals()}

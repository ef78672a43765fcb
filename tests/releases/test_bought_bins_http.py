"""Quantile bins over HTTP: declared, costed, bought, certified and published."""

from __future__ import annotations

import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bookkeeping import store_no_rows
from release_world import World, world
from sqlalchemy import text

from app.database import Database
from app.engine.privacy.source import ArraySource
from app.engine.schema import PrivacyUnit, Schema
from app.sandbox.child import ChildHost
from app.storage.blobs import BlobStore

WAGES: dict[str, Any] = {
    "fields": [
        {
            "name": "wage",
            "type": "integer",
            "constraints": {"minimum": 0, "maximum": 1_000_000, "required": True},
            "bins": {"quantiles": 8},
            "special": [0],
        },
        {"name": "sex", "type": "string", "constraints": {"enum": ["f", "m"], "required": True}},
    ]
}
BUYERS = ["independent", "mst", "histogram"]


def wages(rows: int = 3000) -> ArraySource:
    rng = np.random.default_rng(3)
    schema = Schema.parse(WAGES)
    wage = np.minimum(rng.lognormal(10, 0.5, rows), 900_000).astype(np.int64)
    wage[: rows // 3] = schema.column("wage").regular
    return ArraySource(schema, PrivacyUnit("row"), {"wage": wage, "sex": wage % 2})


def asked(synthesizer: str, epsilon: str = "2") -> dict[str, Any]:
    return {"synthesizer": synthesizer, "guarantee": {"epsilon": epsilon, "delta": "1e-7"}}


def test_the_dictionary_tells_that_bins_are_bought(service: World) -> None:
    dataset = service.add_dataset(schema=WAGES)
    shown = service.custodian.get(f"/v1/datasets/{dataset}/schema").json()
    assert shown["fields"][0]["bins"] == {"quantiles": 8}


@pytest.mark.parametrize("synthesizer", BUYERS)
def test_a_release_buys_bins_within_its_guarantee(service: World, synthesizer: str) -> None:
    dataset = service.add_dataset(schema=WAGES)
    me = service.custodian
    me.post(f"/v1/datasets/{dataset}/releases", asked(synthesizer) | {"rows": 2000, "params": {}})
    release = service.run_fit(wages())
    answers = me.get(f"/v1/releases/{release}/measurements").json()["measurements"]
    histograms = [each for each in answers if "quantile" not in each]
    drawn = [each for each in answers if "quantile" in each]
    assert 5 <= len(drawn) <= 7
    assert {each["quantile"]["of"] for each in drawn} == {"wage"}
    assert drawn[0]["quantile"]["q"] == 0.5
    # Half of the wages lie between 15,700 and 30,900.
    assert 10_000 < int(drawn[0]["quantile"]["point"]) < 50_000
    assert [each["question"] for each in drawn] == list(range(2, 2 + len(drawn)))
    assert all(each["loss"] == histograms[0]["loss"] for each in drawn)
    assert all(0 < each["quantile"]["rank_error"] < 500 for each in drawn)
    spelled = me.get(f"/v1/releases/{release}/measurements?format=csv").text
    assert f',"[""wage""]","[""{drawn[0]["quantile"]["point"]}""]",' in spelled
    bins = next(axis["cells"] for axis in histograms[2]["columns"] if axis["name"] == "wage")
    assert bins[-1] == "0 (special)"
    edges = [int(re.match(r"\[?(\d+)", cell)[1]) for cell in bins[:-1]]  # type: ignore[index]
    # A million wide; half of the wages lie between 15,700 and 30,900.
    assert sum(10_000 < edge < 50_000 for edge in edges) >= 5


@pytest.mark.parametrize("synthesizer", BUYERS)
def test_preflight_knows_the_cost_without_the_data(service: World, synthesizer: str) -> None:
    dataset = service.add_dataset(schema=WAGES)
    BlobStore(service.database).write(dataset, "codes", [b"\x07" * 1000])
    path = f"/v1/datasets/{dataset}/releases/preflight"
    bodies = [asked(synthesizer) | {"params": {"bins_share": share}} for share in (0.1, 0.5, 1)]
    before = [service.custodian.post(path, body) for body in bodies]
    erase(service.database, dataset)
    after = [service.custodian.post(path, body) for body in bodies]
    assert [each.content for each in before] == [each.content for each in after]
    small, large, refused = (each.json() for each in before)
    assert small["fits"]
    assert small["charge"] == {"epsilon": "2", "delta": "0.0000001"}
    # The histograms have half of the budget in place of nine tenths.
    assert large["expected_error"] / small["expected_error"] == pytest.approx(1.8**0.5, rel=0.02)
    assert [each["pointer"] for each in refused["problems"]] == ["/params/bins_share"]


def test_who_does_not_buy_bins_asks_for_public_ones(service: World) -> None:
    dataset = service.add_dataset(schema=WAGES)
    path = f"/v1/datasets/{dataset}/releases/preflight"
    body = asked("aggregate_seeded")
    refused = service.custodian.post(path, body).json()
    assert [each["pointer"] for each in refused["problems"]] == ["/params/bins/wage"]
    public = service.custodian.post(path, body | {"params": {"bins": {"wage": 8}}}).json()
    assert public["fits"], public


def test_the_certificate_of_a_whole_release_lists_what_the_bins_cost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(8)
    rows = [f"{int(wage)},{'fm'[int(wage) % 2]}" for wage in rng.lognormal(10, 0.5, 1500)]
    table = "\n".join(["wage,sex", *rows, ""]).encode()
    spec = {
        "name": "wages",
        "visibility": "private",
        "schema": WAGES,
        "unit": {"kind": "row"},
        "max_total_rows": 5000,
        "budget": {"epsilon": 5, "delta": "0.00001"},
    }
    with world(tmp_path, monkeypatch) as service:
        host = ChildHost(service.settings)
        me = service.custodian
        dataset = me.post("/v1/datasets", spec).json()["id"]
        headers = {"Content-Type": "text/csv"}
        me.request("PUT", f"/v1/datasets/{dataset}/data", content=table, headers=headers)
        service.work(host)
        made = me.post(f"/v1/datasets/{dataset}/releases", asked("independent"))
        assert made.status_code == 202, made.text
        service.work(host)
        release = made.json()["id"]
        assert me.get(f"/v1/releases/{release}").json()["state"] == "succeeded"
        certificate = me.get(f"/v1/releases/{release}/certificate").json()
    bought = [each for each in certificate["mechanisms"] if each["columns"] == [["wage"]]]
    counts = [each for each in bought if each["mechanism"] == "histogram"]
    quantiles = [each for each in bought if each["mechanism"].startswith("quantile")]
    # Two counts find the median in a million codes, and a third is asked where a value may be
    # frequent; the others are the column's own, in bins and in pieces of bins.
    searched = len(counts) - 2
    assert 2 <= searched <= 3
    assert 5 <= len(quantiles) <= 7
    assert {each["noise"] for each in quantiles} == {"gumbel"}
    assert quantiles[0]["contributions"] == [{"rule": "rows", "number": "regular values"}]
    spent = sum(Decimal(each["loss"]["rho"]) for each in (*quantiles, *counts[:searched]))
    allowed = Decimal(certificate["session"]["allowed"]["rho"])
    assert float(spent / allowed) == pytest.approx(0.1 * (len(quantiles) + searched) / 10, rel=1e-6)


def erase(database: Database, dataset: str) -> None:
    BlobStore(database).delete(dataset)
    with database.write() as session:
        store_no_rows(session, dataset)
        session.execute(
            text(
                "UPDATE datasets SET rows = NULL, content_hmac = NULL, ingest_report = NULL,"
                " wrapped_key = NULL, staged = NULL WHERE id = :id"
            ),
            {"id": dataset},
        )

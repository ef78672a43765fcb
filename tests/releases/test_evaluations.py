"""Evaluations: charged as a release is, measured by the kernel, read with their error."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from release_world import BY_ROW, COLOURS, World, wanted, world
from sqlalchemy import select

from app.engine.marginals import Marginal
from app.engine.privacy.kernel import Kernel
from app.engine.privacy.queries import Count, Measurement
from app.engine.schema import Schema
from app.jobs import fit
from app.jobs.subjects import OUTCOMES
from app.queue import jobs
from app.queue.outcomes import report_ends
from app.releases.evaluations import distance
from app.releases.models import JournalRow
from app.sandbox.child import ChildHost

LARGE = {"epsilon": "200000"}
BUDGET = {"epsilon": "2000000", "delta": "0.0001"}
ROWS = "colour,size,day\n" + "red,1,2024-01-01\n" * 6 + "=green,2,2024-01-02\n" * 4


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    with world(tmp_path, monkeypatch) as made:
        yield made


@pytest.fixture
def host(service: World) -> ChildHost:
    return ChildHost(service.settings)


def uploaded(service: World, host: ChildHost, table: str = ROWS, **changes: Any) -> str:
    spec = {
        "name": "colours",
        "visibility": "private",
        "schema": BY_ROW,
        "unit": {"kind": "row"},
        "max_total_rows": 10_000,
        "budget": BUDGET,
        **changes,
    }
    at = f"/v1/datasets/{service.custodian.post('/v1/datasets', spec).json()['id']}"
    headers = {"Content-Type": "text/csv"}
    service.custodian.request("PUT", f"{at}/data", content=table.encode(), headers=headers)
    service.work(host)
    return at


def released(service: World, host: ChildHost, dataset: str, who: str, **changes: Any) -> str:
    body = wanted(**{"guarantee": LARGE, **changes})
    asked = service.client(who).post(f"{dataset}/releases", body)
    assert asked.status_code == 202, asked.text
    service.work(host)
    return f"/v1/releases/{asked.json()['id']}"


@pytest.fixture
def dataset(service: World, host: ChildHost) -> str:
    service.add_analyst("ana")
    made = uploaded(service, host)
    service.grant(made.rpartition("/")[2], "ana")
    return made


def evaluated(service: World, host: ChildHost, release: str, **changes: Any) -> dict[str, Any]:
    body = {"guarantee": LARGE, **changes}
    asked = service.client("ana").post(f"{release}/evaluations", body)
    assert asked.status_code == 202, asked.text
    at = asked.headers["Location"]
    service.work(host)
    found = service.client("ana").get(at).json()
    assert found["state"] == "succeeded", service.custodian.get(at).json()["private_detail"]
    assert found["evaluates"] == release.rpartition("/")[2]
    return dict(service.client("ana").get(f"{at}/evaluation").json())


def test_an_analyst_buys_the_distances_of_a_release(
    service: World, host: ChildHost, dataset: str
) -> None:
    # Noise of thousands of rows: the release's shares are far from the exact ones.
    release = released(service, host, dataset, "ana", guarantee={"epsilon": "0.001"}, rows=50)
    found = evaluated(service, host, release)
    report = service.custodian.post(f"{release}/report")
    assert report.status_code == 202
    service.work(host)
    exact = service.custodian.get(f"{release}/report").json()["exact"]
    assert found["rows"] == 10
    assert [each["columns"] for each in found["columns"]] == [["colour"], ["size"]]
    assert [each["columns"] for each in found["pairs"]] == [["colour", "size"]]
    for measured, real in zip(
        (*found["columns"], *found["pairs"]),
        (*exact["columns"], *exact["pairs"]["listed"]),
        strict=True,
    ):
        # Up to the rounding of references to 1/1024 of a row in each cell.
        assert measured["distance"] == pytest.approx(real["distance"], abs=0.01)
        low, high = measured["interval"]
        assert low - 0.01 <= real["distance"] <= high + 0.01
        assert high - low < 0.05


def test_an_evaluation_is_a_release_of_the_same_rows(
    service: World, host: ChildHost, dataset: str
) -> None:
    ana = service.client("ana")
    release = released(service, host, dataset, "ana", rows=20)
    before = ana.get(f"{dataset}/ledger").json()["items"]
    at = f"/v1/releases/{evaluated(service, host, release, pairs=[])['release_id']}"
    charged = [line for line in ana.get(f"{dataset}/ledger").json()["items"] if line not in before]
    assert [line["release_id"] for line in charged] == [at.rpartition("/")[2]]
    certificate = ana.get(f"{at}/certificate").json()
    assert certificate["synthesizer"]["evaluates"] == release.rpartition("/")[2]
    assert len(certificate["mechanisms"]) == 2
    assert certificate["assurance"] == "enforced"
    samples = [ana.get(each).json()["samples"][0]["id"] for each in (release, at)]
    rows = [ana.get(f"/v1/samples/{sample}/data?format=csv").content for sample in samples]
    assert rows[0] == rows[1]
    for part in ("measurements", "statement", "bundle", "report", "report?format=html"):
        assert ana.get(f"{at}/{part}").status_code == 200, part
    assert ana.get(f"{release}/evaluation").json()["title"]
    (line,) = charged
    assert line["detail"]["evaluates"] == release.rpartition("/")[2]
    assert ana.get(f"{release}/evaluation").status_code == 404
    assert ana.post(f"{at}/evaluations", {"guarantee": LARGE}).status_code == 409


def test_what_does_not_fit_is_refused_and_charges_nothing(
    service: World, host: ChildHost, dataset: str
) -> None:
    ana = service.client("ana")
    release = released(service, host, dataset, "ana")
    before = service.custodian.get(f"{dataset}/budget").json()["spent"]

    def refused(status: int, **changes: Any) -> Any:
        answer = ana.post(f"{release}/evaluations", {"guarantee": LARGE, **changes})
        assert answer.status_code == status, answer.text
        return answer.json()

    faults = refused(422, pairs=[["colour"], ["colour", "day"], ["size", "colour"]])["errors"]
    assert [fault["pointer"] for fault in faults] == ["/pairs/0", "/pairs/1"]
    assert refused(422, pear=[])["errors"][0]["pointer"] == "/pear"
    assert refused(409, guarantee={"epsilon": "1900000"})["scope"] == "account"
    assert service.custodian.get(f"{dataset}/budget").json()["spent"] == before
    service.add_analyst("eve")
    assert service.client("eve").post(f"{release}/evaluations", {}).status_code in (404, 422)
    body = {"guarantee": LARGE}
    assert service.client("eve").post(f"{release}/evaluations", body).status_code == 404


def test_a_repeated_request_is_charged_once(service: World, host: ChildHost, dataset: str) -> None:
    release = released(service, host, dataset, "ana")
    key, body = {"Idempotency-Key": "once"}, {"guarantee": {"epsilon": "1"}}
    first, again = (
        service.client("ana").post(f"{release}/evaluations", body, headers=key) for _ in range(2)
    )
    assert (first.status_code, again.status_code) == (202, 202)
    assert first.json()["id"] == again.json()["id"]
    assert again.headers["Idempotent-Replayed"] == "true"


def test_a_lost_workers_evaluation_is_replayed_without_new_noise(
    service: World, host: ChildHost, dataset: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = released(service, host, dataset, "ana")
    asked = service.client("ana").post(f"{release}/evaluations", {"guarantee": {"epsilon": "1"}})
    context = service.claim()
    with context.fenced() as session:
        OUTCOMES["fit"].started(session, context.subject_id)

    def lost(*_: Any) -> None:
        raise RuntimeError

    # The worker goes away after both answers were committed.
    monkeypatch.setattr(fit, "_publish", lost)
    with pytest.raises(RuntimeError):
        fit.run(context, host)
    monkeypatch.undo()

    def answers() -> list[bytes]:
        with service.database.read() as session:
            found = session.scalars(select(JournalRow).filter_by(release_id=asked.json()["id"]))
            return [row.answer for row in found]

    before = answers()
    assert len(before) == 2
    with service.database.write() as session:
        report_ends(session, jobs.expire_worker(session, "worker-1"), OUTCOMES)

    def answered(*_: Any) -> Any:
        raise AssertionError("the kernel answered again")

    monkeypatch.setattr(Kernel, "answer", answered)
    service.work(host)
    at = f"/v1/releases/{asked.json()['id']}"
    assert service.client("ana").get(at).json()["state"] == "succeeded"
    assert answers() == before


def test_entities_count_with_all_their_rows(service: World, host: ChildHost) -> None:
    table = "id,colour,size,day\n" + "".join(
        f"p{person},{colour},{person % 5},2024-01-01\n"
        for person in range(20)
        for colour in ("red", "=green")
    )
    unit = {"kind": "entity", "column": "id", "max_rows": 2}
    made = uploaded(service, host, table, schema=COLOURS, unit=unit)
    service.add_analyst("ana")
    service.grant(made.rpartition("/")[2], "ana")
    release = released(service, host, made, "ana", rows=40)
    found = evaluated(service, host, release)
    assert found["rows"] == 40
    assert all(each["distance"] < 0.02 for each in found["columns"])


def total(rows: int, error: float) -> Measurement:
    return Measurement(Count(), np.array(rows), "discrete gaussian", error, error, 1.0, 1.0)


def test_a_distance_and_its_interval_by_hand() -> None:
    column = Schema.parse(BY_ROW).column("colour")
    marginal = Marginal({"colour": column.grouping})
    exact = distance(marginal, 40.0, 0.0, total(100, 0.0))
    assert (exact.distance, exact.interval, exact.standard_error) == (0.2, [0.2, 0.2], 0.0)
    deviations = 1.959963984540054
    found = distance(marginal, 40.0, 2.0, total(100, 1.0))
    assert found.standard_error == 0.01
    low = (40 - 2 * deviations - deviations) / (2 * (100 + deviations))
    high = (40 + 2 * deviations + deviations) / (2 * (100 - deviations))
    assert found.interval == pytest.approx([low, high])
    # Of fewer rows than the noise nothing is known.
    assert distance(marginal, 3.0, 2.0, total(-4, 5.0)).interval == [0.0, 1.0]


def test_intervals_hold_the_exact_distance() -> None:
    """1,000 draws of noise, as the kernel draws it: at least the stated share of intervals."""
    rng = np.random.default_rng(0)
    shares, rows = np.array([0.5, 0.3, 0.2]), 500
    exact = np.array([300, 100, 100])
    real = np.abs(exact / rows - shares).sum() / 2
    marginal = Marginal({"colour": Schema.parse(BY_ROW).column("colour").grouping})
    held = 0
    for _ in range(1000):
        counted = total(round(rows + rng.normal(0, 6)), 6.0)
        value = np.abs(exact - float(counted.values) * shares).sum() + rng.normal(0, 4)
        low, high = distance(marginal, float(value), 4.0, counted).interval
        held += low <= real <= high
    assert held >= 900

"""The job of a report: fences, limits, encryption, and whose code sees what."""

from __future__ import annotations

import base64
import os
import time
from pathlib import Path
from typing import Any

import pytest
from plugin import write_plugin
from pydantic import SecretStr
from release_world import World, world
from reported import NOTICE, published, released, reported, uploaded
from sqlalchemy import select

from app.jobs import report
from app.jobs.subjects import OUTCOMES
from app.queue import jobs
from app.queue.context import JobContext
from app.queue.jobs import LeaseLost
from app.queue.models import JobRow
from app.queue.outcomes import report_ends
from app.releases.catalogue import Catalogue
from app.reports import exact
from app.sandbox.child import ChildHost
from app.storage.models import ChunkRow

ROWS = "colour,size,day\n" + "red,1,2024-01-01\n" * 6 + "=green,2,2024-01-02\n" * 4

STATING = '''
from app.engine.method import ExpectedError


class Stated(Model):
    def expected_errors(self):
        return (ExpectedError(("size",), 0.25, 0.9), ExpectedError(("colour", "size"), 7.5, 0.95))

    def combination_errors(self, real, synthetic):
        raise ValueError("a third party was shown exact rows")


class Synthesizer(Base):
    """States its errors, and would take exact rows if it were given any."""

    name = "stating"

    def fit(self, session, params, public, seed, progress):
        total(session, half(session))
        return Stated(session.schema, {})

    def load(self, schema, unit, data):
        return Stated(schema, json.loads(data))
'''


def claimed(service: World) -> JobContext:
    context = service.claim()
    assert context.kind == "report"
    return context


def test_a_lost_workers_report_is_made_by_another_and_the_late_one_stores_nothing(
    service: World, host: ChildHost
) -> None:
    release = published(service, uploaded(service, host, ROWS))
    service.custodian.post(f"{release}/report")
    late = claimed(service)
    with late.fenced() as session:
        OUTCOMES["report"].started(session, late.subject_id)
    with service.database.write() as session:
        report_ends(session, jobs.expire_worker(session, "worker-1"), OUTCOMES)
    with pytest.raises(LeaseLost):
        report.run(late, host)
    assert service.custodian.get(f"{release}/report").json()["exact"] is None
    service.work(host)
    assert service.custodian.get(f"{release}/report").json()["exact"]["notice"] == NOTICE


def test_a_report_whose_worker_is_lost_too_often_has_failed(
    service: World, host: ChildHost
) -> None:
    release = published(service, uploaded(service, host, ROWS))
    service.custodian.post(f"{release}/report")
    for _ in range(jobs.MOST_RERUNS + 1):
        claimed(service)
        with service.database.write() as session:
            report_ends(session, jobs.expire_worker(session, "worker-1"), OUTCOMES)
    found = service.custodian.get(f"{release}/report").json()
    assert found["state"] == "failed"
    assert found["private_detail"] == "The job's worker was lost too often."


def test_a_comparison_that_passes_its_limit_has_failed_for_good(
    service: World, host: ChildHost
) -> None:
    release = published(service, uploaded(service, host, ROWS))
    service.custodian.post(f"{release}/report")
    with service.database.write() as session:
        session.scalars(select(JobRow).filter_by(kind="report")).one().memory_bytes = 2**20

    def still_reading(*_: Any) -> list[int]:
        time.sleep(0.5)  # the watch looks every 0.2 s, and a stopped run has 0.7 s to end
        return [10]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exact.ExactRows, "_lengths", still_reading)
        service.work(host)
    found = service.custodian.get(f"{release}/report").json()
    assert (found["state"], found["exact"]) == ("failed", None)
    assert found["private_detail"] == "the job passed its memory limit"


def test_exact_figures_are_sealed_as_the_table_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = base64.b64encode(os.urandom(32)).decode()
    with world(tmp_path, monkeypatch, master_key=SecretStr(key)) as service:
        host = ChildHost(service.settings)
        release = published(service, uploaded(service, host, ROWS))
        assert reported(service, host, release)["exact"]["rows"]["real"] == 10
        with service.database.read() as session:
            (stored,) = session.scalars(select(ChunkRow.data).filter_by(part="exact"))
        assert b"notice" not in stored
        service.http.app.state.settings = service.settings.model_copy(update={"master_key": None})
        refused = service.custodian.get(f"{release}/report")
        assert refused.status_code == 409
        assert "another master key" in refused.json()["detail"]
        service.http.app.state.settings = service.settings


def test_a_third_party_states_its_errors_and_is_shown_no_exact_row(
    service: World,
    host: ChildHost,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = tmp_path_factory.mktemp("plugins")
    write_plugin(folder, "stating", STATING)
    monkeypatch.syspath_prepend(str(folder))
    dataset = uploaded(service, host, ROWS)
    service.http.app.state.catalogue = Catalogue(service.settings)
    release = released(service, host, dataset, synthesizer="stating", params={})
    found = reported(service, host, release)
    assert found["public"]["expected_errors"] == [
        {"columns": ["size"], "distance": 0.25, "confidence": 0.9},
        {"columns": ["colour", "size"], "distance": 1.0, "confidence": 0.95},
    ]
    exact_part = found["exact"]
    assert [each["exact"] for each in exact_part["expected"]] == [1.0, 1.0]  # its rows are all 0
    assert exact_part["combinations"] is None

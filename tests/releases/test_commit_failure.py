"""A commit that fails: 503, nothing charged, nothing lost, and the retry succeeds."""

from __future__ import annotations

import sqlite3
from typing import Any

import pytest
from release_world import World, colours, wanted


def commits_fail(monkeypatch: pytest.MonkeyPatch, service: World) -> None:
    def do_commit(_: Any) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(service.database.write_engine.dialect, "do_commit", do_commit)


def spent(service: World, dataset: str) -> str:
    problem = service.custodian.release(dataset, guarantee={"epsilon": "1000"}).json()
    return str(problem["spent"]["epsilon"])


def test_an_admission_that_cannot_be_committed_costs_nothing(
    service: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = service.add_dataset()
    path, headers = f"/v1/datasets/{dataset}/releases", {"Idempotency-Key": "k"}
    with monkeypatch.context() as patch:
        commits_fail(patch, service)
        answer = service.custodian.post(path, wanted(), headers=headers)
    assert answer.status_code == 503
    assert answer.headers["retry-after"]
    assert answer.json()["type"] == "/problems/unavailable"
    assert spent(service, dataset) == "0"
    assert service.custodian.get("/v1/releases").json()["items"] == []

    retry = service.custodian.post(path, wanted(), headers=headers)
    assert retry.status_code == 202
    assert "idempotent-replayed" not in retry.headers
    assert spent(service, dataset) == "1"
    assert service.run_fit(colours(200)) == retry.json()["id"]


def test_a_cancel_that_cannot_be_committed_refunds_nothing(
    service: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = service.add_dataset()
    release = service.custodian.release(dataset).json()["id"]
    with monkeypatch.context() as patch:
        commits_fail(patch, service)
        assert service.custodian.post(f"/v1/releases/{release}/cancel").status_code == 503
    assert service.custodian.get(f"/v1/releases/{release}").json()["state"] == "queued"
    assert spent(service, dataset) == "1"
    assert service.custodian.post(f"/v1/releases/{release}/cancel").json()["refunded"] is True
    assert spent(service, dataset) == "0"

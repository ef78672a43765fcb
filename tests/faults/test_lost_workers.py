"""Workers that are paused, stopped or killed under way, and servers that end beneath them."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from forge import Fault, Forge, Served, eventually, forge
from plugin import SLOW, write_plugin
from stored import Store

from app.engine.privacy.wire import unpack
from app.jobs import liveness


@pytest.fixture(scope="module")
def plugins(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("plugins")
    write_plugin(folder, "slow", SLOW)
    return folder


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, plugins: Path) -> Iterator[Forge]:
    with forge(tmp_path_factory.mktemp("lost"), [plugins]) as made:
        yield made


@pytest.fixture(scope="module")
def dataset(made: Forge) -> str:
    served, worker = made.serve(), made.work()
    dataset = served.add_dataset()
    worker.stop()
    served.process.stop()
    return dataset


@pytest.fixture
def store(made: Forge) -> Store:
    return Store(made.data)


@pytest.fixture
def served(made: Forge) -> Iterator[Served]:
    served = made.serve()
    yield served
    served.process.stop()


def slow(served: Served, dataset: str, wait_s: float) -> str:
    return served.release(dataset, synthesizer="slow", params={"wait_s": wait_s})


def until_asked(store: Store, release: str) -> None:
    eventually(lambda: store.journal(release), "the first answer")


def learned(store: Store, release: str) -> int:
    (model,) = store.rows(
        "SELECT data FROM chunks WHERE collection = ? AND part = 'model'", release
    )
    return int(json.loads(model[0])["total"])


def test_a_paused_worker_that_wakes_after_its_lease_stores_nothing(
    made: Forge, served: Served, dataset: str, store: Store
) -> None:
    short = {"lease_s": 2, "heartbeat_s": 0.5}
    drawn = Fault("app.engine.privacy.kernel:Kernel.answer", "after", deed=signal.SIGSTOP)
    paused = made.work(fault=drawn, **short)
    paused.arm()
    release = served.release(dataset)
    eventually(lambda: paused.stopped, "the worker to be paused")
    awake = made.work()
    assert served.ended(release)["state"] == "succeeded"
    assert store.job(release)["losses"] == 1
    awake.stop()
    before = store.digest()
    paused.signal(signal.SIGCONT)
    eventually(lambda: "LeaseLost" in paused.said(), "the paused worker to find its lease gone")
    assert store.digest() == before
    paused.stop()
    assert store.digest() == before


def test_a_server_and_its_workers_come_and_go_and_every_job_goes_on(
    made: Forge, dataset: str, store: Store
) -> None:
    served = made.serve(workers=1)
    release = slow(served, dataset, 3)
    until_asked(store, release)
    answered = store.journal(release)

    psutil.Process(worker_of(store, release)).kill()
    eventually(lambda: store.job(release)["claims"] == 2, "another worker to go on")
    worker = worker_of(store, release)
    served.process.signal(signal.SIGKILL)
    eventually(lambda: not psutil.pid_exists(worker), "the worker to end with its server")

    served = made.serve(workers=1)
    eventually(lambda: store.job(release)["claims"] == 3, "the next server to go on")
    served.process.stop()
    stopped = store.job(release)
    assert (stopped["state"], stopped["worker"]) == ("queued", None)
    assert stopped["losses"] <= 2

    served = made.serve(workers=1)
    assert served.ended(release)["state"] == "succeeded"
    assert store.journal(release) == answered
    served.process.stop()


def test_a_stopped_worker_lets_a_short_job_end(
    made: Forge, served: Served, dataset: str, store: Store
) -> None:
    worker = made.work(drain_s=30)
    release = slow(served, dataset, 0.5)
    until_asked(store, release)
    worker.stop()
    assert store.job(release)["state"] == "succeeded"


def test_a_worker_killed_again_and_again_learns_one_answer(
    made: Forge, served: Served, dataset: str, store: Store
) -> None:
    release = slow(served, dataset, 2)
    answers = set()
    for _ in range(3):
        worker = made.work()
        until_asked(store, release)
        eventually(lambda: store.job(release)["worker"] is not None, "the job to be claimed")
        answers.update(store.journal(release))
        worker.signal(signal.SIGKILL)
        worker.wait_until_gone()
        eventually(lambda: store.job(release)["worker"] is None, "the job to be queued again")
    last = made.work()
    assert served.ended(release)["state"] == "succeeded"
    answers.update(store.journal(release))
    assert len(answers) == 1
    ((_, _, answer),) = answers
    assert learned(store, release) == int(unpack(answer).arrays[0])
    assert store.job(release)["losses"] == 3
    last.stop()


def test_a_job_whose_worker_is_lost_too_often_has_failed_and_stays_charged(
    made: Forge, served: Served, dataset: str, store: Store
) -> None:
    spent = store.spent(dataset)
    release = slow(served, dataset, 60)
    for _ in range(4):
        worker = made.work()
        eventually(lambda: store.job(release)["worker"] is not None, "the job to be claimed")
        worker.signal(signal.SIGKILL)
        worker.wait_until_gone()
        eventually(lambda: store.job(release)["worker"] is None, "the job to be taken away")
    shown = served.ended(release)
    assert shown["state"] == "failed"
    assert len(store.journal(release)) <= 1
    assert store.spent(dataset) == (spent[0] + 10**12, 0) == store.charged(dataset)


def test_a_running_release_is_cancelled_within_two_seconds_and_stays_charged(
    made: Forge, served: Served, dataset: str, store: Store
) -> None:
    worker = made.work()
    spent = store.spent(dataset)
    release = slow(served, dataset, 60)
    until_asked(store, release)
    answer = served.http.post(f"/v1/releases/{release}/cancel")
    assert answer.json()["state"] == "cancelling"
    assert answer.json()["refunded"] is False
    ended = eventually(
        lambda: served.get(f"/releases/{release}")["state"] == "cancelled", "it to end", 2.0
    )
    assert ended
    assert served.get(f"/releases/{release}")["samples"] == []
    assert store.spent(dataset) == (spent[0] + 10**12, 0)
    assert worker.alive
    worker.stop()


def worker_of(store: Store, release: str) -> int:
    """Process id of the worker that runs a release."""
    name = store.job(release)["worker"]
    assert not liveness.is_dead(name)
    return int(name.rsplit(":", 2)[1])

"""The service as processes: what is printed, who runs beside it, how it ends."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import psutil
import pytest
from forge import ADMIN_KEY, Forge, Served, eventually, forge

from app.jobs.pool import environment_of
from app.settings import Settings


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory):
    with forge(tmp_path_factory.mktemp("serving")) as made:
        yield made


def test_a_server_says_where_it_listens_and_answers_there(made: Forge) -> None:
    served = made.serve()
    assert httpx.get(f"{served.url}/readyz").status_code == 200
    served.process.stop()
    assert "Traceback" not in served.process.said()


def test_the_first_start_prints_an_admin_key_once(tmp_path: Path) -> None:
    shown = re.compile(r"hk_[A-Za-z0-9_-]{32,}")
    with forge(tmp_path) as made:
        del made.settings["HALFTONE_ADMIN_KEY"]
        first = made.serve()
        (key,) = shown.findall(first.process.said())
        headers = {"Authorization": f"Bearer {key}"}
        assert httpx.get(f"{first.url}/v1/me", headers=headers).status_code == 200
        first.process.stop()
        second = made.serve()
        assert not shown.findall(second.process.said())
        second.process.stop()


def test_an_address_that_is_taken_is_told_plainly(made: Forge) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        process = made.start("serve", "--port", str(taken.getsockname()[1]))
        process.wait_until_gone()
    assert "cannot listen on 127.0.0.1" in process.said()
    assert "Traceback" not in process.said()


def test_an_open_address_without_tls_is_warned_of(made: Forge) -> None:
    process = made.start("serve", "--port", "0", "--host", "0.0.0.0")
    eventually(lambda: "Halftone is ready" in process.said(), "the server to start")
    assert "without TLS" in process.said()
    process.stop()


def test_the_log_is_emptied_at_the_end(made: Forge) -> None:
    served = made.serve()
    served.http.post("/v1/principals", json={"name": "Log", "roles": ["analyst"]})
    log = made.data / "halftone.sqlite-wal"
    served.process.stop()
    assert not log.exists() or log.stat().st_size == 0


def test_plain_uvicorn_serves_with_workers_and_ends_them(made: Forge) -> None:
    with socket.create_server(("127.0.0.1", 0)) as found:
        port = found.getsockname()[1]
    environment = {**os.environ, **made.settings, "HALFTONE_WORKERS": "1"}
    process = subprocess.Popen(
        [sys.executable, "-m", "uvicorn", "app.main:app", "--port", str(port)],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        url = f"http://127.0.0.1:{port}"
        eventually(lambda: answers(url), "uvicorn to serve")
        workers = [child for child in psutil.Process(process.pid).children() if is_worker(child)]
        assert len(workers) == 1
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)
    eventually(lambda: not workers[0].is_running(), "the worker to end")


def answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/healthz").status_code == 200
    except httpx.TransportError:
        return False


def is_worker(process: psutil.Process) -> bool:
    return "app.jobs.worker" in process.cmdline()


def test_a_worker_is_told_every_setting() -> None:
    chosen = Settings(data=Path("/somewhere"), declared=("one", "two"), admin_key=ADMIN_KEY)
    told = environment_of(chosen)
    assert told["HALFTONE_DATA"] == "/somewhere"
    assert told["HALFTONE_DECLARED"] == "one,two"
    assert told["HALFTONE_ADMIN_KEY"] == ADMIN_KEY
    assert "HALFTONE_MASTER_KEY" not in told


def test_a_table_and_a_release_go_all_the_way(made: Forge) -> None:
    served: Served = made.serve()
    worker = made.work()
    dataset = served.add_dataset()
    release = served.release(dataset)
    shown = served.ended(release)
    assert shown["state"] == "succeeded"
    more = served.http.post(f"/v1/releases/{release}/samples", json={"rows": 7, "seed": 1}).json()
    eventually(lambda: served.get(f"/samples/{more['id']}")["state"] == "succeeded", "the sample")
    text = served.http.get(f"/v1/samples/{more['id']}/data?format=csv").text
    assert len(text.splitlines()) == 8
    again = served.http.post(f"/v1/releases/{release}/samples", json={"rows": 7, "seed": 1}).json()
    eventually(lambda: served.get(f"/samples/{again['id']}")["state"] == "succeeded", "the sample")
    assert served.http.get(f"/v1/samples/{again['id']}/data?format=csv").text == text
    worker.stop()
    served.process.stop()

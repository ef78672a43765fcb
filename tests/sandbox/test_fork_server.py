"""The process from which synthesizers' processes are forked: they share nothing that matters."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from forge import eventually

from app.sandbox import forks
from app.sandbox.forks import fork_server
from app.sandbox.process import ChildProcess

PROBE = """
import json, random, socket, sys
import numpy as np

def main(descriptor):
    connection = socket.socket(fileno=descriptor)
    while order := connection.recv(65536):
        connection.sendall(json.dumps(globals()[order.decode()]()).encode())

def draw():
    return [random.random(), float(np.random.uniform())]

def threads():
    from threadpoolctl import threadpool_info
    return [each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"]

def modules():
    return sorted(sys.modules)

def version():
    return 1
"""


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], ChildProcess]]:
    (tmp_path / "third_party.py").write_text(PROBE)
    monkeypatch.syspath_prepend(str(tmp_path))
    started: list[ChildProcess] = []

    def start() -> ChildProcess:
        started.append(ChildProcess(module="third_party"))
        return started[-1]

    yield start
    for each in started:
        each.close()


def ask(child: ChildProcess, question: str) -> Any:
    child.connection.settimeout(20)
    child.connection.sendall(question.encode())
    return json.loads(child.connection.recv(65536))


def the_fork_server() -> psutil.Process:
    assert fork_server._process is not None
    return psutil.Process(fork_server._process.pid)


def test_processes_draw_different_random_numbers(start: Callable[[], ChildProcess]) -> None:
    first, second = (ask(start(), "draw") for _ in range(2))
    assert not set(first) & set(second)


def test_libraries_use_the_threads_that_the_operator_set(
    start: Callable[[], ChildProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    assert set(ask(start(), "threads")) == {1}
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "2")
    assert set(ask(start(), "threads")) == {2}


def test_a_third_partys_code_is_imported_in_each_process_anew(
    start: Callable[[], ChildProcess], tmp_path: Path
) -> None:
    first = start()
    assert ask(first, "version") == 1
    (tmp_path / "third_party.py").write_text(PROBE.replace("return 1", "return 20"))
    assert ask(start(), "version") == 20


def test_built_ins_are_there_and_the_service_is_not(start: Callable[[], ChildProcess]) -> None:
    modules = set(ask(start(), "modules"))
    assert {"app.engine.synthesizers.mst", "numba"} <= modules
    assert not modules & {"sqlalchemy", "app.settings", "app.engine.privacy.kernel"}


def test_the_fork_server_has_one_thread_and_no_descriptor_of_the_service(
    start: Callable[[], ChildProcess], tmp_path: Path
) -> None:
    with open(tmp_path / "held", "w"):
        assert ask(start(), "version") == 1
        server = the_fork_server()
        assert server.num_threads() == 1
        assert server.open_files() == []
        assert "HALFTONE" not in "".join(server.environ())


def test_a_process_outlives_the_thread_that_started_it(start: Callable[[], ChildProcess]) -> None:
    started: list[ChildProcess] = []
    thread = threading.Thread(target=lambda: started.append(start()))
    thread.start()
    thread.join()
    assert ask(started[0], "version") == 1


def test_a_dead_fork_server_is_started_again_and_its_processes_go_on(
    start: Callable[[], ChildProcess],
) -> None:
    first = start()
    server = the_fork_server()
    server.kill()
    second = start()
    assert the_fork_server() != server
    assert ask(first, "version") == ask(second, "version") == 1


def test_what_the_kernel_lacks_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(b'["PID namespaces: no more"]\n')
        forks._log_what_is_missing(ours)
    assert caplog.messages == ["synthesizers are not confined by PID namespaces: no more"]


def test_nothing_is_left_of_it_once_closed(start: Callable[[], ChildProcess]) -> None:
    child = start()
    assert ask(child, "version") == 1
    guard = psutil.Process(child.pid).parent()
    child.close()
    assert not psutil.pid_exists(child.pid)
    assert guard is not None
    eventually(lambda: not guard.is_running(), "the guard is reaped")

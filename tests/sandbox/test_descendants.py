"""What a synthesizer's process starts ends with it and counts with it, however it detaches.

Each test is run with a PID namespace, if this kernel gives one, and without.
"""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from forge import eventually

from app.sandbox.process import ChildProcess

MEMORY_BYTES = 512 * 2**20
DETACHING = """
import os, signal, socket, sys, time

def main(descriptor):
    connection = socket.socket(fileno=descriptor)
    while order := connection.recv(100):
        globals()[order.decode()]()
        connection.sendall(b"done")

def detached(then):
    reading, writing = os.pipe()
    middle = os.fork()
    if middle:
        os.close(writing)
        os.waitpid(middle, 0)
        return os.read(reading, 1)  # until nobody can write
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    os.setsid()
    if os.fork():
        os._exit(0)
    os.environ["MARK"] = sys.argv[0]
    then(writing)
    os._exit(0)

def sleep():
    detached(lambda writing: os.execvp("sleep", ["sleep", "600"]))

def grow():
    def hold(writing):
        held = b"x" * (200 * 2**20)
        os.close(writing)
        time.sleep(600)
    detached(hold)
    detached(hold)
    detached(hold)
    time.sleep(600)

def hop():
    def run(writing):
        os.close(writing)
        while True:
            if os.fork():
                os._exit(0)
    detached(run)

def multiply():
    for _ in range(600):
        if not os.fork():
            time.sleep(600)
    time.sleep(600)
"""


@dataclass
class Family:
    """A process, and those that descend from its guard, also detached ones."""

    child: ChildProcess
    guard: psutil.Process

    def ask(self, order: str) -> bytes:
        self.child.connection.settimeout(20)
        self.child.connection.sendall(order.encode())
        return self.child.connection.recv(100)

    def members(self) -> list[psutil.Process]:
        return self.guard.children(recursive=True)


@pytest.fixture(params=[True, False], ids=["namespace", "no namespace"])
def family(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Family]:
    (tmp_path / "detaching.py").write_text(DETACHING)
    monkeypatch.syspath_prepend(str(tmp_path))
    child = ChildProcess(module="detaching", memory_bytes=MEMORY_BYTES, own_namespace=request.param)
    guard = psutil.Process(child.pid).parent()
    assert guard is not None
    yield Family(child, guard)
    child.close()


def ended(processes: list[psutil.Process]) -> bool:
    return not any(each.is_running() for each in processes)


@pytest.mark.parametrize("end", ["close", "kill", "its own end"])
def test_a_detached_process_ends_with_the_one_that_started_it(family: Family, end: str) -> None:
    assert family.ask("sleep") == b"done"
    members = eventually(lambda: len(family.members()) == 2 and family.members(), "it to sleep")
    if end == "its own end":
        family.child.connection.shutdown(socket.SHUT_WR)
    else:
        getattr(family.child, end)()
    eventually(lambda: ended(members), "all to end")


def test_one_that_changes_its_id_all_the_time_ends_too(family: Family) -> None:
    assert family.ask("hop") == b"done"
    family.child.close()
    eventually(lambda: ended([family.guard]), "the guard to end, which it does last")


def test_memory_of_detached_processes_counts(family: Family) -> None:
    assert family.ask("grow") == b""
    assert "hold more than 512 MiB together" in family.child.output


def test_too_many_processes_are_ended(family: Family) -> None:
    assert family.ask("multiply") == b""


@pytest.mark.parametrize("own_namespace", [True, False])
def test_a_detached_process_ends_with_a_killed_service(
    tmp_path: Path, *, own_namespace: bool
) -> None:
    mark = str(uuid.uuid4())
    (tmp_path / "detaching.py").write_text(DETACHING.replace("sys.argv[0]", repr(mark)))
    script = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "from app.sandbox.process import ChildProcess\n"
        f"child = ChildProcess(module='detaching', own_namespace={own_namespace})\n"
        "child.connection.sendall(b'sleep'); child.connection.recv(100)\n"
        "print(flush=True); input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as service:
        assert service.stdout is not None
        service.stdout.readline()
        eventually(lambda: marked(mark), "it to sleep")
        service.kill()
    eventually(lambda: not marked(mark), "it to end")


def marked(mark: str) -> list[int]:
    found = []
    for each in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if each.environ().get("MARK") == mark:
                found.append(each.pid)
    return found

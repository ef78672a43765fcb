"""Synthesizers' processes: confined, limited, and gone when they should be."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from forge import confined

from app.engine.method import Limits
from app.engine.privacy.loss import PrivacyLoss
from app.engine.sandbox.protocol import Check, ReadForm
from app.engine.schema import PrivacyUnit, Schema
from app.sandbox import forks
from app.sandbox.child import ChildHost, ChildUnusable, of_the_store
from app.sandbox.process import ChildProcess
from app.settings import Settings

PROBE = """
import ctypes, errno, json, os, socket, subprocess, sys, threading, time

def main(descriptor):
    connection = socket.socket(fileno=descriptor)
    while received := connection.recv(65536):
        order = json.loads(received)
        connection.sendall(json.dumps(globals()[order["do"]](*order["with"])).encode())

def environment():
    return sorted(os.environ)

def read(path):
    try:
        return open(path, "rb").read().decode("utf-8", "replace")
    except OSError as error:
        return type(error).__name__

def connect(port):
    try:
        return bool(socket.create_connection(("127.0.0.1", port), 5))
    except OSError as error:
        return type(error).__name__

def open_socket(family, kind):
    try:
        socket.socket(getattr(socket, family), getattr(socket, kind)).close()
        return "opened"
    except OSError as error:
        return type(error).__name__

def look_into(pid):
    libc = ctypes.CDLL(None, use_errno=True)
    attached = libc.ptrace(16, pid, None, None)
    return errno.errorcode[ctypes.get_errno()] if attached else "attached"

def call(number, argument):
    libc = ctypes.CDLL(None, use_errno=True)
    failed = libc.syscall(number, argument, None, None, None, None) < 0
    return errno.errorcode[ctypes.get_errno()] if failed else "done"

def here():
    return os.listdir(".")

def descriptors():
    return [os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")
            if os.path.lexists(f"/proc/self/fd/{fd}")]

def allocate(size):
    try:
        return len(bytearray(size))
    except MemoryError:
        return "MemoryError"

def offspring():
    return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]).pid

def threads(count):
    started = [threading.Thread(target=time.sleep, args=(0.01,)) for _ in range(count)]
    for thread in started:
        thread.start()
    return sum(thread.join() is None for thread in started)

def shout(times):
    for _ in range(times):
        print("x" * 1000)
    return "done"
"""


MEMORY_BYTES = 512 * 2**20


@pytest.fixture
def probe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ChildProcess]:
    code = tmp_path / "code"
    code.mkdir()
    (code / "halftone_probe.py").write_text(PROBE)
    (code / "store").mkdir()
    (code / "store" / "halftone.sqlite").write_text("private rows")
    monkeypatch.syspath_prepend(str(code))
    monkeypatch.setenv("HALFTONE_MASTER_KEY", "a secret")
    child = ChildProcess(
        hidden=[code / "store"], module="halftone_probe", memory_bytes=MEMORY_BYTES
    )
    yield child
    child.close()


def ask(child: ChildProcess, do: str, *arguments: object) -> object:
    child.connection.settimeout(20)
    child.connection.sendall(json.dumps({"do": do, "with": arguments}).encode())
    return json.loads(child.connection.recv(65536))


needs_landlock = pytest.mark.skipif(not confined(), reason="the kernel has no Landlock")


def gone(pid: int, within_s: float = 5) -> bool:
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.02)
    return False


def test_a_process_may_start_threads_of_its_own(probe: ChildProcess) -> None:
    assert ask(probe, "threads", 2) == 2


def test_the_environment_holds_nothing_of_the_service(probe: ChildProcess) -> None:
    names = ask(probe, "environment")
    assert isinstance(names, list)
    assert not [name for name in names if "HALFTONE" in name or "KEY" in name]


def test_the_folder_is_empty(probe: ChildProcess) -> None:
    assert ask(probe, "here") == []


def test_no_file_of_the_service_is_open(probe: ChildProcess, tmp_path: Path) -> None:
    with open(tmp_path / "held", "w"):
        opened = ask(probe, "descriptors")
    assert isinstance(opened, list)
    assert not [target for target in opened if str(tmp_path) in target]


@needs_landlock
def test_the_store_cannot_be_read_though_it_lies_beside_the_code(
    probe: ChildProcess, tmp_path: Path
) -> None:
    assert ask(probe, "read", str(tmp_path / "code" / "store" / "halftone.sqlite")) == (
        "PermissionError"
    )


@needs_landlock
def test_the_workers_environment_cannot_be_read(probe: ChildProcess) -> None:
    assert ask(probe, "read", f"/proc/{os.getpid()}/environ") == "PermissionError"


@needs_landlock
def test_there_is_no_network(probe: ChildProcess) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        assert ask(probe, "connect", listener.getsockname()[1]) == "PermissionError"


NEW_USER_NAMESPACE = 0x10000000
CALLS = {
    "x86_64": {"unshare": 272, "clone": 56, "clone3": 435, "mount": 165},
    "aarch64": {"unshare": 97, "clone": 220, "clone3": 435, "mount": 40},
}.get(os.uname().machine, {})
needs_seccomp = pytest.mark.skipif(
    not Path("/proc/sys/kernel/seccomp").exists(), reason="the kernel has no seccomp"
)


@needs_seccomp
@pytest.mark.parametrize("kind", ["SOCK_DGRAM", "SOCK_STREAM", "SOCK_RAW"])
@pytest.mark.parametrize("family", ["AF_INET", "AF_INET6", "AF_NETLINK"])
def test_no_socket_opens_that_leads_out(probe: ChildProcess, family: str, kind: str) -> None:
    assert ask(probe, "open_socket", family, kind) == "PermissionError"


@needs_seccomp
def test_local_sockets_open_as_libraries_need_them(probe: ChildProcess) -> None:
    assert ask(probe, "open_socket", "AF_UNIX", "SOCK_STREAM") == "opened"


@needs_seccomp
@pytest.mark.parametrize("name", ["unshare", "clone", "clone3", "mount"])
def test_it_gets_no_namespace_and_no_mount(probe: ChildProcess, name: str) -> None:
    refusal = "ENOSYS" if name == "clone3" else "EPERM"
    assert ask(probe, "call", CALLS[name], NEW_USER_NAMESPACE) == refusal


def test_it_has_no_capability(probe: ChildProcess) -> None:
    status = str(ask(probe, "read", "/proc/self/status"))
    sets = re.findall(r"^Cap(?:Inh|Prm|Eff|Amb):\s*(\w+)$", status, re.MULTILINE)
    assert len(sets) == 4
    assert {int(each, 16) for each in sets} == {0}


@needs_seccomp
def test_it_attaches_to_no_process(probe: ChildProcess) -> None:
    assert ask(probe, "look_into", os.getpid()) == "EPERM"


def test_the_working_folder_is_left_out_where_python_put_it_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = tmp_path / "named"
    named.mkdir()
    monkeypatch.chdir(tmp_path)
    for first in ("", str(tmp_path)):
        monkeypatch.setattr("sys.path", [first, str(named), *sys.path])
        imported_from = forks.import_from()
        assert tmp_path not in imported_from
        assert imported_from[0] == named
        assert forks.CODE in imported_from


@needs_landlock
def test_a_store_elsewhere_is_hidden_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = tmp_path / "code"
    code.mkdir()
    (code / "halftone_probe.py").write_text(PROBE)
    (code / "kept.sqlite").write_text("private rows")
    (code / "kept.sqlite-wal").write_text("private rows")
    monkeypatch.syspath_prepend(str(code))
    settings = Settings(data=tmp_path / "data", database_url=f"sqlite:///{code}/kept.sqlite")
    for name in ("kept.sqlite", "kept.sqlite-wal"):
        child = ChildProcess(hidden=of_the_store(settings), module="halftone_probe")
        try:
            assert ask(child, "read", str(code / name)) == "PermissionError"
        finally:
            child.close()


def test_a_worker_closes_its_memory() -> None:
    script = "import ctypes; from app.jobs.memory import close_memory; close_memory();"
    told = subprocess.run(
        [sys.executable, "-c", f"{script} print(ctypes.CDLL(None).prctl(3, 0, 0, 0, 0))"],
        capture_output=True,
        check=True,
        text=True,
    )
    assert told.stdout.strip() == "0"


def test_memory_ends_at_a_wall(probe: ChildProcess) -> None:
    assert ask(probe, "allocate", 2 * MEMORY_BYTES) == "MemoryError"


def test_what_it_prints_is_kept_to_a_limit(probe: ChildProcess) -> None:
    assert ask(probe, "shout", 2000) == "done"
    probe.connection.shutdown(socket.SHUT_WR)
    assert probe.connection.recv(1) == b""
    probe.close()
    assert 0 < len(probe.output) <= 16 * 1024


def test_killing_it_kills_what_it_started(probe: ChildProcess) -> None:
    ask(probe, "offspring")
    (started,) = psutil.Process(probe.pid).children()
    probe.kill()
    assert gone(started.pid)


def test_killing_it_wakes_who_waits_for_it(probe: ChildProcess) -> None:
    probe.kill()
    assert probe.connection.recv(1) == b""


def test_it_dies_with_its_parent(tmp_path: Path) -> None:
    (tmp_path / "sleeper.py").write_text("import time\ndef main(fd): time.sleep(600)\n")
    script = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "from app.sandbox.process import ChildProcess\n"
        "print(ChildProcess(module='sleeper').pid, flush=True); input()"
    )
    # Not a fork of this process, which may have threads by then.
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert not gone(child, within_s=0.1)
        parent.kill()
    assert gone(child)


SCHEMA = Schema.parse(
    {"fields": [{"name": "colour", "type": "string", "constraints": {"enum": ["red", "blue"]}}]}
)


def check_request(form: dict[str, object]) -> Check:
    return Check(
        "histogram",
        form,
        SCHEMA,
        PrivacyUnit.parse({"kind": "row"}),
        PrivacyLoss.pure(10**12),
        None,
        Limits(1000, None, 2**30, 60),
    )


def test_a_host_describes_and_checks_in_a_process() -> None:
    host = ChildHost(Settings())
    assert host.describe("histogram").name == "histogram"
    with host.checks() as asked:
        assert asked.read_form(ReadForm("histogram", {}, SCHEMA)).params is not None
        assert asked.check(check_request({})).cells == 3  # red, blue and null
        assert asked.read_form(ReadForm("histogram", {"unknown": 1}, SCHEMA)).params is None


def test_an_unknown_synthesizer_is_unusable() -> None:
    with pytest.raises(ChildUnusable):
        ChildHost(Settings()).describe("nothing_of_that_name")


def test_a_slow_answer_is_cut_short() -> None:
    begun = time.monotonic()
    with pytest.raises(ChildUnusable):
        ChildHost(Settings(check_time_limit_s=0.0001)).describe("histogram")
    assert time.monotonic() - begun < 5

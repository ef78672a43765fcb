"""Virtualenvs apart from the checkout, and services that run from them."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
# A method of one module, put among those of the installed copy.
METHOD = Path(__file__).with_name("evenly.py")
KEY = "hk_" + "0123456789abcdef" * 3
START_S = 60
STOP_S = 20
READY = "from app.engine import compiled; compiled.get_ready()"


def run(*command: str | Path, cwd: Path, env: dict[str, str] | None = None) -> str:
    """What the command prints; fails the test with all of its output if it fails."""
    ended = subprocess.run(
        command, cwd=cwd, env=env, capture_output=True, text=True, timeout=300, check=False
    )
    assert ended.returncode == 0, f"{command}\n{ended.stdout}\n{ended.stderr}"
    return ended.stdout


def plain_environment() -> dict[str, str]:
    """The environment without what would lead Python elsewhere, or make it compile anew."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTHON", "HALFTONE_"))
    }


@dataclass(frozen=True, slots=True)
class Virtualenv:
    """An interpreter of its own, started where nothing of the checkout can be imported."""

    folder: Path

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    def install(self, *what: str | Path) -> None:
        uv = [sys.executable, "-m", "uv", "pip", "install", "-q", "--python", self.python]
        run(*uv, *what, cwd=self.folder)

    def run(self, *arguments: str | Path) -> str:
        return run(self.python, *arguments, cwd=self.folder, env=plain_environment())

    def can_import(self, module: str) -> bool:
        code = f"import importlib.util as u; print(u.find_spec({module!r}) is not None)"
        return self.run("-c", code).strip() == "True"


@dataclass(frozen=True, slots=True)
class Live:
    """A service that runs, and the key of its first principal."""

    base_url: str
    key: str
    store: Path

    def get(self, path: str) -> httpx.Response:
        headers = {"Authorization": f"Bearer {self.key}"}
        return httpx.get(self.base_url + path, headers=headers, timeout=30)


def bring_machine_code(env: Virtualenv) -> None:
    """Store beside the installed service the compiled loops that are stored beside the checkout.

    `python -m app.engine.warming` in the virtualenv would make the same, in half a minute.
    """
    installed = Path(env.run("-c", "import app; print(app.__path__[0])").strip())
    for stored in (REPOSITORY / "app").rglob("__pycache__/*.nb[ic]"):
        folder = stored.parents[1]
        module = folder / f"{stored.name.partition('.')[0]}.py"
        if not module.exists():
            continue  # Numba keeps the machine code of a module that has gone or was renamed.
        copy = installed / module.relative_to(REPOSITORY / "app")
        assert copy.read_bytes() == module.read_bytes()
        # Numba knows a source by its time and size. The file is one of uv's cache, so that its
        # time is not changed in place.
        copy.unlink()
        shutil.copy2(module, copy)
        (copy.parent / "__pycache__").mkdir(exist_ok=True)
        shutil.copy2(stored, copy.parent / "__pycache__")


def keep_bytecode(env: Virtualenv) -> None:
    """Compile what synthesizers' processes import, which may write nothing themselves."""
    env.run("-c", "from app.engine.catalog import registry as r; r.import_built_ins()\n" + READY)


@contextmanager
def serving(env: Virtualenv, store: Path) -> Iterator[Live]:
    """`halftone serve` from a virtualenv, over a new store, stopped in the end."""
    port = free_port()
    log = store.with_suffix(".log")
    with log.open("wb") as output:
        process = subprocess.Popen(
            [env.folder / "bin" / "halftone", "serve", "--port", str(port)],
            cwd=env.folder,
            env={**plain_environment(), "HALFTONE_DATA": str(store), "HALFTONE_ADMIN_KEY": KEY},
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            live = Live(f"http://127.0.0.1:{port}", KEY, store)
            wait_until_ready(live, process, log)
            yield live
        finally:
            stop(process)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_until_ready(live: Live, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            if live.get("/readyz").is_success:
                return
        except httpx.TransportError:
            time.sleep(0.1)
    pytest.fail(f"the service did not start:\n{log.read_text()}")


def stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(STOP_S)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()

"""Built distributions, each installed into a virtualenv of its own."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from installed import (
    METHOD,
    REPOSITORY,
    Live,
    Virtualenv,
    bring_machine_code,
    keep_bytecode,
    run,
    serving,
)


@pytest.fixture(scope="module")
def make_virtualenv(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Virtualenv]:
    """Makes an empty virtualenv on each call."""

    def make() -> Virtualenv:
        folder = tmp_path_factory.mktemp("venv")
        made = [sys.executable, "-m", "uv", "venv", "-q", "--clear", "--python", sys.executable]
        run(*made, folder, cwd=folder)
        return Virtualenv(folder)

    return make


@pytest.fixture(scope="module")
def wheel_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Builds the wheel of a project folder of the checkout."""
    built: dict[str, Path] = {}

    def build(project: str) -> Path:
        if project not in built:
            folder = tmp_path_factory.mktemp("dist")
            command = [sys.executable, "-m", "uv", "build", "-q", "--wheel"]
            command += ["--no-build-isolation", "--python", sys.executable]
            run(*command, "--out-dir", folder, REPOSITORY / project, cwd=folder)
            (built[project],) = folder.glob("*.whl")
        return built[project]

    return build


@pytest.fixture(scope="module")
def service_env(
    make_virtualenv: Callable[[], Virtualenv], wheel_of: Callable[[str], Path]
) -> Virtualenv:
    """The service's wheel with its locked requirements, and nothing else."""
    env = make_virtualenv()
    env.install("--require-hashes", "-r", REPOSITORY / "requirements-server.lock")
    env.install("--no-deps", wheel_of("."))
    bring_machine_code(env)
    keep_bytecode(env)
    return env


@pytest.fixture(scope="module")
def live(
    service_env: Virtualenv,
    wheel_of: Callable[[str], Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Live]:
    """A service with the example plug-in beside it, and one module more among its methods."""
    service_env.install("--no-deps", wheel_of("examples/plugin"))
    where = "import app.engine.synthesizers as methods; print(methods.__path__[0])"
    methods = Path(service_env.run("-c", where).strip())
    assert methods.is_relative_to(service_env.folder)
    (methods / METHOD.name).write_bytes(METHOD.read_bytes())
    with serving(service_env, tmp_path_factory.mktemp("live") / "store") as running:
        yield running

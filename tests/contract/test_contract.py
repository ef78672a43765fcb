"""The service keeps to its own description, whatever is sent: Schemathesis on a live server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import httpx
import pytest
from api_story import SPEC, Recorder, told, without_workers
from serving import ADMIN_KEY

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
    "ignored_auth",
)
EXAMPLES_OF_AN_OPERATION = 6
HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Run:
    """What came of it: the exit status, what was printed, and every status by operation."""

    exit_status: int
    printed: str
    answers: dict[str, set[int]]
    cases: int
    described: set[str]
    recorder: Recorder


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    folder = tmp_path_factory.mktemp("contract")
    story, statuses = folder / "story.json", folder / "statuses.txt"
    # Nobody reads what the jobs of generated requests come to, and each would take a process.
    made, recorder = told(folder / "store")
    with without_workers(folder / "store") as live:
        seed = {"url": live.url, "key": ADMIN_KEY, "story": asdict(made), "spec": SPEC}
        story.write_text(json.dumps(seed))
        statuses.touch()
        document = httpx.get(f"{live.url}/openapi.json").raise_for_status().json()
        environment = {
            **os.environ,
            "SCHEMATHESIS_HOOKS": "schemathesis_hooks",
            "PYTHONPATH": str(HERE),
            "HALFTONE_CONTRACT_STORY": str(story),
            "HALFTONE_CONTRACT_STATUSES": str(statuses),
        }
        finished = subprocess.run(
            [
                *(sys.executable, "-m", "schemathesis.cli"),
                *("--config-file", str(HERE / "schemathesis.toml")),
                *("run", f"{live.url}/openapi.json"),
                *("--header", f"Authorization: Bearer {ADMIN_KEY}"),
                *("--checks", ",".join(CHECKS)),
                *("--phases", "examples,coverage,fuzzing"),
                *("--max-examples", str(EXAMPLES_OF_AN_OPERATION)),
                *("--generation-deterministic", "--no-color"),
            ],
            env=environment,
            cwd=folder,
            capture_output=True,
            text=True,
        )
        lines = [line.split() for line in statuses.read_text().splitlines()]
        answers: dict[str, set[int]] = defaultdict(set)
        for operation, status in lines:
            answers[operation].add(int(status))
        yield Run(
            finished.returncode,
            finished.stdout + finished.stderr,
            answers,
            len(lines),
            set(operations_of(document)),
            recorder,
        )


def operations_of(document: dict[str, Any]) -> list[str]:
    return [
        operation["operationId"]
        for methods in document["paths"].values()
        for operation in methods.values()
    ]


def test_schemathesis_finds_nothing(run: Run) -> None:
    assert run.exit_status == 0, run.printed
    assert run.cases > 1000


def test_every_operation_succeeded_at_least_once(run: Run) -> None:
    succeeded = {name for name, seen in run.answers.items() if any(s // 100 == 2 for s in seen)}
    assert succeeded == run.described


def test_the_story_uses_every_operation(run: Run) -> None:
    assert set(run.recorder.found) == run.described


def test_the_examples_of_the_page_are_what_the_service_answers(run: Run) -> None:
    """If this fails, record them anew: see api_story.py."""
    recorded = json.loads(files("app.routers").joinpath("examples.json").read_text("utf-8"))
    assert shapes(recorded) == shapes(run.recorder.found)


def shapes(exchanges: dict[str, Any]) -> set[tuple[str, str, str, tuple[str, ...]]]:
    """Operation, status, media type and members of each answer."""
    return {
        (operation, status, kind, tuple(sorted(body)) if isinstance(body, dict) else ())
        for operation, exchange in exchanges.items()
        for status, answers in exchange["responses"].items()
        for kind, body in answers.items()
    }

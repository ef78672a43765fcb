"""The commands of the tutorials and the scripts of the examples, as they stand there."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest
from serving import ADMIN_KEY, LiveServer, serving

EXAMPLES = Path(__file__).parents[2] / "examples"
TUTORIALS = Path(__file__).parents[2] / "docs" / "tutorial"
STARTS_THE_SERVER, RUNS_ANOTHER_SCRIPT = "make serve", "examples/tour_httpx.py"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    settings = {"HALFTONE_PUBLIC_CATALOGUE": "true"}
    with serving(tmp_path_factory.mktemp("store") / "store", settings) as running:
        yield running


def blocks(page: str, language: str = "") -> list[str]:
    """All but the one that starts the service, which is started here, and the script's."""
    text = (TUTORIALS / page).read_text()
    found = re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.M)
    return [
        block
        for block in found
        if STARTS_THE_SERVER not in block and RUNS_ANOTHER_SCRIPT not in block
    ]


def walk(server: LiveServer, folder: Path, command: list[str], script: list[str]) -> str:
    """What the commands print when they are typed one after the other in this folder."""
    done = subprocess.run(
        command,
        input="\n".join(script).replace("http://127.0.0.1:8000", server.url),
        cwd=folder,
        env={**os.environ, "HALFTONE_ADMIN_KEY": ADMIN_KEY},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def has_json_option() -> bool:
    """`curl --json` came with 7.82."""
    if shutil.which("curl") is None:
        return False
    told = subprocess.run(["curl", "--version"], capture_output=True, text=True, check=True).stdout
    version = re.match(r"curl (\d+)\.(\d+)", told)
    return version is not None and (int(version[1]), int(version[2])) >= (7, 82)


@pytest.mark.skipif(not has_json_option(), reason="needs curl 7.82, as the page says")
def test_the_tour_can_be_walked_by_pasting_its_blocks_in_order(
    server: LiveServer, tmp_path: Path
) -> None:
    walked = blocks("tour.md")
    assert len(walked) >= 9
    look_back = 'curl -s -H "$AUTH" "$URL/v1/releases?dataset=$DATASET" > releases.json\n'
    told = walk(server, tmp_path, ["bash", "-s"], ["set -e", *walked, look_back])
    assert len(pd.read_csv(tmp_path / "synthetic.csv")) == 5000
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["state"] == "succeeded"
    releases = json.loads((tmp_path / "releases.json").read_text())["items"]
    assert sorted(each["synthesizer"] for each in releases) == ["independent", "mst"]
    refused = re.findall(r'"status": ?(\d+)', told)
    assert refused == ["409", "409"], told
    assert '"scope":"grant"' in told.replace(": ", ":")


@pytest.mark.skipif(shutil.which("curl") is None, reason="the page uses curl")
def test_five_minutes_can_be_walked_in_the_shell_and_then_in_python(
    server: LiveServer, tmp_path: Path
) -> None:
    makes_the_table, *with_curl = blocks("five-minutes.md")
    assert len(with_curl) == 2
    shell = ["set -e", makes_the_table, *with_curl, makes_the_table]
    assert '"mechanisms"' in walk(server, tmp_path, ["bash", "-s"], shell)
    assert len(pd.read_csv(tmp_path / "synthetic.csv")) == 5000

    looks = 'print(len(frame), cost["fits"], release["synthesizer"])'
    python = [*blocks("five-minutes.md", "python"), looks]
    refused, made = walk(server, tmp_path, [sys.executable, "-"], python).splitlines()[-2:]
    assert "rho" in refused
    assert made == "5000 True histogram"


@pytest.mark.parametrize("script", ["publication_httpx.py", "publication_client.py"])
def test_a_release_is_published_found_shared_and_audited_by_four_people(
    server: LiveServer, tmp_path: Path, script: str
) -> None:
    done = subprocess.run(
        [sys.executable, EXAMPLES / script, server.url, ADMIN_KEY],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    people = [line.split(":")[0] for line in done.stdout.splitlines()]
    assert people == ["custodian", "stranger", "analyst", "auditor"]
    assert "<svg" in (tmp_path / "report.html").read_text()
    assert "mst" in (tmp_path / "statement.html").read_text()

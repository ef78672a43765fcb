"""The shell of docs/tutorial/tour.md, block after block, as it stands there."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pandas as pd
import pytest
from serving import ADMIN_KEY, serving

PAGE = (Path(__file__).parents[2] / "docs" / "tutorial" / "tour.md").read_text()
STARTS_THE_SERVER, RUNS_ANOTHER_SCRIPT = "make serve", "examples/tour_httpx.py"


def blocks() -> list[str]:
    """All but the one that starts the service, which is started here, and the script's."""
    found = re.findall(r"^```\n(.*?)^```$", PAGE, re.DOTALL | re.M)
    return [
        block
        for block in found
        if STARTS_THE_SERVER not in block and RUNS_ANOTHER_SCRIPT not in block
    ]


def has_json_option() -> bool:
    """`curl --json` came with 7.82."""
    if shutil.which("curl") is None:
        return False
    told = subprocess.run(["curl", "--version"], capture_output=True, text=True, check=True).stdout
    version = re.match(r"curl (\d+)\.(\d+)", told)
    return version is not None and (int(version[1]), int(version[2])) >= (7, 82)


@pytest.mark.skipif(not has_json_option(), reason="needs curl 7.82, as the page says")
def test_the_tour_can_be_walked_by_pasting_its_blocks_in_order(tmp_path: Path) -> None:
    walked = blocks()
    assert len(walked) >= 9
    with serving(tmp_path / "store") as server:
        script = "\n".join(["set -e", *walked]).replace("http://127.0.0.1:8000", server.url)
        script += '\ncurl -s -H "$AUTH" $URL/v1/releases > releases.json\n'
        done = subprocess.run(
            ["bash", "-s"],
            input=script,
            cwd=tmp_path,
            env={**os.environ, "HALFTONE_ADMIN_KEY": ADMIN_KEY},
            capture_output=True,
            text=True,
            timeout=240,
        )
    assert done.returncode == 0, done.stderr
    assert len(pd.read_csv(tmp_path / "synthetic.csv")) == 5000
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["state"] == "succeeded"
    releases = json.loads((tmp_path / "releases.json").read_text())["items"]
    assert sorted(each["synthesizer"] for each in releases) == ["independent", "mst"]
    refused = re.findall(r'"status": ?(\d+)', done.stdout)
    assert refused == ["409", "409"], done.stdout
    assert '"scope":"grant"' in done.stdout.replace(": ", ":")

"""The commands of docs/tutorial/five-minutes.md, shell and then Python, as they stand there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from serving import ADMIN_KEY, serving

PAGE = (Path(__file__).parents[2] / "docs" / "tutorial" / "five-minutes.md").read_text()
STARTS_THE_SERVER = "make serve"


def blocks(language: str) -> list[str]:
    """All but the one that starts the service, which is started here."""
    found = re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.DOTALL | re.M)
    return [block for block in found if STARTS_THE_SERVER not in block]


@pytest.mark.skipif(shutil.which("curl") is None, reason="the page uses curl")
def test_five_minutes_can_be_walked_by_pasting_their_blocks_in_order(tmp_path: Path) -> None:
    makes_the_table, *with_curl = blocks("")
    assert len(with_curl) == 2
    with serving(tmp_path / "store") as server:

        def done(command: list[str], script: list[str]) -> str:
            ran = subprocess.run(
                command,
                input="\n".join(script).replace("http://127.0.0.1:8000", server.url),
                cwd=tmp_path,
                env={**os.environ, "HALFTONE_ADMIN_KEY": ADMIN_KEY},
                capture_output=True,
                text=True,
                timeout=120,
            )
            assert ran.returncode == 0, ran.stderr
            return ran.stdout

        told = done(["bash", "-s"], ["set -e", makes_the_table, *with_curl, makes_the_table])
        assert '"mechanisms"' in told
        assert len(pd.read_csv(tmp_path / "synthetic.csv")) == 5000
        checks = 'print(len(frame), release["state"])'
        refused, told = done([sys.executable, "-"], [*blocks("python"), checks]).splitlines()[-2:]
    assert "epsilon" in refused or "rho" in refused
    assert told.split()[0] == "5000"
    assert told.split()[1] in ("queued", "running", "succeeded")

"""`make demo`, after its installation."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pandas as pd

DEMO = Path(__file__).parents[2] / "examples" / "demo.py"


def test_the_demo_runs_to_its_end_and_leaves_what_an_analyst_gets(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(DEMO)], cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "How near the synthetic columns are" in done.stdout
    output = tmp_path / "demo-output"
    assert len(pd.read_csv(output / "synthetic.csv")) > 1000
    assert json.loads((output / "measurements.json").read_text())["measurements"]
    assert json.loads((output / "certificate.json").read_text())["mechanisms"]

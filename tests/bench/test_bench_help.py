"""Every bench that can be run tells how, by `--help`, before it reads or starts anything."""

import runpy
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
STARTED_BY_BENCHES = {
    "bench/aggregates/peer.py",
    "bench/service/noop.py",
    "bench/synthesizers/peers/run_dpmm.py",
    "bench/synthesizers/peers/run_smartnoise.py",
}
"""A server, and programs that run in the virtualenvs of other packages."""

RUNNABLE = {
    str(path.relative_to(ROOT))
    for path in (ROOT / "bench").rglob("*.py")
    if path.name == "__main__.py" or 'if __name__ == "__main__":' in path.read_text()
}


def test_what_benches_start_is_among_what_can_be_run():
    assert STARTED_BY_BENCHES < RUNNABLE


@pytest.mark.parametrize("path", sorted(RUNNABLE - STARTED_BY_BENCHES))
def test_help_ends_well_and_names_the_command(path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [path, "--help"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(ROOT / path), run_name="__main__")
    assert ended.value.code == 0
    module = path.removesuffix(".py").removesuffix("/__main__").replace("/", ".")
    assert f"usage: python -m {module} " in capsys.readouterr().out

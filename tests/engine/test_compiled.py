"""Compiled loops are stored at set-up and found by processes that can store nothing."""

import importlib.util
import subprocess
import sys
from pathlib import Path

from app.engine.warming import warm

COUNT_MISSES = """
import gc
from numba.core.dispatcher import Dispatcher
from app.engine.warming import warm
warm()
loops = [each for each in gc.get_objects() if isinstance(each, Dispatcher)]
used = [each.stats for each in loops if each.py_func.__module__.startswith("app.")]
print(
    sum(sum(each.cache_hits.values()) for each in used),
    sum(sum(each.cache_misses.values()) for each in used),
)
"""

LOOP = """
from app.engine.compiled import compiled

@compiled
def twice(number):
    return 2 * number
"""


def test_what_set_up_stored_is_compiled_by_no_later_process() -> None:
    assert {"aggregate_seeded", "mst"} <= set(warm())
    told = subprocess.run(
        [sys.executable, "-c", COUNT_MISSES], capture_output=True, text=True, check=True
    )
    hits, misses = map(int, told.stdout.split())
    assert hits > 10
    assert misses == 0


def test_a_loop_that_cannot_be_stored_runs_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "loops.py").write_text(LOOP)
    (tmp_path / "__pycache__").write_text("in the way of a folder")
    spec = importlib.util.spec_from_file_location("loops", tmp_path / "loops.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.twice(21) == 42

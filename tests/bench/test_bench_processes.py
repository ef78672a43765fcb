"""Seconds and peak memory of processes."""

import subprocess
import sys
import time

import pytest

from bench.synthesizers.implementations import RunFailed
from bench.synthesizers.memory import PeakMemory, peak_bytes
from bench.synthesizers.peers.packages import run_measured

MEGABYTE = 10**6
BALLAST = "held = bytearray(60_000_000); held = b''; "


def test_the_peak_of_a_process_is_told_though_it_let_go_of_the_memory(tmp_path):
    code = BALLAST + "import time; time.sleep(0.2)"
    seconds, peak = run_measured([sys.executable, "-c", code], tmp_path, 30)
    assert 60 * MEGABYTE < peak < 150 * MEGABYTE
    assert 0.2 <= seconds < 30


def test_a_process_that_takes_too_long_is_ended(tmp_path):
    started = time.monotonic()
    with pytest.raises(RunFailed, match=r"not done after 0\.3 s"):
        run_measured([sys.executable, "-c", "import time; time.sleep(60)"], tmp_path, 0.3)
    assert time.monotonic() - started < 30


def test_a_process_that_fails_says_why(tmp_path):
    code = "print('a long story'); raise MemoryError('too wide')"
    with pytest.raises(RunFailed, match="ended with status 1: MemoryError: too wide"):
        run_measured([sys.executable, "-c", code], tmp_path, 30)


def test_the_worker_and_its_largest_child_are_watched_and_the_server_is_not():
    child = BALLAST + "import sys; sys.stdin.read()"
    worker = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    server = (
        BALLAST
        + BALLAST
        + (f"import subprocess, sys; subprocess.run([sys.executable, '-c', {worker!r}])")
    )
    process = subprocess.Popen([sys.executable, "-c", server], stdin=subprocess.PIPE)
    try:
        with PeakMemory(process.pid) as peak:
            deadline = time.monotonic() + 30
            while peak.child_bytes < 60 * MEGABYTE and time.monotonic() < deadline:
                time.sleep(0.02)
        worker_bytes = peak.total_bytes - peak.child_bytes
        assert 60 * MEGABYTE < peak.child_bytes < 150 * MEGABYTE
        assert 0 < worker_bytes < 60 * MEGABYTE
    finally:
        process.communicate()


def test_a_process_that_is_gone_has_no_peak():
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    assert peak_bytes(process.pid) == 0

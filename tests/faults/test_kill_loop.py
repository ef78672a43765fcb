"""Servers and workers that are killed at moments that no test has chosen.

`--fault-rounds N` kills N times as often.
"""

from __future__ import annotations

import random
import signal
import threading
from pathlib import Path

import httpx
from stage import stage

KILLS = 4
# Longer than a release takes here, from its request to its end.
LATEST_S = 0.6


def test_no_release_is_lost_or_doubled_by_kills_at_random_moments(
    tmp_path: Path, fault_rounds: int
) -> None:
    with stage(tmp_path) as staged:
        running = {"server": staged.forge.serve(), "worker": staged.forge.work()}
        for number in range(KILLS * fault_rounds):
            victim = ("server", "worker")[number % 2]
            key, after_s = f"kill-{number}", random.uniform(0, LATEST_S)
            server, worker = running["server"], running["worker"]
            dying = server.process if victim == "server" else worker
            killer = threading.Timer(after_s, dying.signal, [signal.SIGKILL])
            killer.start()
            try:
                server.ask(staged.dataset, key=key)
            except httpx.HTTPError:
                assert victim == "server"
            dying.wait_until_gone()
            if victim == "server":
                running["server"] = server = staged.forge.serve()
            else:
                running["worker"] = staged.forge.work()
            answer = server.ask(staged.dataset, key=key)
            assert answer.status_code == 202, f"the {victim}, killed after {after_s:.3f} s"
            staged.check(server, answer.json()["id"])
        running["worker"].stop()
        running["server"].process.stop()

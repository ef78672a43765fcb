"""A server that is killed at any step between a request's arrival and its answer."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
from forge import Fault
from stage import Stage, stage

ARRIVAL = {
    "before it is checked": Fault("app.releases.admission:prepare"),
    "after it was checked": Fault("app.releases.admission:prepare", "after"),
    "before it is charged": Fault("app.ledger.admission:admit"),
    "after it was charged": Fault("app.ledger.admission:admit", "after"),
    "after it was queued": Fault("app.queue.jobs:enqueue", "after"),
    "before the commit": Fault("sqlalchemy.orm:Session.commit"),
    "after the commit, unanswered": Fault("sqlalchemy.orm:Session.commit", "after"),
}


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """With a worker that stays while servers are killed."""
    with stage(tmp_path_factory.mktemp("arrival")) as made:
        worker = made.forge.work()
        yield made
        worker.stop()


@pytest.mark.parametrize("step", ARRIVAL)
def test_a_server_killed_while_it_admits(interrupted: Stage, step: str) -> None:
    key = step.replace(" ", "-")
    dying = interrupted.forge.serve(fault=ARRIVAL[step])
    dying.process.arm()
    with pytest.raises(httpx.HTTPError):
        dying.ask(interrupted.dataset, key=key)
    dying.process.wait_until_gone()
    served = interrupted.forge.serve()
    answer = served.ask(interrupted.dataset, key=key)
    assert answer.status_code == 202
    was_committed = step.startswith("after the commit")
    assert ("Idempotent-Replayed" in answer.headers) == was_committed
    interrupted.check(served, answer.json()["id"])
    served.process.stop()

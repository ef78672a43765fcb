"""A worker that is killed at any step between a job's claim and the stored sample."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from forge import Fault, Served
from stage import Stage, stage

SMALL_CHUNKS = {"app.storage.blobs:PIECE_BYTES": 512}
"""So that a small sample takes many chunks, and can be cut in the middle."""
WORK = {
    "before it is claimed": Fault("app.queue.jobs:claim"),
    "before the claim is committed": Fault("app.queue.jobs:claim", "after"),
    "after it was claimed": Fault("app.jobs.worker:Worker.run"),
    "before it begins": Fault("app.jobs.fit:run"),
    "before noise is drawn": Fault("app.engine.privacy.kernel:Kernel.answer", nth=2),
    "before the answer is journaled": Fault(
        "app.engine.privacy.kernel:Kernel.answer", "after", nth=2
    ),
    "before the answer leaves": Fault("app.releases.journal:StoredJournal.append", "after", nth=2),
    "before the model is stored": Fault("app.engine.privacy.session:SessionServer.run", "after"),
    "after the model was stored": Fault("app.jobs.fit:store_sample"),
    "in the middle of the sample": Fault(
        "app.storage.blobs:BlobStore.put", nth=3, armed_by="app.jobs.fit:store_sample"
    ),
    "after the sample was stored": Fault("app.jobs.fit:store_sample", "after"),
    "before it is published": Fault("app.releases.service:succeeded"),
    "before the end is committed": Fault("app.queue.jobs:finish", "after"),
    "after the end was committed": Fault("app.jobs.watch:Watch.__exit__"),
}


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with stage(tmp_path_factory.mktemp("work")) as made:
        yield made


@pytest.fixture(scope="module")
def served(interrupted: Stage) -> Iterator[Served]:
    """A server that stays while workers are killed."""
    served = interrupted.forge.serve()
    yield served
    served.process.stop()


@pytest.mark.parametrize("step", WORK)
def test_a_worker_killed_while_it_runs_a_release(
    interrupted: Stage, served: Served, step: str
) -> None:
    dying = interrupted.forge.work(fault=WORK[step], changes=SMALL_CHUNKS)
    dying.arm()
    release = served.release(interrupted.dataset, synthesizer="mst")
    dying.wait_until_gone()
    is_published = step.startswith("after the end")
    answered = interrupted.store.journal(release)
    sample = f"sm_{release.removeprefix('rl_')}"
    data = served.http.get(f"/v1/samples/{sample}/data")
    assert (data.status_code == 200) == is_published
    assert (served.get(f"/releases/{release}")["state"] == "succeeded") == is_published
    clean = interrupted.forge.work(changes=SMALL_CHUNKS)
    interrupted.check(served, release)
    assert interrupted.store.journal(release)[: len(answered)] == answered
    assert interrupted.store.job(release)["losses"] <= 1
    clean.stop()

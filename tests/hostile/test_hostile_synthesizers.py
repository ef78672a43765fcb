"""Synthesizers that attack the service from their processes.

Whatever they do, the release fails or stays within its allowance, the charge stands, nothing
of the service leaves, and the analyst reads nothing made from data.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import psutil
import pytest
from forge import Forge, Forked, Served, confined, eventually, forge
from misdeeds import CODE
from plugin import write_plugin
from stored import Store

SECRET = "telltale"
MISDEEDS_THAT_FAIL = [
    "die",
    "tell",
    "print_and_die",
    "hand_callable",
    "flood_garbage",
    "flood_size",
    "flood_progress",
    "grow",
    "spoil",
    "no_such_misdeed",
]


@dataclass
class Scene:
    """A served store, a worker, and an analyst who may use one dataset."""

    forge: Forge
    served: Served
    worker: Forked
    dataset: str
    analyst: Served
    store: Store

    def release(self, do: str, **params: Any) -> str:
        """Asked for by the analyst, whose charge is checked whatever follows."""
        before = self.store.spent(self.dataset)[0]
        release = self.analyst.release(
            self.dataset, synthesizer="hostile", params={"do": do, **params}, rows=5
        )
        assert self.store.spent(self.dataset)[0] == before + 10**12
        return release

    def ended(self, release: str) -> Any:
        """The release as the analyst sees it at its end, after checks that always hold."""
        shown = self.analyst.ended(release)
        assert self.store.spent(self.dataset) == self.store.charged(self.dataset)
        (answered,) = self.store.rows(
            "SELECT COALESCE(SUM(loss_amount), 0) FROM journal WHERE release_id = ?", release
        )
        (allowed,) = self.store.rows("SELECT loss_amount FROM releases WHERE id = ?", release)
        assert answered[0] <= allowed[0]
        assert SECRET not in self.all_that_the_analyst_reads(release)
        return shown

    def all_that_the_analyst_reads(self, release: str) -> str:
        pages = [f"/v1/releases/{release}{page}" for page in ("", "/certificate", "/measurements")]
        texts = [self.analyst.http.get(page).text for page in pages]
        with self.analyst.http.stream("GET", f"/v1/releases/{release}/events") as events:
            texts.append("".join(events.iter_text()))
        return "".join(texts)

    def why(self, release: str) -> str:
        """What the custodian reads."""
        return str(self.served.get(f"/releases/{release}")["private_detail"])

    def learned(self, release: str) -> Any:
        (model,) = self.store.rows(
            "SELECT data FROM chunks WHERE collection = ? AND part = 'model'", release
        )
        return json.loads(model[0])


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    plugins = tmp_path_factory.mktemp("plugins")
    write_plugin(plugins, "hostile", CODE)
    write_plugin(plugins, "declared", CODE.replace('name = "hostile"', 'name = "declared"'))
    settings = {
        "job_memory_bytes": 2**30,
        "check_time_limit_s": 3,
        "declared": "declared",
    }
    with forge(tmp_path_factory.mktemp("hostile"), [plugins], **settings) as made:
        served, worker = made.serve(), made.work()
        dataset = served.add_dataset()
        analyst = Served(served.process, served.url)
        analyst.http.headers["Authorization"] = f"Bearer {analysts_key(served, dataset)}"
        yield Scene(made, served, worker, dataset, analyst, Store(made.data))
        analyst.http.close()


def analysts_key(served: Served, dataset: str) -> str:
    principal = posted(served.http, "/v1/principals", name="Ann", roles=["analyst"])["id"]
    posted(served.http, f"/v1/datasets/{dataset}/grants", principal_id=principal)
    return str(posted(served.http, f"/v1/principals/{principal}/keys")["key"])


def posted(http: httpx.Client, path: str, **body: Any) -> Any:
    answer = http.post(path, json=body)
    assert answer.status_code == 201, answer.text
    return answer.json()


def test_one_that_behaves_succeeds(scene: Scene) -> None:
    release = scene.release("behave")
    assert scene.ended(release)["state"] == "succeeded"
    assert isinstance(scene.learned(release)["total"], int)


def test_one_that_asks_for_more_than_its_allowance_is_refused_and_may_go_on(
    scene: Scene,
) -> None:
    release = scene.release("overspend")
    assert scene.ended(release)["state"] == "succeeded"
    learned = scene.learned(release)
    assert learned["refusals"] >= 20
    assert learned["answers"] == len(scene.store.journal(release))


@pytest.mark.parametrize("misdeed", MISDEEDS_THAT_FAIL)
def test_one_that_breaks_its_contract_has_failed_for_good(scene: Scene, misdeed: str) -> None:
    release = scene.release(misdeed)
    shown = scene.ended(release)
    assert (shown["state"], shown["private_detail"]) == ("failed", None)
    assert (shown["stage"], shown["samples"]) == ("failed", [])
    assert scene.store.job(release)["claims"] == 1
    assert scene.worker.alive


def test_only_the_custodian_reads_what_it_said(scene: Scene) -> None:
    for misdeed in ("tell", "print_and_die"):
        release = scene.release(misdeed)
        assert scene.ended(release)["state"] == "failed"
        assert SECRET in scene.why(release)


def test_failures_read_alike(scene: Scene) -> None:
    def read(misdeed: str) -> dict[str, Any]:
        shown = dict(scene.ended(scene.release(misdeed)))
        own = ("id", "params", "created_at", "started_at", "finished_at", "ledger_sequence")
        return {name: value for name, value in shown.items() if name not in own}

    assert read("tell") == read("die") == read("flood_garbage")


def test_one_that_kills_its_worker_sees_the_same_answer_each_time(scene: Scene) -> None:
    release = scene.release("kill_worker")
    shown = scene.ended(release)
    assert len(scene.store.journal(release)) == 1
    assert shown["state"] in ("succeeded", "failed")
    if shown["state"] == "succeeded":  # the kernel's own confinement held it back
        assert scene.learned(release)["held"]
    if not scene.worker.alive:
        scene.worker = scene.forge.work()


def test_one_that_asks_another_question_when_run_again_has_failed(scene: Scene) -> None:
    release = scene.release("change_mind", wait_s=60)
    answered = eventually(lambda: scene.store.journal(release), "the first answer")
    scene.worker.signal(signal.SIGKILL)
    scene.worker = scene.forge.work()
    assert scene.ended(release)["state"] == "failed"
    assert scene.store.journal(release) == answered
    assert "ReplayDiverged" in scene.why(release)


def asleep(duration: str) -> bool:
    """Whether a process sleeps for this time, which is its mark."""
    running = psutil.process_iter(["cmdline"])
    return any(each.info["cmdline"] == ["sleep", duration] for each in running)


def test_a_process_that_it_leaves_behind_ends_with_its_release(scene: Scene) -> None:
    release = scene.release("detach", target="86401")
    assert scene.ended(release)["state"] == "succeeded"
    eventually(lambda: not asleep("86401"), "its end with the release")
    release = scene.release("detach", target="86402", wait_s=600)
    eventually(lambda: asleep("86402"), "it to sleep")
    assert scene.analyst.http.post(f"/v1/releases/{release}/cancel").is_success
    eventually(lambda: not asleep("86402"), "its end with a cancelled release")
    assert scene.ended(release)["state"] == "cancelled"


def test_a_process_that_it_leaves_behind_ends_with_a_killed_worker(scene: Scene) -> None:
    release = scene.release("detach", target="86403", wait_s=600)
    eventually(lambda: asleep("86403"), "it to sleep")
    scene.worker.signal(signal.SIGKILL)
    eventually(lambda: not asleep("86403"), "its end with the worker")
    assert scene.analyst.http.post(f"/v1/releases/{release}/cancel").is_success
    scene.worker = scene.forge.work()
    assert scene.ended(release)["state"] == "cancelled"


def test_one_that_snoops_finds_nothing_of_the_service(scene: Scene) -> None:
    store = scene.forge.data / "halftone.sqlite"  # told backwards, not to be found as a finding
    port = int(scene.served.url.rpartition(":")[2])
    target = str(store)[::-1] if confined() else ""
    release = scene.release("snoop", target=target, wait_s=port)
    assert scene.ended(release)["state"] == "succeeded", scene.why(release)
    assert scene.learned(release)["found"] == []


def test_a_trusted_call_is_refused_unless_the_admin_declared_it(scene: Scene) -> None:
    release = scene.release("trust_me")
    assert scene.ended(release)["state"] == "succeeded"
    assert scene.learned(release) == {"refused": True}
    assert scene.store.journal(release) == []


def test_a_declared_one_cannot_claim_to_be_enforced(scene: Scene) -> None:
    release = scene.analyst.release(
        scene.dataset, synthesizer="declared", params={"do": "trusted"}, rows=5
    )
    assert scene.ended(release)["assurance"] == "declared"
    certificate = scene.analyst.get(f"/releases/{release}/certificate")
    assert certificate["assurance"] == "declared"
    assert scene.analyst.get("/synthesizers/declared")["assurance"] == "declared"
    assert scene.analyst.get("/synthesizers/hostile")["assurance"] == "enforced"
    assert scene.learned(release) == {"rows": 300}


@pytest.mark.parametrize("misdeed", ["check_raises", "check_hangs"])
def test_a_check_that_fails_charges_nothing_and_says_nothing(scene: Scene, misdeed: str) -> None:
    before = scene.store.spent(scene.dataset)
    answer = scene.analyst.ask(scene.dataset, synthesizer="hostile", params={"do": misdeed})
    assert answer.status_code == 422
    assert SECRET not in answer.text
    assert scene.store.spent(scene.dataset) == before


def test_one_that_never_ends_or_never_listens_runs_out_of_time(scene: Scene) -> None:
    short = scene.forge.serve(job_time_limit_s=2)
    for misdeed in ("hang", "flood_deaf"):
        answer = short.ask(scene.dataset, synthesizer="hostile", params={"do": misdeed}, rows=5)
        release = answer.json()["id"]
        assert short.ended(release)["state"] == "failed"
        assert "time limit" in scene.why(release)
        assert scene.store.job(release)["claims"] == 1
    short.process.stop()

"""The child as a process of its own, and what a host makes of what it says."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from small_tables import EXACT, LIMITS, colours, quiet, random_codes

from app.engine.method import Problem, PublicFacts
from app.engine.privacy.journal import MemoryJournal
from app.engine.privacy.kernel import Kernel
from app.engine.privacy.loss import PrivacyLoss
from app.engine.privacy.session import ChildFailed, SessionServer
from app.engine.privacy.source import ArraySource
from app.engine.privacy.wire import FrameError, pack
from app.engine.sandbox import host
from app.engine.sandbox.host import ChildGaveUp
from app.engine.sandbox.protocol import FIT, Check, Describe, FitTask, ReadForm, Sample
from app.engine.schema import PrivacyUnit
from app.engine.table import PublicTable, Table

Starter = Callable[[], socket.socket]

HOUSEHOLD = PrivacyUnit("entity", "id", 3)
SCHEMA = colours(entity=True)
LOSS = PrivacyLoss.zcdp(10**12)

PLUG_IN = """
import os, resource
from app.engine.method import Params, Preflight
from app.engine.table import Table
from app.engine.synthesizers.independent import Independent

class Form(Params):
    mode: str = "plain"

class Model:
    def __init__(self, mode):
        self.mode = mode
    def dump(self):
        return self.mode.encode()
    def sample(self, rows, rng):
        import numpy as np
        codes = {"size": np.full(rows, 77 if self.mode == "wild" else 1)}
        entity = np.zeros(rows, dtype=np.int64) if self.mode == "heaped" else np.arange(rows)
        given = rows + 1 if self.mode == "many" else rows
        codes = {"size": np.full(given, codes["size"][0])}
        return Table(codes, given, np.resize(entity, given))

class Other:
    name = "other"; title = "Another's"; reference = "none"; Params = Form
    def check(self, schema, unit, params, loss, public, limits):
        return Preflight(len(schema.columns), public.rows if public else 0, float("inf"), ())
    def fit(self, session, params, public, seed, progress):
        if params.mode == "inspect":
            limits = [resource.getrlimit(n) for n in (resource.RLIMIT_CORE, resource.RLIMIT_NOFILE)]
            descriptors = sorted(os.listdir("/proc/self/fd"), key=int)
            status = [l for l in open("/proc/self/status") if l.startswith("NoNewPrivs")]
            raise ValueError(f"{limits} {len(descriptors)} {status} {public.table.rows}")
        return Model(params.mode)
    def load(self, schema, unit, data):
        return Model(data.decode())
"""


# Imports once what every child imports, then forks one for each descriptor that it is sent; "w"
# waits for the oldest child and tells its exit status.
TEMPLATE = """
import os, socket, sys
from app.engine import compiled
from app.engine.catalog import registry
from app.engine.sandbox import child

registry.import_built_ins()
compiled.get_ready()
control = socket.socket(fileno=int(sys.argv[1]))
children = []
while True:
    word, descriptors, _, _ = socket.recv_fds(control, 1, 1)
    if word == b"w":
        _, status = os.waitpid(children.pop(0), 0)
        control.send(bytes([os.waitstatus_to_exitcode(status) & 255]))
    elif word == b"f":
        children.append(os.fork())
        if not children[-1]:
            child.main(descriptors[0])
            os._exit(0)
        os.close(descriptors[0])
    else:
        break
"""


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Iterator[socket.socket]:
    """A process that forks children which also see a third party's distribution."""
    folder = tmp_path_factory.mktemp("plugin")
    info = folder / "other_maker-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: other-maker\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[halftone.synthesizers]\nother = other_maker:Other\n")
    (folder / "other_maker.py").write_text(PLUG_IN)
    path = os.pathsep.join([str(folder), *filter(None, sys.path)])
    ours, theirs = socket.socketpair()
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-c", TEMPLATE, str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            env={"PYTHONPATH": path, "OPENBLAS_NUM_THREADS": "1"},
        )
    with ours:
        yield ours
    assert process.wait(20) == 0


@pytest.fixture
def start(template: socket.socket) -> Iterator[Starter]:
    """Starts children."""
    started: list[socket.socket] = []

    def begin() -> socket.socket:
        ours, theirs = socket.socketpair()
        with theirs:
            socket.send_fds(template, [b"f"], [theirs.fileno()])
        started.append(ours)
        return ours

    yield begin
    for ours in started:
        ours.close()
    for _ in started:
        template.send(b"w")
        assert template.recv(1) == b"\0", "a child ends by itself"


def fit(
    connection: socket.socket,
    task: FitTask,
    journal: MemoryJournal | None = None,
    loss: PrivacyLoss = LOSS,
) -> bytes:
    entities = np.arange(300) % 100
    kernel = Kernel(ArraySource(SCHEMA, HOUSEHOLD, random_codes(SCHEMA, 300), entities), loss)
    connection.sendall(pack(FIT))
    server = SessionServer(
        connection,
        kernel,
        journal or MemoryJournal(),
        quiet,
        task=task.to_json(),
        arrays=task.arrays(),
    )
    return server.run()


def sample_of(model: bytes, rows: int | None = 50, name: str = "mst") -> Sample:
    return Sample(name, SCHEMA, HOUSEHOLD, model, rows, seed=3, most_rows=1000)


def check_of(name: str, form: dict[str, object], public: PublicFacts | None = None) -> Check:
    return Check(name, form, SCHEMA, HOUSEHOLD, LOSS, public, LIMITS)


def test_a_child_describes_a_synthesizer(start: Starter) -> None:
    described = host.describe(start(), Describe("other"))
    assert (described.name, described.title) == ("other", "Another's")
    assert described.params_schema["properties"]["mode"]["default"] == "plain"


def test_a_child_checks_a_form(start: Starter) -> None:
    public = PublicFacts(SCHEMA, 12)
    child = start()
    assert host.read_form(child, ReadForm("other", {}, SCHEMA)).params == {"mode": "plain"}
    preflight = host.check(child, check_of("other", {}, public))
    assert (preflight.cells, preflight.memory_bytes) == (3, 12)
    assert preflight.expected_error == sys.float_info.max


def test_a_malformed_form_is_told_with_a_pointer(start: Starter) -> None:
    read = host.read_form(start(), ReadForm("mst", {"shares": {"a/b": 1}}, SCHEMA))
    assert read.params is None
    assert read.problems == (
        Problem(
            "/params/shares/a~1b",
            "Extra inputs are not permitted",
            "see the synthesizer's form",
        ),
    )


def test_a_run_that_is_started_again_hands_in_the_same_model(start: Starter) -> None:
    journal = MemoryJournal()
    task = FitTask("mst", {"rare_below": 2.0}, seed=7)
    first = fit(start(), task, journal)
    assert len(journal.entries()) == 8
    assert fit(start(), task, journal) == first
    assert len(journal.entries()) == 8


def test_a_sample_is_repeatable_across_processes(start: Starter) -> None:
    model = fit(start(), FitTask("mst", {}, seed=7))
    (one,), (other,) = (list(host.sample(start(), sample_of(model), 100)) for _ in range(2))
    assert one.rows == 50
    for name in one.codes:
        assert np.array_equal(one.codes[name], other.codes[name])
    assert np.array_equal(one.entity, other.entity)  # type: ignore[arg-type]


def test_the_process_that_fitted_a_model_samples_it_as_any_other_does(start: Starter) -> None:
    fitting = start()
    model = fit(fitting, FitTask("mst", {}, seed=7))
    (one,), (again,) = (list(host.sample(fitting, sample_of(model), 100)) for _ in range(2))
    (other,) = host.sample(start(), sample_of(model), 100)
    for name in one.codes:
        assert np.array_equal(one.codes[name], again.codes[name])
        assert np.array_equal(one.codes[name], other.codes[name])


def test_no_rows_come_as_one_empty_part(start: Starter) -> None:
    model = fit(start(), FitTask("independent", {}, seed=7))
    (part,) = host.sample(start(), sample_of(model, 0, "independent"), 100)
    assert part.rows == 0
    assert list(part.codes) == ["colour", "size", "fare"]


def test_counts_come_as_a_table(start: Starter) -> None:
    model = fit(start(), FitTask("histogram", {"columns": ["size"]}, seed=7), loss=EXACT)
    request = Sample("histogram", SCHEMA, HOUSEHOLD, model, None, 0, 1000, "counts")
    counts = host.counts(start(), request)
    expected = np.bincount(random_codes(SCHEMA, 300)["size"], minlength=10)
    assert counts.values.tolist() == expected.tolist()
    assert counts.count.columns == ("size",)


def test_what_has_no_counts_says_so_to_the_custodian(start: Starter) -> None:
    model = fit(start(), FitTask("mst", {}, seed=7))
    with pytest.raises(ChildGaveUp) as raised:
        host.counts(start(), Sample("mst", SCHEMA, HOUSEHOLD, model, None, 0, 1000, "counts"))
    assert "counts" in raised.value.detail
    assert "counts" not in str(raised.value)


def test_a_child_has_little_and_a_public_table_reaches_it(start: Starter) -> None:
    rows = Table(random_codes(SCHEMA, 20), 20, np.arange(20))
    task = FitTask("other", {"mode": "inspect"}, 7, PublicTable(SCHEMA, rows))
    with pytest.raises(ChildFailed) as raised:
        fit(start(), task)
    # Standard streams, the socket, and the folder of descriptors itself.
    assert raised.value.detail == ("ValueError: [(0, 0), (128, 128)] 5 ['NoNewPrivs:\\t1\\n'] 20")


@pytest.mark.parametrize("name", ["nothing", "../mst"])
def test_an_unknown_synthesizer_fails_without_a_trace(start: Starter, name: str) -> None:
    with pytest.raises(ChildFailed, match="the synthesizer gave up"):
        fit(start(), FitTask(name, {}, 7))


def test_params_that_do_not_fit_the_form_fail(start: Starter) -> None:
    with pytest.raises(ChildFailed):
        fit(start(), FitTask("mst", {"nothing": 1}, 7))


@pytest.mark.parametrize("mode", ["wild", "heaped", "many"])
def test_a_sample_that_breaks_the_dictionary_or_the_unit_is_refused(
    start: Starter, mode: str
) -> None:
    with pytest.raises(FrameError):
        list(host.sample(start(), sample_of(mode.encode(), 10, "other"), 100))


def test_a_sample_of_more_rows_than_the_limit_is_refused(start: Starter) -> None:
    with pytest.raises(FrameError):
        list(host.sample(start(), sample_of(b"plain", 11, "other"), 10))


def test_a_sample_of_a_third_party_passes(start: Starter) -> None:
    (part,) = host.sample(start(), sample_of(b"plain", 10, "other"), 10)
    assert part.codes["size"].tolist() == [1] * 10


def test_a_host_that_goes_away_ends_the_child(start: Starter) -> None:
    start().close()

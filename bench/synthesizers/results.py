"""Results of runs as JSON lines, so that an interrupted bench goes on where it stopped."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean

MEASURES = (
    *("seconds", "peak_mb", "child_mb", "cap_s", "cap_mb"),
    *("one_way", "pairs", "triples", "k_marginal", "auc"),
)

Key = tuple[str, str, str, int]


@dataclass(frozen=True, slots=True)
class Run:
    """One implementation's run on one table; without measures where `failure` says why it failed.

    `epsilon` is decimal text, empty for a reference, which has none. `peak_mb` and
    `child_mb` are in 10^6 bytes and, like `auc`, None where they were not measured. `cap_s` and
    `cap_mb` are the limits that preflight asked for, where the server had these.
    `load` is the machine's load average when the run began: processes that wanted to run.
    """

    table: str
    implementation: str
    epsilon: str
    seed: int
    seconds: float | None = None
    peak_mb: float | None = None
    child_mb: float | None = None
    cap_s: float | None = None
    cap_mb: float | None = None
    rows: int | None = None
    one_way: float | None = None
    pairs: float | None = None
    triples: float | None = None
    k_marginal: float | None = None
    auc: float | None = None
    failure: str | None = None
    load: float | None = None

    @property
    def key(self) -> Key:
        return self.table, self.implementation, self.epsilon, self.seed


@dataclass(frozen=True, slots=True)
class Summary:
    """The means over the seeds of one implementation at one epsilon on one table.

    A measure is None where no run has it. `failures` are the distinct reasons, in order.
    `highest_load` is that of the runs that did not fail.
    """

    table: str
    implementation: str
    epsilon: str
    runs: int
    means: dict[str, float | None]
    failures: tuple[str, ...]
    highest_load: float


class Results:
    """The file `runs.jsonl` of a folder. Of runs with the same key the last one counts."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "runs.jsonl"

    def append(self, run: Run) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a+") as file:
            file.seek(0)
            before = file.read()
            if before and not before.endswith("\n"):
                file.write("\n")
            file.write(json.dumps(asdict(run)) + "\n")

    def runs(self) -> list[Run]:
        """In the order in which their keys first came; a line cut short by a crash is ignored."""
        found: dict[Key, Run] = {}
        for run in self._lines():
            found[run.key] = run
        return list(found.values())

    def _lines(self) -> Iterator[Run]:
        if not self._path.exists():
            return
        for line in self._path.read_text().splitlines():
            try:
                yield Run(**json.loads(line))
            except json.JSONDecodeError:
                continue


def summaries(runs: Iterable[Run]) -> list[Summary]:
    """One for each table, implementation and epsilon, in the order of the first run of each."""
    groups: dict[tuple[str, str, str], list[Run]] = {}
    for run in runs:
        groups.setdefault((run.table, run.implementation, run.epsilon), []).append(run)
    return [_summary(key, group) for key, group in groups.items()]


def _summary(key: tuple[str, str, str], group: Sequence[Run]) -> Summary:
    good = [run for run in group if run.failure is None]
    means = {}
    for measure in MEASURES:
        values = [getattr(run, measure) for run in good if getattr(run, measure) is not None]
        means[measure] = fmean(values) if values else None
    failures = dict.fromkeys(run.failure for run in group if run.failure is not None)
    load = max((run.load or 0 for run in good), default=0)
    return Summary(*key, len(good), means, tuple(failures), load)

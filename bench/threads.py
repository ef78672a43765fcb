"""Seconds of a release by stages, on one thread and on two.

    python -m bench.threads [--releases adult@1 adult@10 acs_wide@1 purchases@2] [--runs 3]

A release of `swift` at delta 1e-9 is made in this process, whose compiled loops are loaded before,
with as many rows as the noisy count says. Runs on one thread and on two take turns; each figure is
the least of them. `answers` are the kernel's, counting and noise; `passes` are those over junction
trees while a model is estimated. All runs of a release go on with the answers of the first, so they
do the same work, and the bench fails if they do not make the very same rows.

A machine that is busy with other work shows no gain: where both processors are taken, the second
thread waits for the first. The tables are those of `bench.synthesizers`, read below
HALFTONE_SHARED_DATA (default `../shared/data`).
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from hashlib import sha256
from typing import Any
from unittest.mock import patch

from app.engine.inference import two_threads
from app.engine.inference.model import GraphicalModel
from app.engine.inference.propagation import Propagation
from app.engine.privacy.kernel import Kernel
from app.engine.privacy.questions import Answer
from bench import shared_data
from bench.synthesizers.library import InProcess
from bench.synthesizers.mixed import MIXED
from bench.synthesizers.tables import TABLES, CodedTable

RELEASES = ("adult@1", "adult@10", "acs_wide@1", "purchases@2")
THREADS = (1, 2)
STAGES = (
    (Kernel, "answer", "answers"),
    (Propagation, "run", "passes"),
    (GraphicalModel, "sample", "rows drawn"),
)
COLUMNS = ("whole", *(stage for _, _, stage in STAGES), "rest")
Seconds = Mapping[str, float]


def report(releases: Sequence[str], runs: int) -> Iterator[str]:
    """Lines of a Markdown table."""
    yield "| release | threads | " + " | ".join(COLUMNS) + " |"
    yield "|---" * (len(COLUMNS) + 2) + "|"
    InProcess("swift").make(TABLES["census_ma"](), "1", 0)
    for release in releases:
        name, epsilon = release.split("@")
        table = {**TABLES, **MIXED}[name]()
        taken: dict[int, list[Seconds]] = {threads: [] for threads in THREADS}
        answers: list[Answer] = []
        rows = set()
        for _ in range(runs):
            for threads in THREADS:
                seconds, made = measured(table, epsilon, threads, answers)
                taken[threads].append(seconds)
                rows.add(made)
        if len(rows) > 1:
            raise RuntimeError(f"{release}: the rows depend on the number of threads")
        for threads in THREADS:
            least = [min(each[column] for each in taken[threads]) for column in COLUMNS]
            yield f"| {release} | {threads} | " + " | ".join(f"{s:.2f}" for s in least) + " |"


def measured(
    table: CodedTable, epsilon: str, threads: int, answers: list[Answer]
) -> tuple[Seconds, str]:
    """The seconds of each stage of a release, and a digest of its rows.

    The kernel's answers are replaced by `answers`, which are its own if there are none yet.
    """
    seconds: dict[str, float] = defaultdict(float)
    with ExitStack() as changed:
        changed.enter_context(patch.object(two_threads, "processors", lambda: threads))
        for owner, method, stage in STAGES:
            changed.enter_context(_timed(owner, method, stage, seconds))
        changed.enter_context(_same_answers(answers))
        made = InProcess("swift").make(table, epsilon, 0)
    whole = made.seconds
    rows = sha256(b"".join(column.tobytes() for column in made.codes.values()))
    timed = {**seconds, "rest": whole - sum(seconds.values()), "whole": whole}
    return timed, rows.hexdigest()


@contextmanager
def _same_answers(answers: list[Answer]) -> Iterator[None]:
    original: Callable[..., Answer] = Kernel.answer
    known = iter(tuple(answers))

    def answered(*arguments: Any, **named: Any) -> Answer:
        own = original(*arguments, **named)
        answer = next(known, None)
        if answer is None:
            answers.append(own)
        return own if answer is None else answer

    with patch.object(Kernel, "answer", answered):
        yield


@contextmanager
def _timed(owner: type, method: str, stage: str, seconds: dict[str, float]) -> Iterator[None]:
    original: Callable[..., Any] = getattr(owner, method)

    def timed(*arguments: Any, **named: Any) -> Any:
        started = time.perf_counter()
        try:
            return original(*arguments, **named)
        finally:
            seconds[stage] += time.perf_counter() - started

    with patch.object(owner, method, timed):
        yield


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.threads", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--releases", nargs="+", default=RELEASES)
    parser.add_argument("--runs", type=int, default=3)
    asked = parser.parse_args()
    shared_data.must_be_there()
    for line in report(asked.releases, asked.runs):
        print(line, flush=True)


if __name__ == "__main__":
    main()

"""How often the intervals of statements hold, for every built-in, and how far off `good` pairs are.

    python -m bench.statements [--runs 200] [--methods mst aim] [--tables few] [--units row entity]

Every method is fitted so many times on three small tables, by rows and by entities, in process, and
each statement is compared with exact counts of the same session. A line is a method on a table:
of how many intervals how many cover the exact distance (or mean, quantile, correlation), the mean
exact distance, the mean upper end of its interval, how many pairs are called `good`, and how far
off the worst of them is.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from app.engine.catalog import registry
from app.engine.privacy.kernel import Kernel
from app.engine.privacy.library import LocalSession
from app.engine.privacy.queries import Contribution, Measurement, Scored
from app.engine.privacy.questions import Counted
from app.engine.privacy.source import ArraySource
from app.engine.statements import KeptRows, Released, StatedDistance, Statement, stated
from app.engine.statements.counting import SampleCounts
from app.engine.statements.evidence import Answers
from app.engine.statements.numbers import SampleNumbers, correlations
from app.engine.statements.sample import SampleRows
from app.engine.table import Table, generator
from bench.statements.tables import PARAMS, Subject, subjects

# Runs of one process at a time.
_RUNS = 25
_ROWS = Contribution()


def main() -> None:
    asked = _arguments()
    print(_HEAD, flush=True)
    with ProcessPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
        for method in asked.methods:
            for number, subject in enumerate(subjects()):
                if subject.name not in asked.tables or subject.unit.kind not in asked.units:
                    continue
                parts = [range(asked.runs)[first : first + _RUNS] for first in _firsts(asked.runs)]
                found = pool.map(_tallied, [method] * len(parts), [number] * len(parts), parts)
                line = _line(method, subject, list(found))
                if line:
                    print(line, flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.statements", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--methods", nargs="+", default=list(registry.built_ins()))
    parser.add_argument("--tables", nargs="+", default=["few", "many", "sparse"])
    parser.add_argument("--units", nargs="+", default=["row", "entity"])
    return parser.parse_args()


def _firsts(runs: int) -> range:
    return range(0, runs, _RUNS)


class RecordingKernel(Kernel):
    """Keeps what it answers, and the exact counts behind it: for a bench on public tables."""

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self.answers: list[Any] = []
        self.exact: list[Measurement] = []

    def answer(self, admitted: Any) -> Any:
        answer = super().answer(admitted)
        if isinstance(answer, Counted):
            self.answers += answer.measurements
        elif isinstance(answer, Scored):
            self.answers.append(answer)
        return answer

    def _count(self, queries: Sequence[Any]) -> Counted:
        counted = super()._count(queries)
        # The same draws once more: the kernel keeps what it counted.
        exact = self._exact.each([query.histogram for query in queries])
        for query, noisy, values in zip(queries, counted.measurements, exact, strict=True):
            shaped: Any = (values / query.unit.grid).reshape(query.histogram.shape)
            self.exact.append(replace(noisy, values=shaped, standard_error=0.0))
        return counted


@dataclass
class Tally:
    """What the runs of one method on one table came to."""

    distances: int = 0
    covered: int = 0
    implied: int = 0
    implied_covered: int = 0
    numbers: int = 0
    numbers_covered: int = 0
    good: int = 0
    worst_good: float = 0.0
    exact: list[float] = field(default_factory=list)
    stated: list[float] = field(default_factory=list)
    high: list[float] = field(default_factory=list)
    failure: str = ""


def _tallied(method: str, number: int, runs: range) -> Tally:
    tally = Tally()
    subject = subjects()[number]
    with threadpool_limits(1):
        for run in runs:
            try:
                _run(method, subject, run, tally)
            except Exception as error:
                # A method that does not take this unit or noise is left out, and says why.
                return Tally(failure=str(error) or type(error).__name__)
    return tally


def _run(method: str, subject: Subject, run: int, tally: Tally) -> None:
    synthesizer = registry.builtin(method)
    source = ArraySource(subject.schema, subject.unit, dict(subject.codes), subject.entities)
    kernel = RecordingKernel(source, subject.loss_for(method))
    params = synthesizer.Params.model_validate(PARAMS.get(method, {}))
    public = None if synthesizer.uses_public == "no" else subject.public
    model = synthesizer.fit(LocalSession(kernel), params, public, run, _silent)
    rows = len(subject.codes["a"])
    made = model.sample(model.rows_to_ask(None, 2 * rows) or None, generator(run))
    sample = _kept(made, subject)
    statement = stated(
        Released(
            subject.schema, subject.unit, kernel.answers, sample, tuple(model.expected_errors())
        )
    )
    _compare(statement, subject, kernel.exact, sample, tally)


def _silent(fraction: float, stage: str) -> None:
    del fraction, stage


def _kept(table: Table, subject: Subject) -> SampleRows:
    kept = KeptRows(subject.schema)
    kept.see(table)
    return kept.rows(entities=subject.unit.kind == "entity")


def _compare(
    statement: Statement,
    subject: Subject,
    exact: Sequence[Measurement],
    sample: SampleRows,
    tally: Tally,
) -> None:
    truth = _Truth(subject, exact, sample)
    for each in (*statement.columns, *statement.pairs):
        if each.interval is None:
            continue
        distance = truth.distance(each)
        is_covered = each.interval[0] - 1e-4 <= distance <= each.interval[1] + 1e-4
        if each.basis != "measured":
            tally.implied += 1
            tally.implied_covered += is_covered
            continue
        tally.distances += 1
        tally.covered += is_covered
        tally.exact.append(distance)
        tally.high.append(each.interval[1])
        tally.stated.append(np.nan if each.distance is None else each.distance)
        if len(each.columns) == 2 and each.verdict == "good":
            tally.good += 1
            tally.worst_good = max(tally.worst_good, distance)
    for number in statement.numbers:
        value = truth.number(number.statistic, number.columns, number.q)
        if number.interval is not None and value is not None:
            tally.numbers += 1
            low, high = number.interval
            tally.numbers_covered += low - 1e-9 <= value <= high + 1e-9


class _Truth:
    """Exact figures, over the cells and under the rules of a statement."""

    def __init__(self, subject: Subject, exact: Sequence[Measurement], sample: SampleRows) -> None:
        self._subject = subject
        counts = SampleCounts(sample, subject.unit.max_rows)
        self._sample = counts
        self._exact = Answers.of(exact, subject.schema, subject.unit, counts)
        rows = len(subject.codes["a"])
        real = SampleRows(subject.codes, rows, rows, subject.entities)
        self._real = SampleCounts(real, subject.unit.max_rows)

    def distance(self, stated: StatedDistance) -> float:
        evidence = self._exact.about(stated.columns)
        if evidence is not None:
            return _total_variation(evidence.noisy.values, evidence.synthetic)
        groupings = []
        for name in stated.columns:
            own = self._exact.about((name,))
            declared = self._subject.schema.column(name).grouping
            groupings.append(declared if own is None else own.noisy.groupings[0])
        sides = [
            side.counts(stated.columns, groupings, _ROWS) for side in (self._real, self._sample)
        ]
        return _total_variation(*sides)

    def number(self, statistic: str, names: Sequence[str], q: float | None) -> float | None:
        columns = [self._subject.schema.column(name) for name in names]
        codes = self._subject.codes
        if statistic == "correlation":
            places = []
            for column in columns:
                numbers, null = column.places(codes[column.name])
                places.append(np.where(null, np.nan, numbers.astype(np.float64)))
            return float(correlations([places])[0, 1])
        found = SampleNumbers.of(columns[0], codes[names[0]])
        return found.mean if q is None else found.quantile(q)


def _total_variation(real: Any, synthetic: Any) -> float:
    return float(np.abs(real / real.sum() - synthetic / synthetic.sum()).sum() / 2)


_HEAD = (
    "| method | table | unit | distances | cover | mean exact | mean stated | mean upper end"
    " | implied | cover | numbers | cover | good pairs | worst of them |\n|" + "---|" * 14
)


def _line(method: str, subject: Subject, parts: Sequence[Tally]) -> str:
    start = f"| `{method}` | {subject.name} | {subject.unit.kind} "
    failures = {part.failure for part in parts if part.failure}
    if failures:
        return f"{start}| {min(failures)} |" + " |" * 10
    cells = [
        *_covered(sum(p.distances for p in parts), sum(p.covered for p in parts)),
        *(_mean(parts, name) for name in ("exact", "stated", "high")),
        *_covered(sum(p.implied for p in parts), sum(p.implied_covered for p in parts)),
        *_covered(sum(p.numbers for p in parts), sum(p.numbers_covered for p in parts)),
        str(sum(part.good for part in parts)),
        f"{max(part.worst_good for part in parts):.3f}" if any(p.good for p in parts) else "",
    ]
    return f"{start}| {' | '.join(cells)} |"


def _covered(number: int, covered: int) -> Iterator[str]:
    yield str(number)
    yield f"{covered / number:.1%}" if number else ""


def _mean(parts: Sequence[Tally], name: str) -> str:
    values = [value for part in parts for value in getattr(part, name)]
    return f"{np.nanmean(values):.3f}" if values and not np.isnan(values).all() else ""


if __name__ == "__main__":
    main()

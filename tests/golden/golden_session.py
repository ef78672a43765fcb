"""The real kernel with seeded noise, and a session that records what it was asked.

Only the draws are replaced: each question is planned, charged and counted by the kernel itself.
The noise of a question depends on its number and on nothing drawn before, so that one changed
question does not change the noise of all that follow.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray

from app.engine.grouping import Grouping
from app.engine.privacy import bounding, kernel, tuples, units
from app.engine.privacy.kernel import Kernel
from app.engine.privacy.library import LocalSession
from app.engine.privacy.loss import PrivacyLoss
from app.engine.privacy.queries import (
    Candidate,
    Discovered,
    FoundValues,
    GridReference,
    Query,
    Scored,
    Sum,
    TupleCount,
)
from app.engine.privacy.questions import (
    Answer,
    Counted,
    CountQuestion,
    DiscoverQuestion,
    Quantiled,
    QuantileQuestion,
    Question,
    ScoreQuestion,
    Selected,
    SelectQuestion,
    ValuesQuestion,
)
from app.engine.privacy.source import CodeSource

Record = dict[str, Any]


class SeededNoise:
    """Noise with the kernel's scales, from a seeded generator. Private in no sense."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._rng = np.random.default_rng([seed, 0])

    def begin(self, number: int) -> None:
        self._rng = np.random.default_rng([self._seed, number])

    def keys(self, count: int) -> NDArray[np.uint64]:
        rng = np.random.default_rng([self._seed, 2**32, count])
        return rng.integers(0, 2**64, count, dtype=np.uint64)

    def add_noise(self, values: NDArray[np.int64], noise: str, scale: float) -> NDArray[np.int64]:
        draw = self._rng.normal if noise == "gaussian" else self._rng.laplace
        return values + np.rint(draw(0.0, scale, len(values))).astype(np.int64)

    def noisy_winners(
        self, scores: Sequence[int], kind: str, scale: float, winners: int
    ) -> tuple[int, ...]:
        """One draw of Gumbel or exponential noise for all winners: another law, good enough."""
        draw = self._rng.gumbel if kind == "zcdp" else self._exponential
        noisy = np.array(scores, dtype=np.float64) + draw(0.0, scale, len(scores))
        return tuple(int(place) for place in np.argsort(-noisy, kind="stable")[:winners])

    def _exponential(self, _: float, scale: float, count: int) -> NDArray[np.float64]:
        return self._rng.exponential(scale, count)


@contextmanager
def seeded_noise(seed: int) -> Iterator[SeededNoise]:
    """The kernel's draws replaced, in this process, until the block ends."""
    noise = SeededNoise(seed)
    with ExitStack() as patches:
        patches.enter_context(mock.patch.object(kernel, "add_noise", noise.add_noise))
        patches.enter_context(mock.patch.object(kernel, "noisy_winners", noise.noisy_winners))
        for module in (bounding, units, tuples):
            patches.enter_context(mock.patch.object(module, "random_keys", noise.keys))
        yield noise


class RecordingSession(LocalSession):
    """Puts questions to the kernel and keeps what they were."""

    def __init__(self, source: CodeSource, allowance: PrivacyLoss, noise: SeededNoise) -> None:
        super().__init__(Kernel(source, allowance))
        self._noise = noise
        self.records: list[Record] = []
        self.found: dict[str, list[str]] = {}

    def _answer_to(self, question: Question) -> Answer:
        self._noise.begin(len(self.records) + 1)
        try:
            answer = super()._answer_to(question)
        except Exception as error:
            self.records.append({"refused": type(error).__name__})
            raise
        self.records.append(_record(question, answer))
        if isinstance(answer, FoundValues):
            self.found[answer.query.column] = list(answer.texts)
        return answer


def _record(question: Question, answer: Answer) -> Record:
    asked: Record = {"loss": _loss(question.loss)}
    match question, answer:
        case CountQuestion(), Counted():
            shapes = [measured.shape for measured in answer.measurements]
            asked["count"] = [
                f"{_query(query)} {_shape(shape)}"
                for query, shape in zip(question.queries, shapes, strict=True)
            ]
            if question.shares is not None:
                asked["weights"] = _numbers(question.shares)
            asked["answers"] = _digest(*(measured.values for measured in answer.measurements))
        case SelectQuestion(), Selected():
            asked |= {"select": _candidates(question.candidates), "winners": list(answer.winners)}
        case ScoreQuestion(), Scored():
            asked |= {
                "score": _candidates(question.candidates),
                "distances": [round(float(value)) for value in answer.values],
            }
        case QuantileQuestion(), Quantiled():
            query = question.query
            of = query.of if isinstance(query.of, str) else type(query.of).__name__
            regular = " regular" if query.regular_only else ""
            asked["quantile"] = f"{of} q={query.q:.6g} grid={len(query.grid)}{regular}"
            asked["answer"] = answer.value
        case DiscoverQuestion(), Discovered():
            asked["discover"] = f"{','.join(question.query.columns)} m={question.query.limit}"
            asked["answers"] = _digest(answer.keys, answer.values)
        case ValuesQuestion(), FoundValues():
            asked["find_values"] = f"{question.query.column} m={question.query.limit}"
            asked["answers"] = [list(answer.texts), _digest(answer.values)]
        case _:
            raise AssertionError("a built-in asks no other question")
    return asked


def _loss(loss: PrivacyLoss) -> list[Any]:
    return [loss.kind, loss.amount, loss.delta]


def _query(query: Query) -> str:
    if isinstance(query, TupleCount):
        listed = query.tuples
        cells = _digest(listed.items)
        return f"tuples {','.join(listed.columns)} length={listed.length} {cells} m={query.limit}"
    text = ",".join(query.columns) or "-"
    edges = _groupings(query.columns, query.groupings)
    if isinstance(query, Sum):
        return f"sum {query.value} {query.low:g}..{query.high:g} by {text} {edges}"
    rule = query.contribution
    bound = rule.limit if rule.norm is None else f"{rule.norm:.6g}"
    named = f" of {type(query.function).__name__}" if query.function is not None else ""
    return f"{text}{named} {edges} {rule.rule}{'' if bound is None else f'={bound}'}"


def _groupings(columns: Sequence[str], groupings: Any) -> str:
    """Cells are edges and merges of integers: a digest says whether they are the same."""
    parts = []
    for name in columns:
        grouping = groupings.get(name)
        parts.append(repr(_edges(grouping)) if isinstance(grouping, Grouping) else "declared")
    return hashlib.sha256(";".join(parts).encode()).hexdigest()[:6] if parts else "-"


def _edges(grouping: Grouping) -> tuple[Any, ...]:
    return grouping.edges, grouping.tail, grouping.merge


def _shape(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape)) or "1"


def _candidates(candidates: Sequence[Candidate]) -> list[list[Any]]:
    """Each as [count and form of the reference, total of the reference, weight, bias]."""
    return [
        [
            f"{_query(each.count)} {_form(each)}",
            *_numbers((_total(each), each.weight, each.bias)),
        ]
        for each in candidates
    ]


def _form(candidate: Candidate) -> str:
    reference = candidate.reference
    if isinstance(reference, GridReference):
        return f"grid {_shape(reference.steps.shape)}"
    return f"{len(reference)} factors {' '.join(_shape(factor.shape) for factor in reference)}"


def _total(candidate: Candidate) -> float:
    reference = candidate.reference
    if isinstance(reference, GridReference):
        return float(reference.steps.sum(dtype=np.int64)) / 1024
    return float(np.prod([factor.sum() for factor in reference]))


def _numbers(values: Sequence[float]) -> list[float]:
    return [float(f"{value:.6g}") for value in values]


def _digest(*arrays: NDArray[Any]) -> str:
    """Of whole numbers alone, so that it is the same on every machine."""
    held = hashlib.sha256()
    for array in arrays:
        assert array.dtype.kind in "iu"
        held.update(repr(array.shape).encode())
        held.update(np.ascontiguousarray(array, dtype="<i8").tobytes())
    return held.hexdigest()[:10]

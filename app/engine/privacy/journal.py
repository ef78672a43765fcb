"""The journal of a release: every question charged, with the noisy answer it got."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from app.engine.privacy import questions
from app.engine.privacy.loss import PrivacyLoss
from app.engine.privacy.messages import decode_answer, decode_question, pack_question
from app.engine.privacy.queries import Discovered, FoundValues, Measurement, Scored
from app.engine.privacy.wire import unpack
from app.engine.schema import Schema


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """Question `number` (from 0), its SHA-256 in hex, packed question and answer, the loss.

    The hash is of the whole question; its bytes leave references out (see `kept_question`). A
    trusted call has an empty answer: the table that it handed over must not be stored.
    """

    number: int
    question_hash: str
    question: bytes
    answer: bytes
    loss: PrivacyLoss


def kept_question(question: questions.Question) -> bytes:
    """The packed question as a journal keeps it: candidates without their references.

    A reference is public, and made of earlier answers of the same journal. It can be as large
    as a message may be, in each of many rounds, and nothing that reads a journal needs it.
    """
    if isinstance(question, questions.SelectQuestion | questions.ScoreQuestion):
        candidates = tuple(replace(each, reference=()) for each in question.candidates)
        question = replace(question, candidates=candidates)
    return pack_question(question)


class Journal(Protocol):
    """Where entries are kept. `append` returns only once the entry is committed."""

    def entries(self) -> Sequence[JournalEntry]: ...
    def append(self, entry: JournalEntry) -> None: ...


class MemoryJournal:
    """A journal in memory, for tests and use as a library."""

    def __init__(self, entries: Sequence[JournalEntry] = ()) -> None:
        self._entries = list(entries)

    def entries(self) -> Sequence[JournalEntry]:
        return tuple(self._entries)

    def append(self, entry: JournalEntry) -> None:
        self._entries.append(entry)


@dataclass(frozen=True, slots=True)
class Exchange:
    """An entry read back; `answer` is None for a trusted call."""

    number: int
    question: questions.Question
    answer: questions.Kept | None
    loss: PrivacyLoss


def exchanges(entries: Sequence[JournalEntry]) -> Iterator[Exchange]:
    """Questions and answers of a journal, in order. Raises `FrameError` for a damaged one."""
    for entry in entries:
        question = decode_question(unpack(entry.question))
        if isinstance(question, questions.TrustedQuestion):
            yield Exchange(entry.number, question, None, entry.loss)
            continue
        answer = decode_answer(question, unpack(entry.answer))
        # Only a trusted call hands a table over, and it has no stored answer.
        assert not isinstance(answer, questions.HandedOver)
        yield Exchange(entry.number, question, answer, entry.loss)


def resolved(schema: Schema, entries: Sequence[JournalEntry]) -> Schema:
    """The schema with the values that were discovered; the release's model refers to these."""
    if all(column.discovers is None for column in schema.columns):
        return schema
    for exchange in exchanges(entries):
        if isinstance(exchange.answer, FoundValues):
            found = exchange.answer
            schema = schema.with_values(found.query.column, found.texts)
    return schema


Published = Measurement | Discovered | FoundValues | Scored | questions.AnsweredQuantile


@dataclass(frozen=True, slots=True)
class Record:
    """One noisy answer, the number of its question, and its privacy loss."""

    question: int
    answer: Published
    loss: PrivacyLoss


def measurements(entries: Sequence[JournalEntry]) -> list[Record]:
    """Every noisy answer of a journal, in the order measured.

    Selections are left out: the certificate lists their winners. Counts of the winners are
    included, since they were questions of their own.
    """
    return [record for exchange in exchanges(entries) for record in _records(exchange)]


def _records(exchange: Exchange) -> list[Record]:
    number, question, answer = exchange.number, exchange.question, exchange.answer
    if isinstance(question, questions.CountQuestion) and isinstance(answer, questions.Counted):
        pairs = zip(answer.measurements, question.losses, strict=True)
        return [Record(number, measured, loss) for measured, loss in pairs]
    if isinstance(question, questions.QuantileQuestion) and isinstance(answer, questions.Quantiled):
        return [Record(number, questions.AnsweredQuantile(question.query, answer), exchange.loss)]
    if isinstance(answer, Discovered | FoundValues | Scored):
        return [Record(number, answer, exchange.loss)]
    return []

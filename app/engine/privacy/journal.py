"""The journal of a release: every question charged, with the noisy answer it got."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from app.engine.privacy.loss import PrivacyLoss
from app.engine.privacy.messages import decode_answer, decode_question
from app.engine.privacy.queries import Discovered, Measurement, Scored
from app.engine.privacy.questions import (
    Counted,
    HandedOver,
    Kept,
    Question,
    TrustedQuestion,
)
from app.engine.privacy.wire import unpack


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """Question `number` (from 0), its SHA-256 in hex, both texts as packed frames, the charge.

    A trusted call has an empty answer: the table it handed over is nobody's to keep.
    """

    number: int
    question_hash: str
    question: bytes
    answer: bytes
    loss: PrivacyLoss


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
    question: Question
    answer: Kept | None
    loss: PrivacyLoss


def exchanges(entries: Sequence[JournalEntry]) -> Iterator[Exchange]:
    """Questions and answers of a journal, in order. Raises `FrameError` for a damaged one."""
    for entry in entries:
        question = decode_question(unpack(entry.question))
        if isinstance(question, TrustedQuestion):
            yield Exchange(entry.number, question, None, entry.loss)
            continue
        answer = decode_answer(question, unpack(entry.answer))
        assert not isinstance(answer, HandedOver)
        yield Exchange(entry.number, question, answer, entry.loss)


def measurements(entries: Sequence[JournalEntry]) -> list[Measurement | Discovered | Scored]:
    """Every noisy table of a journal, in the order measured."""
    tables: list[Measurement | Discovered | Scored] = []
    for exchange in exchanges(entries):
        match exchange.answer:
            case Counted():
                tables += exchange.answer.measurements
            case Discovered() | Scored():
                tables.append(exchange.answer)
    return tables

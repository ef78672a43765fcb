"""Both ends of the pipe: a synthesizer's session in its child, and the worker that serves it.

Neither end imports the kernel: the child must not be able to reach it, and the worker is
handed one. The conversation is

    worker: open        schema, unit, allowance, and the task (params, seed, public table)
    child:  a question  ->  worker: the answer, or `refused`
    child:  progress    (no answer)
    child:  result (the model, and a statement about it) | failure, and the end

An answer leaves only after the journal has committed it: a worker that is lost in between
must not have shown an answer that a second run would draw again. A question number that the
journal has already is answered from there, without noise, if it is the same question;
otherwise the session ends. Refusals are not journaled: they are functions of the question, the
schema and the charges so far, all public and all the same on a replay. So a refused question
may come again on a replay, or not, and nothing is learned either way.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Generic, Literal, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from app.engine.privacy.forms import Elsewhere, Form, Tagged
from app.engine.privacy.journal import Journal, JournalEntry, kept_question
from app.engine.privacy.loss import PrivacyLoss
from app.engine.privacy.messages import (
    SchemaField,
    UnitField,
    decode_answer,
    decode_question,
    encode_answer,
    pack_question,
    question_digest,
)
from app.engine.privacy.queries import BudgetExhausted, FoundValues, QuestionRefused
from app.engine.privacy.questions import Answer, Loss, Question, TrustedQuestion, ValuesQuestion
from app.engine.privacy.session_base import Session
from app.engine.privacy.wire import (
    MOST_BYTES_FROM_CHILD,
    MOST_BYTES_TO_CHILD,
    Channel,
    ChannelClosed,
    Frame,
    FrameError,
    is_too_large,
    pack,
    unpack,
)
from app.engine.schema import PrivacyUnit, Schema

# Questions of one session, refused ones included.
MOST_QUESTIONS = 100_000
MOST_PROGRESS = 10_000
LONGEST_STAGE = 64
_LONGEST_DETAIL = 4096
_STAGE = "A-Za-z0-9 ,.:()/_-"


@dataclass(frozen=True, slots=True)
class Opening(Form):
    """What a session starts with: public facts, and the job's own `task` and arrays."""

    schema: SchemaField
    unit: UnitField
    allowance: Loss
    task: Mapping[str, Any] = field(default_factory=dict)
    arrays: Elsewhere[tuple[NDArray[Any], ...]] = ()

    def to_frame(self) -> Frame:
        return Frame(_OPEN.write(self), self.arrays)

    @classmethod
    def from_frame(cls, frame: Frame) -> Opening:
        return _OPEN.read(frame.header, arrays=frame.arrays)


@dataclass(frozen=True, slots=True)
class _Refused(Form):
    reason: Literal["budget", "question"]
    message: str


@dataclass(frozen=True, slots=True)
class _Progress(Form):
    fraction: Annotated[float, Field(ge=0, le=1)]
    stage: Annotated[str, Field(max_length=LONGEST_STAGE, pattern=f"^[{_STAGE}]*$")]


@dataclass(frozen=True, slots=True)
class _Result(Form):
    _may_lack: ClassVar = {"statement": None}
    statement: Any = None


@dataclass(frozen=True, slots=True)
class _Failure(Form):
    detail: str


_OPEN = Tagged[Opening]({"open": Opening})
_REFUSED = Tagged[_Refused]({"refused": _Refused})
# What a child may send besides questions, which `decode_question` reads.
_REPORT = Tagged[Any]({"progress": _Progress, "result": _Result, "failure": _Failure})


class SessionEnded(Exception):
    """A session ended without a result. The text is fixed, whatever the rows."""


class ReplayDiverged(SessionEnded):
    """A run that was started again sent another question than before."""


class ProtocolBroken(SessionEnded):
    """The child sent what is no question, or too much."""


class ChildFailed(SessionEnded):
    """The synthesizer gave up, or its process went away.

    `detail` is what it said, for the custodian alone: a trusted synthesizer has seen rows.
    """

    def __init__(self, message: str, detail: str = "") -> None:
        super().__init__(message)
        self.detail = detail


class RemoteSession(Session):
    """A synthesizer's end: a session over a connected socket.

    Raises `BudgetExhausted` and `QuestionRefused` as the in-process form does, and
    `FrameError` when the worker has gone.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._channel = Channel(connection, MOST_BYTES_TO_CHILD)
        opening = Opening.from_frame(self._channel.receive())
        self.schema = opening.schema
        self.unit = opening.unit
        self.allowance = opening.allowance
        self.remaining = opening.allowance
        # The job that the worker handed over (JSON), and the public arrays that came with it.
        self.task = opening.task
        self.arrays = opening.arrays
        self._reported: tuple[float, str] | None = None
        self._reports = 0

    def progress(self, fraction: float, stage: str) -> None:
        """Reports how far the run is: `fraction` from 0 to 1, `stage` a few plain words.

        Steps of less than 0.1 % within a stage are not sent, nor is anything beyond the number
        of reports at which the worker would end the session."""
        report = (round(min(max(fraction, 0.0), 1.0), 3), _plain_stage(stage))
        if report != self._reported and self._reports < MOST_PROGRESS:
            self._reported = report
            self._reports += 1
            self._channel.send(Frame(_REPORT.write(_Progress(*report))))

    def finish(self, model: bytes, statement: Mapping[str, Any] | None = None) -> None:
        """Hands in the fitted model, which ends the session; `statement` is JSON about it."""
        header = _REPORT.write(_Result(statement))
        self._channel.send(Frame(header, (np.frombuffer(model, dtype=np.uint8),)))

    def fail(self, detail: str) -> None:
        """Gives up. `detail` is shown to the custodian alone."""
        self._channel.send(Frame(_REPORT.write(_Failure(detail[:_LONGEST_DETAIL]))))

    def _answer_to(self, question: Question) -> Answer:
        packed = pack_question(question)
        # The worker would end the session at such a frame; a refusal lets the run go on.
        if is_too_large(packed, MOST_BYTES_FROM_CHILD):
            raise QuestionRefused("the question is larger than a message to the kernel may be")
        self._channel.send_packed(packed)
        frame = self._channel.receive()
        if frame.header.get("type") == "refused":
            refused = _REFUSED.read(frame.header)
            kind = BudgetExhausted if refused.reason == "budget" else QuestionRefused
            raise kind(refused.message)
        answer = decode_answer(question, frame)
        self.remaining = self.remaining - question.loss
        if isinstance(answer, FoundValues):
            self.schema = self.schema.with_values(answer.query.column, answer.texts)
        return answer


def _plain_stage(stage: str) -> str:
    return re.sub(f"[^{_STAGE}]", "_", stage)[:LONGEST_STAGE]


class Admission(Protocol):
    """A question that was admitted, with its cost."""

    @property
    def loss(self) -> PrivacyLoss: ...


A = TypeVar("A", bound=Admission)


class Answering(Protocol[A]):
    """What the server needs of a kernel."""

    @property
    def schema(self) -> Schema: ...
    @property
    def unit(self) -> PrivacyUnit: ...
    @property
    def allowance(self) -> PrivacyLoss: ...

    def admit(self, question: Question) -> A: ...
    def answer(self, admitted: A) -> Answer: ...
    def recount(self, loss: PrivacyLoss) -> None: ...
    def adopt(self, found: FoundValues) -> None: ...


class ProgressListener(Protocol):
    """Receives a fraction in [0, 1] and a stage of plain ASCII, at most 64 characters."""

    def __call__(self, fraction: float, stage: str) -> None: ...


class SessionServer(Generic[A]):
    """The worker's end: answers one child until it hands in its model.

    `run` returns the model's bytes, after which `statement` is the JSON that was handed in with
    them, unchecked, or None. It raises `SessionEnded` (the child's doing), `KernelFailure`, or
    whatever the journal or the listener raise, such as a lost lease.
    """

    def __init__(
        self,
        connection: socket.socket,
        kernel: Answering[A],
        journal: Journal,
        on_progress: ProgressListener,
        *,
        task: Mapping[str, Any] | None = None,
        arrays: Sequence[NDArray[Any]] = (),
        most_bytes: int = MOST_BYTES_FROM_CHILD,
    ) -> None:
        self._channel = Channel(connection, most_bytes)
        self._kernel = kernel
        self._journal = journal
        self._recorded = tuple(journal.entries())
        self._on_progress = on_progress
        self._opening = Opening(
            kernel.schema, kernel.unit, kernel.allowance, task or {}, tuple(arrays)
        )
        self._charged = 0
        self._questions = 0
        self._reports = 0
        self.statement: Any = None

    def run(self) -> bytes:
        """Serves the child to its end and returns the model it handed in."""
        try:
            self._channel.send(self._opening.to_frame())
            return self._serve()
        except FrameError as error:
            raise _ended(error) from None

    def _serve(self) -> bytes:
        while True:
            frame = self._channel.receive()
            if frame.header.get("type") not in ("progress", "result", "failure"):
                self._channel.send_packed(self._reply(frame))
                continue
            report = _REPORT.read(frame.header)
            if isinstance(report, _Result):
                self.statement = report.statement
                return _model(frame)
            if isinstance(report, _Failure):
                raise ChildFailed("the synthesizer gave up", report.detail[:_LONGEST_DETAIL])
            self._report(report, frame.arrays)

    def _reply(self, frame: Frame) -> bytes:
        self._questions += 1
        if self._questions > MOST_QUESTIONS:
            raise ProtocolBroken("the synthesizer asked too many questions")
        try:
            question = decode_question(frame)
            admitted = self._kernel.admit(question)
        except BudgetExhausted as refusal:
            return _refused("budget", refusal)
        except QuestionRefused as refusal:
            return _refused("question", refusal)
        return self._answer(question, admitted)

    def _answer(self, question: Question, admitted: A) -> bytes:
        digest = question_digest(pack_question(question))
        number = self._charged
        if number < len(self._recorded):
            answer = self._replayed(self._recorded[number], question, digest)
        else:
            answer = pack(encode_answer(self._kernel.answer(admitted)))
            kept = b"" if isinstance(question, TrustedQuestion) else answer
            entry = JournalEntry(number, digest, kept_question(question), kept, admitted.loss)
            # Before the answer is returned, and so before it is sent: see the module's text.
            self._journal.append(entry)
        self._charged += 1
        return answer

    def _replayed(self, entry: JournalEntry, question: Question, digest: str) -> bytes:
        if entry.number != self._charged or entry.question_hash != digest:
            raise ReplayDiverged("the run that was started again asked another question")
        if not entry.answer:
            # What a trusted synthesizer draws by itself cannot be drawn twice for one charge.
            raise ReplayDiverged("a trusted call cannot be repeated")
        self._kernel.recount(entry.loss)
        if isinstance(question, ValuesQuestion):
            found = decode_answer(question, unpack(entry.answer))
            assert isinstance(found, FoundValues)
            self._kernel.adopt(found)
        return entry.answer

    def _report(self, progress: _Progress, arrays: tuple[NDArray[Any], ...]) -> None:
        self._reports += 1
        if self._reports > MOST_PROGRESS:
            raise ProtocolBroken("the synthesizer reported progress too often")
        if arrays:
            raise FrameError("progress comes without arrays")
        self._on_progress(progress.fraction, progress.stage)


def _ended(error: FrameError) -> SessionEnded:
    if isinstance(error, ChannelClosed):
        return ChildFailed("the synthesizer's process has gone")
    return ProtocolBroken("the synthesizer sent what is no question")


def _model(frame: Frame) -> bytes:
    if len(frame.arrays) != 1 or frame.arrays[0].dtype != np.uint8 or frame.arrays[0].ndim != 1:
        raise FrameError("a result is the bytes of one model")
    return frame.arrays[0].tobytes()


def _refused(reason: Literal["budget", "question"], refusal: Exception) -> bytes:
    return pack(Frame(_REFUSED.write(_Refused(reason, str(refusal)))))

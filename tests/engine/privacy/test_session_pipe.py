from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from app.engine.grouping import Grouping
from app.engine.privacy.journal import JournalEntry, MemoryJournal, measurements
from app.engine.privacy.kernel import Kernel
from app.engine.privacy.loss import PrivacyLoss
from app.engine.privacy.messages import (
    decode_question,
    encode_question,
    pack_question,
    question_digest,
)
from app.engine.privacy.queries import (
    BudgetExhausted,
    Candidate,
    Contribution,
    Count,
    GridReference,
    KernelFailure,
    Measurement,
    QuestionRefused,
    Scored,
)
from app.engine.privacy.questions import CountQuestion, SelectQuestion
from app.engine.privacy.session import (
    MOST_PROGRESS,
    ChildFailed,
    ProtocolBroken,
    RemoteSession,
    ReplayDiverged,
    SessionServer,
)
from app.engine.privacy.source import ArraySource
from app.engine.privacy.wire import Frame, FrameError, pack, unpack
from app.engine.schema import PrivacyUnit, Schema

ONE = 10**12
RHO = PrivacyLoss.zcdp(ONE)
SCHEMA = Schema.parse(
    {
        "fields": [
            {"name": "a", "type": "integer", "constraints": {"minimum": 0, "maximum": 3}},
            {"name": "b", "type": "integer", "constraints": {"minimum": 0, "maximum": 2}},
        ]
    }
)


def source() -> ArraySource:
    codes = {"a": np.arange(60) % 5, "b": np.arange(60) % 4}
    return ArraySource(SCHEMA, PrivacyUnit("row"), codes)


class Conversation:
    """A worker's end in this thread and a child's in another, over a socket pair."""

    def __init__(
        self,
        child: Callable[[socket.socket], None],
        journal: MemoryJournal | None = None,
        allowance: PrivacyLoss = PrivacyLoss.zcdp(10 * ONE),
        kernel: Any = None,
        trusted: bool = False,
        **options: Any,
    ) -> None:
        self.journal = MemoryJournal() if journal is None else journal
        self.kernel = kernel or Kernel(source(), allowance, trusted=trusted)
        self.progress: list[tuple[float, str]] = []
        self._options = options
        self._child = child

    def run(self) -> bytes:
        ours, theirs = socket.socketpair()
        ours.settimeout(30)
        child = threading.Thread(target=self._talk, args=(theirs,))
        child.start()
        try:
            server = SessionServer(
                ours,
                self.kernel,
                self.journal,
                lambda fraction, stage: self.progress.append((fraction, stage)),
                **self._options,
            )
            return server.run()
        finally:
            ours.close()
            child.join(30)
            assert not child.is_alive()

    def _talk(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):  # the worker hangs up on hostile children
            self._child(connection)


def ask_and_finish(connection: socket.socket) -> None:
    session = RemoteSession(connection)
    counted = session.count([Count(("a",)), Count(("a", "b"))], RHO, shares=[1, 3])
    winners = session.select([Candidate(Count(("b",)), (np.ones(4),))], RHO)
    report = {
        "values": [measurement.values.tolist() for measurement in counted],
        "winners": winners,
        "remaining": session.remaining.amount,
    }
    session.finish(json.dumps(report).encode())


def score_and_finish(connection: socket.socket) -> None:
    session = RemoteSession(connection)
    candidates = [
        Candidate(Count(("a", "b")), (np.arange(5.0), np.ones(4)), weight=2.0),
        Candidate(Count(("b",)), (np.full(4, 15.5),)),
    ]
    scored = session.scores(candidates, RHO)
    report = {
        "values": scored.values.tolist(),
        "errors": scored.standard_error.tolist(),
        "columns": [count.columns for count in scored.counts],
        "remaining": session.remaining.amount,
    }
    session.finish(json.dumps(report).encode())


def raw(frame: Frame) -> Callable[[socket.socket], None]:
    """A child that reads the opening and then sends this frame."""

    def child(connection: socket.socket) -> None:
        RemoteSession(connection)
        connection.sendall(pack(frame))
        connection.recv(2**20)

    return child


def test_a_child_asks_and_hands_in_its_model() -> None:
    conversation = Conversation(ask_and_finish)
    report = json.loads(conversation.run())
    assert np.shape(report["values"][1]) == (5, 4)
    assert report["winners"] == [0]
    assert report["remaining"] == 8 * ONE == conversation.kernel.remaining.amount


def test_scores_are_journaled_and_told_again_on_a_replay() -> None:
    conversation = Conversation(score_and_finish)
    told = conversation.run()
    report = json.loads(told)
    assert report["columns"] == [["a", "b"], ["b"]]
    assert report["errors"][1] == pytest.approx(2 * report["errors"][0])
    assert report["remaining"] == 9 * ONE == conversation.kernel.remaining.amount
    (kept,) = measurements(conversation.journal.entries())
    assert isinstance(kept.answer, Scored)
    assert kept.answer.values.tolist() == report["values"]
    replayed = Conversation(score_and_finish, MemoryJournal(conversation.journal.entries()))
    assert replayed.run() == told
    assert replayed.kernel.remaining.amount == 9 * ONE
    assert len(replayed.journal.entries()) == 1


def test_a_large_reference_stays_out_of_the_journal_but_not_out_of_the_hash() -> None:
    def scoring(level: float) -> Callable[[socket.socket], None]:
        def child(connection: socket.socket) -> None:
            asked = RemoteSession(connection)
            with contextlib.suppress(FrameError):  # the worker hangs up on another question
                asked.scores([Candidate(Count(("a", "b")), (np.full((5, 4), level),))], RHO)
                asked.finish(b"done")

        return child

    conversation = Conversation(scoring(1e6))
    conversation.run()
    (entry,) = conversation.journal.entries()
    assert unpack(entry.question).arrays == ()
    with pytest.raises(ReplayDiverged):
        Conversation(scoring(1e6 + 1 / 1024), MemoryJournal([entry])).run()
    Conversation(scoring(1e6), MemoryJournal([entry])).run()


def test_a_question_larger_than_a_message_is_refused_before_it_is_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("app.engine.privacy.session.MOST_BYTES_FROM_CHILD", 2**16)

    def child(connection: socket.socket) -> None:
        asked = RemoteSession(connection)
        wide = GridReference(np.zeros(2**16, dtype=np.int8))
        many = [Candidate(Count(("a",)), (np.ones(5),))] * 1000
        for candidates in ([Candidate(Count(("a",)), wide)], many):
            with pytest.raises(QuestionRefused, match="larger"):
                asked.scores(candidates, RHO)
        assert asked.remaining == asked.allowance
        asked.scores(many[:10], RHO)
        asked.finish(b"done")

    conversation = Conversation(child)
    assert conversation.run() == b"done"
    assert conversation.kernel.remaining.amount == 9 * ONE


def test_a_question_without_references_is_refused() -> None:
    def child(connection: socket.socket) -> None:
        asked = RemoteSession(connection)
        for ask in (asked.scores, asked.select):
            with pytest.raises(QuestionRefused, match="reference"):
                ask([Candidate(Count(("a",)), ()), Candidate(Count(()), ())], RHO)
        asked.finish(b"done")

    conversation = Conversation(child)
    assert conversation.run() == b"done"
    assert conversation.kernel.remaining.amount == 10 * ONE


def test_the_journal_holds_what_the_child_saw() -> None:
    conversation = Conversation(ask_and_finish)
    report = json.loads(conversation.run())
    kept = measurements(conversation.journal.entries())
    answers = [record.answer for record in kept]
    values = [each.values.tolist() for each in answers if isinstance(each, Measurement)]
    assert (values, len(answers)) == (report["values"], len(values))
    for number, entry in enumerate(conversation.journal.entries()):
        assert entry.number == number
        assert entry.loss == RHO
        question = decode_question(unpack(entry.question))
        if isinstance(question, SelectQuestion):  # the hash is of the references too
            (candidate,) = question.candidates
            assert (candidate.count, candidate.reference) == (Count(("b",)), ())
            whole = Candidate(candidate.count, (np.ones(4),))
            question = replace(question, candidates=(whole,))
        assert entry.question_hash == question_digest(pack_question(question))


def test_a_replay_gives_the_same_answers_without_new_noise_or_new_charge() -> None:
    first = Conversation(ask_and_finish)
    model = first.run()
    again = Conversation(ask_and_finish, MemoryJournal(first.journal.entries()))
    assert again.run() == model
    assert again.kernel.remaining == first.kernel.remaining
    assert again.journal.entries() == first.journal.entries()


def test_a_replay_of_a_part_draws_noise_only_for_the_rest() -> None:
    first = Conversation(ask_and_finish)
    model = json.loads(first.run())
    again = Conversation(ask_and_finish, MemoryJournal(first.journal.entries()[:1]))
    assert json.loads(again.run())["values"] == model["values"]
    assert len(again.journal.entries()) == 2


def test_another_question_on_a_replay_ends_the_session() -> None:
    def other(connection: socket.socket) -> None:
        RemoteSession(connection).count([Count(("b",))], RHO)

    first = Conversation(ask_and_finish)
    first.run()
    again = Conversation(ignoring_the_end(other), MemoryJournal(first.journal.entries()))
    with pytest.raises(ReplayDiverged):
        again.run()


def ignoring_the_end(child: Callable[[socket.socket], None]) -> Callable[[socket.socket], None]:
    def quiet(connection: socket.socket) -> None:
        try:
            child(connection)
        except Exception:
            return

    return quiet


def test_a_refusal_is_an_answer_and_changes_nothing() -> None:
    seen: list[str] = []

    def child(connection: socket.socket) -> None:
        session = RemoteSession(connection)
        for question, loss in (
            (Count(("a",)), PrivacyLoss.zcdp(11 * ONE)),
            (Count(("nobody",)), RHO),
            (Count(("a",), {"a": Grouping.identity(2, 0)}), RHO),
        ):
            try:
                session.count([question], loss)
            except (BudgetExhausted, QuestionRefused) as refusal:
                seen.append(type(refusal).__name__)
        session.count([Count(("a",))], PrivacyLoss.zcdp(10 * ONE))
        session.finish(b"")

    conversation = Conversation(child)
    conversation.run()
    assert seen == ["BudgetExhausted", "QuestionRefused", "QuestionRefused"]
    assert len(conversation.journal.entries()) == 1


def test_refusals_may_come_and_go_on_a_replay() -> None:
    def asks(refused: int) -> Callable[[socket.socket], None]:
        def child(connection: socket.socket) -> None:
            session = RemoteSession(connection)
            for _ in range(refused):
                with pytest.raises(BudgetExhausted):
                    session.count([Count(("a",))], PrivacyLoss.zcdp(11 * ONE))
            (answer,) = session.count([Count(("a",))], RHO)
            session.finish(json.dumps(answer.values.tolist()).encode())

        return child

    first = Conversation(asks(refused=0))
    model = first.run()
    again = Conversation(asks(refused=3), first.journal)
    assert again.run() == model
    assert again.kernel.remaining == first.kernel.remaining


def test_no_answer_leaves_before_the_journal_has_it() -> None:
    received: list[object] = []

    class Lost(Exception):
        pass

    class LosingJournal(MemoryJournal):
        def append(self, entry: JournalEntry) -> None:
            raise Lost(entry.number)

    def child(connection: socket.socket) -> None:
        received.append(RemoteSession(connection).count([Count(("a",))], RHO))

    with pytest.raises(Lost):
        Conversation(ignoring_the_end(child), LosingJournal()).run()
    assert received == []


def test_a_trusted_call_is_journaled_without_its_table_and_cannot_be_replayed() -> None:
    def child(connection: socket.socket) -> None:
        session = RemoteSession(connection)
        table = session.trusted_call(RHO)
        session.finish(str(int(table.codes["a"].sum())).encode())

    first = Conversation(ignoring_the_end(child), trusted=True)
    assert int(first.run()) == int((np.arange(60) % 5).sum())
    (entry,) = first.journal.entries()
    assert entry.answer == b""
    again = Conversation(ignoring_the_end(child), first.journal, trusted=True)
    with pytest.raises(ReplayDiverged):
        again.run()


def test_a_trusted_call_is_refused_to_others() -> None:
    def child(connection: socket.socket) -> None:
        session = RemoteSession(connection)
        with pytest.raises(QuestionRefused):
            session.trusted_call(RHO)
        session.finish(b"refused")

    assert Conversation(child).run() == b"refused"


def test_progress_reaches_the_listener_and_repeats_are_left_out() -> None:
    def child(connection: socket.socket) -> None:
        session = RemoteSession(connection)
        for fraction in (0.1, 0.1, 0.10001, 0.5, 7.0):
            session.progress(fraction, "measuring pairs")
        session.progress(0.9, "säyings\n<b>")
        session.finish(b"")

    conversation = Conversation(child)
    conversation.run()
    assert conversation.progress == [
        (0.1, "measuring pairs"),
        (0.5, "measuring pairs"),
        (1.0, "measuring pairs"),
        (0.9, "s_yings__b_"),
    ]


def test_the_opening_brings_task_and_public_arrays() -> None:
    def child(connection: socket.socket) -> None:
        session = RemoteSession(connection)
        assert session.schema == SCHEMA
        assert session.unit == PrivacyUnit("row")
        session.finish(json.dumps([session.task, session.arrays[0].tolist()]).encode())

    told = Conversation(child, task={"seed": 7}, arrays=[np.arange(3)]).run()
    assert json.loads(told) == [{"seed": 7}, [0, 1, 2]]


def test_a_child_that_dies_or_gives_up_fails() -> None:
    def dies(connection: socket.socket) -> None:
        RemoteSession(connection)

    def gives_up(connection: socket.socket) -> None:
        RemoteSession(connection).fail("row 7 is Ada Lovelace")

    with pytest.raises(ChildFailed):
        Conversation(dies).run()
    with pytest.raises(ChildFailed) as failure:
        Conversation(gives_up).run()
    assert "Ada" not in str(failure.value)
    assert "Ada" in failure.value.detail


def test_what_fails_inside_the_kernel_always_reads_the_same() -> None:
    class Damaged(ArraySource):
        def chunks(self, columns: Any) -> Any:
            raise OSError(f"{columns} of Ada Lovelace are damaged")

    kernel = Kernel(
        Damaged(SCHEMA, PrivacyUnit("row"), {"a": np.zeros(1, int), "b": np.zeros(1, int)}), RHO
    )

    def child(connection: socket.socket) -> None:
        RemoteSession(connection).count([Count(("a",))], RHO)

    with pytest.raises(KernelFailure) as failure:
        Conversation(ignoring_the_end(child), kernel=kernel).run()
    assert str(failure.value) == str(KernelFailure())
    assert isinstance(failure.value.__cause__, OSError)


def header_bytes(header: bytes, body: bytes = b"", body_size: int | None = None) -> bytes:
    size = len(body) if body_size is None else body_size
    return struct.pack("<4sIQ", b"HTF1", len(header), size) + header + body


GARBAGE = {
    "noise": os.urandom(64),
    "nothing like a frame": b"GET / HTTP/1.1\r\n\r\n",
    "a huge header": struct.pack("<4sIQ", b"HTF1", 2**31, 0),
    "a huge body": struct.pack("<4sIQ", b"HTF1", 2, 2**62) + b"{}",
    "deep nesting": header_bytes(b"[" * 100_000),
    "no object": header_bytes(b"[1]"),
    "not a number": header_bytes(b'{"type":"progress","fraction":NaN,"stage":"","arrays":[]}'),
    "many digits": header_bytes(b'{"type":' + b"9" * 5000 + b',"arrays":[]}'),
    "no arrays": header_bytes(b'{"type":"count"}'),
    "an object array": header_bytes(b'{"arrays":[{"dtype":"|O","shape":[1]}]}', b"x" * 8),
    "a wrong shape": header_bytes(b'{"arrays":[{"dtype":"<f8","shape":[2]}]}', b"x" * 8),
    "a negative shape": header_bytes(b'{"arrays":[{"dtype":"<f8","shape":[-1]}]}', b""),
    "an overflowing shape": header_bytes(
        b'{"arrays":[{"dtype":"<f8","shape":[0,4294967295,4294967295,4294967295]}]}'
    ),
    "left over bytes": header_bytes(b'{"arrays":[]}', b"x"),
    "bad text": header_bytes(b'{"type":"\xff"}'),
}


@pytest.mark.parametrize("garbage", GARBAGE.values(), ids=GARBAGE.keys())
def test_garbage_ends_the_session(garbage: bytes) -> None:
    def child(connection: socket.socket) -> None:
        RemoteSession(connection)
        connection.sendall(garbage)

    conversation = Conversation(child)
    with pytest.raises((ProtocolBroken, ChildFailed)):
        conversation.run()
    assert conversation.kernel.remaining == conversation.kernel.allowance


def changed(**fields: Any) -> Frame:
    frame = encode_question(CountQuestion((Count(("a",)),), RHO))
    return Frame({**frame.header, **fields}, frame.arrays)


QUERY = encode_question(CountQuestion((Count(("a",)),), RHO)).header["queries"][0]
FORGED = {
    "an unknown type": Frame({"type": "rows please"}),
    "no type": Frame({}),
    "a list for a type": Frame({"type": ["count"]}),
    "an extra field": changed(password="x"),
    "queries of text": changed(queries="a"),
    "a query of text": changed(queries=["a"]),
    "a loss of text": changed(loss="1"),
    "a negative loss": changed(loss={"kind": "zcdp", "amount": -ONE, "delta": 0}),
    "a bool for an amount": changed(loss={"kind": "zcdp", "amount": True, "delta": 0}),
    "a float for an amount": changed(loss={"kind": "zcdp", "amount": 1.5, "delta": 0}),
    "an unknown kind": changed(loss={"kind": "free", "amount": 0, "delta": 0}),
    "an unknown rule": changed(queries=[{**QUERY, "rule": "all"}]),
    "a grouping elsewhere": changed(queries=[{**QUERY, "groupings": {"a": 3}}]),
    "a grouping of text": changed(groupings=["a"]),
    "a grouping of floats": changed(groupings=[{"tail": 0, "edges": [0, 1.5]}]),
    "a grouping without edges": changed(groupings=[{"tail": 0}]),
    "a grouping with an extra field": changed(groupings=[{"tail": 0, "regular": 4, "z": 0}]),
    "a grouping that says its codes twice": changed(
        groupings=[{"tail": 0, "regular": 4, "edges": [0, 4]}]
    ),
    "a query with an extra field": changed(queries=[{**QUERY, "password": "x"}]),
    "a float for a limit": changed(queries=[{**QUERY, "rule": "distinct", "limit": 2.0}]),
    "a loss with an extra field": changed(
        loss={"kind": "zcdp", "amount": ONE, "delta": 0, "epsilon": 1}
    ),
    "a text for a share": changed(shares=["1"]),
    "a bool for a share": changed(shares=[True]),
    "progress with an extra field": Frame(
        {"type": "progress", "fraction": 0, "stage": "", "rows": 7}
    ),
    "a stage of two lines": Frame({"type": "progress", "fraction": 0, "stage": "a\n"}),
    "a failure that says no text": Frame({"type": "failure", "detail": 7}),
    "progress beyond 1": Frame({"type": "progress", "fraction": 2, "stage": ""}),
    "progress with data": Frame({"type": "progress", "fraction": 0, "stage": "x" * 65}),
    "progress with an array": Frame(
        {"type": "progress", "fraction": 0, "stage": ""}, (np.zeros(3),)
    ),
    "a result without a model": Frame({"type": "result"}),
    "a result of floats": Frame({"type": "result"}, (np.zeros(3),)),
}


@pytest.mark.parametrize("frame", FORGED.values(), ids=FORGED.keys())
def test_a_forged_frame_ends_the_session_uncharged(frame: Frame) -> None:
    conversation = Conversation(ignoring_the_end(raw(frame)))
    with pytest.raises(ProtocolBroken):
        conversation.run()
    assert conversation.kernel.remaining == conversation.kernel.allowance


UNWELCOME = {
    "nothing asked": changed(queries=[]),
    "shares of 0": changed(shares=[0]),
    "too many shares": changed(shares=[1, 2]),
    "a loss of the other kind": changed(loss={"kind": "pure", "amount": ONE, "delta": 0}),
    "no loss": changed(loss={"kind": "zcdp", "amount": 0, "delta": 0}),
    "a share that buys nothing": changed(queries=[QUERY, QUERY], shares=[1, 5e-324]),
    "a huge grouping": changed(groupings=[{"tail": 0, "regular": 2**40}]),
    "huge groupings": changed(groupings=[{"tail": 0, "regular": 2**20}] * 5),
    "huge groupings beside a negative one": changed(
        groupings=[{"tail": 0, "regular": 2**20}] * 64 + [{"tail": 0, "regular": -(2**26)}]
    ),
    "edges that fall": changed(groupings=[{"tail": 0, "edges": [0, 3, 2]}]),
    "a column twice": changed(queries=[{**QUERY, "columns": ["a", "a"]}]),
    "a limit of 0": changed(queries=[{**QUERY, "rule": "distinct", "limit": 0}]),
    "no limit": changed(queries=[{**QUERY, "rule": "distinct"}]),
}


@pytest.mark.parametrize("frame", UNWELCOME.values(), ids=UNWELCOME.keys())
def test_an_unwelcome_question_is_refused_and_the_session_goes_on(frame: Frame) -> None:
    def child(connection: socket.socket) -> None:
        session = RemoteSession(connection)
        connection.sendall(pack(frame))
        answer = session._channel.receive()
        session.count([Count(("a",))], RHO)
        session.finish(answer.header["type"].encode())

    conversation = Conversation(child)
    assert conversation.run() == b"refused"
    assert conversation.kernel.remaining.amount == 9 * ONE


def test_no_grouping_is_made_before_all_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    monkeypatch.setattr(Grouping, "from_json", made.append)
    with pytest.raises(QuestionRefused, match="too many cells"):
        decode_question(UNWELCOME["huge groupings beside a negative one"])
    assert made == []


@pytest.mark.parametrize(
    "reference",
    [
        (np.array([1.0, np.nan, 0, 0]),),
        (np.array([1.0, np.inf, 0, 0]),),
        (np.full(4, 1e300),),
        (np.zeros(3),),
        (np.zeros((4, 1)),),
        (np.zeros(4), np.zeros(4)),
        (),
    ],
    ids=["nan", "inf", "huge", "short", "two-dimensional", "two factors", "none"],
)
def test_a_malformed_reference_is_refused(reference: tuple[Any, ...]) -> None:
    def child(connection: socket.socket) -> None:
        session = RemoteSession(connection)
        with pytest.raises(QuestionRefused):
            session.select([Candidate(Count(("b",)), reference)], RHO)
        session.finish(b"refused")

    assert Conversation(child).run() == b"refused"


def test_a_talkative_synthesizer_is_heard_to_the_limit_and_finishes() -> None:
    def child(connection: socket.socket) -> None:
        session = RemoteSession(connection)
        for step in range(MOST_PROGRESS + 50):
            session.progress(0.5, f"step {step}")
        session.finish(b"done")

    conversation = Conversation(child)
    assert conversation.run() == b"done"
    assert len(conversation.progress) == MOST_PROGRESS


def test_a_flood_of_progress_ends_the_session() -> None:
    def child(connection: socket.socket) -> None:
        RemoteSession(connection)
        frame = pack(Frame({"type": "progress", "fraction": 0.5, "stage": "again"}))
        connection.sendall(frame * (MOST_PROGRESS + 1))
        connection.recv(1)

    conversation = Conversation(child)
    with pytest.raises(ProtocolBroken):
        conversation.run()
    assert len(conversation.progress) == MOST_PROGRESS


def test_a_flood_of_questions_ends_the_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.engine.privacy.session.MOST_QUESTIONS", 20)

    def child(connection: socket.socket) -> None:
        session = RemoteSession(connection)
        while True:
            try:
                session.count([Count(("nobody",))], RHO)
            except QuestionRefused:
                continue

    with pytest.raises(ProtocolBroken):
        Conversation(ignoring_the_end(child)).run()


def test_a_model_beyond_the_limit_is_refused() -> None:
    def child(connection: socket.socket) -> None:
        RemoteSession(connection).finish(bytes(2000))

    with pytest.raises(ProtocolBroken):
        Conversation(child, most_bytes=1000).run()


def test_every_rule_and_grouping_survives_the_pipe() -> None:
    grouping = Grouping((0, 2, 4), 1, (0, 1, 0))

    def child(connection: socket.socket) -> None:
        session = RemoteSession(connection)
        asked = [
            Count(("a", "b"), {"a": grouping}),
            Count(("b",), contribution=Contribution("distinct", limit=2)),
            Count((), contribution=Contribution("one")),
            Count(("a",), {"a": grouping}, Contribution("clipped", norm=0.5)),
        ]
        answered = session.count(asked, RHO)
        assert [measurement.count for measurement in answered] == asked
        assert [measurement.shape for measurement in answered] == [(2, 4), (4,), (), (2,)]
        session.finish(b"")

    Conversation(child).run()

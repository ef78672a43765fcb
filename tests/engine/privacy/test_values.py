"""Values that are found: whose they are, what is told, and what goes on from there."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.engine.privacy import bounding, units
from app.engine.privacy.bounding import bound_rows
from app.engine.privacy.certificate import Certificate
from app.engine.privacy.journal import MemoryJournal, exchanges, measurements, resolved
from app.engine.privacy.kernel import Kernel
from app.engine.privacy.library import LocalSession
from app.engine.privacy.loss import Accountant, Charge, Guarantee, PrivacyLoss
from app.engine.privacy.messages import (
    decode_answer,
    decode_question,
    encode_answer,
    encode_question,
)
from app.engine.privacy.planning import Planner, ValuesPlan
from app.engine.privacy.publication import measurement_to_wire, measurements_to_arrow
from app.engine.privacy.queries import BudgetExhausted, Count, QuestionRefused, Values
from app.engine.privacy.questions import ValuesQuestion
from app.engine.privacy.session import RemoteSession, ReplayDiverged, SessionServer
from app.engine.privacy.source import NO_TEXT, ArraySource
from app.engine.privacy.values import ResolvedCodes, exact_values
from app.engine.privacy.wire import Frame, FrameError, pack, unpack
from app.engine.schema import PrivacyUnit, Schema

ONE = 10**12
LOSS = PrivacyLoss.zcdp(ONE, 10**12)  # sigma 0.7 for one value of a unit, delta 1e-6
ROW = PrivacyUnit("row")


def dictionary(entity: bool = False, most: object = "discover") -> Schema:
    fields: list[dict[str, Any]] = [
        {"name": "town", "type": "string", "values": most, "other": "Other"},
        {"name": "size", "type": "integer", "constraints": {"minimum": 0, "maximum": 3}},
    ]
    if entity:
        fields.append({"name": "id", "type": "string", "role": "entity"})
    return Schema.parse({"fields": fields})


def source_of(
    towns: list[str | None],
    unit: PrivacyUnit = ROW,
    owners: list[int] | None = None,
    most: object = "discover",
) -> ArraySource:
    """A null town is null, the town `Other` has no number; `size` is the length of its name."""
    schema = dictionary(unit.kind == "entity", most)
    null = schema.column("town").null_code
    codes = {
        "town": np.array([null if town is None else 0 for town in towns], dtype=np.int64),
        "size": np.array([len(town or "") % 4 for town in towns], dtype=np.int64),
    }
    texts = {"town": [None if town == "Other" else town for town in towns]}
    ids = None if owners is None else np.array(owners, dtype=np.int64)
    return ArraySource(schema, unit, codes, ids, chunk_size=7, texts=texts)


def open_on(source: ArraySource, times: int = 1) -> LocalSession:
    return LocalSession(Kernel(source, PrivacyLoss.zcdp(LOSS.amount * times, LOSS.delta * times)))


TOWNS: list[str | None] = ["Ur"] * 40 + ["Eridu"] * 60 + [None] * 30 + ["Other"] * 30 + ["Kish"]


def test_frequent_values_come_out_sorted_and_a_single_one_does_not() -> None:
    found = open_on(source_of(TOWNS)).find_values(Values("town"), LOSS)
    assert found.texts == ("Eridu", "Ur")
    assert np.abs(found.values - [60, 40]).max() < 7
    assert found.threshold == 5


def test_questions_that_follow_are_about_the_values_found() -> None:
    session = open_on(source_of(TOWNS), 2)
    before = session.schema
    session.find_values(Values("town"), LOSS)
    assert before.column("town").labels() == ["Other", "null"]
    assert session.schema.column("town").labels() == ["Eridu", "Ur", "Other", "null"]
    (counted,) = session.count([Count(("town", "size"))], PrivacyLoss.zcdp(ONE))
    # Eridu has five letters, Ur two; Kish is among the others, null has no name.
    exact = [[0, 60, 0, 0, 0], [0, 0, 40, 0, 0], [1, 30, 0, 0, 0], [30, 0, 0, 0, 0]]
    assert np.abs(counted.values - exact).max() < 7


def test_the_order_of_rows_and_so_the_private_numbering_changes_nothing() -> None:
    for towns in (TOWNS, TOWNS[::-1], sorted(TOWNS, key=str)):
        texts, counts = exact_values(source_of(towns), bound_rows(source_of(towns)), "town", 1)
        assert texts == ("Eridu", "Kish", "Ur")
        assert counts.tolist() == [60, 1, 40]


def test_only_the_most_frequent_are_told_if_the_dictionary_says_how_many() -> None:
    towns: list[str | None] = [name for i, name in enumerate("abcdef") for _ in range(50 * i + 30)]
    found = open_on(source_of(towns, most={"discover": 2})).find_values(Values("town"), LOSS)
    assert found.texts == ("e", "f")


@pytest.mark.parametrize("towns", [[], [None, "Other"], ["Ur", "Kish"]])
def test_nothing_is_found_where_nothing_is_frequent(towns: list[str | None]) -> None:
    journal = MemoryJournal()
    texts, counted, schema = served(source_of(towns), journal, ask)
    assert (texts, len(counted)) == ((), 2)
    assert resolved(dictionary(), journal.entries()) == schema == dictionary()
    tables = measurements(journal.entries())
    assert measurement_to_wire(tables[0], schema)["listed"] == []
    assert measurements_to_arrow(tables, schema).num_rows == 2


town = st.sampled_from(["a", "b", "c", "d", "Other", None])
entity = st.lists(town, min_size=1, max_size=6)


@settings(max_examples=80, deadline=None)
@given(
    others=st.lists(entity, max_size=4),
    added=entity,
    max_rows=st.integers(1, 4),
    limit=st.integers(1, 3),
    seed=st.integers(0, 2**32),
)
def test_an_entity_moves_few_values_by_one(
    others: list[list[str | None]],
    added: list[str | None],
    max_rows: int,
    limit: int,
    seed: int,
) -> None:
    unit = PrivacyUnit("entity", "id", max_rows)
    keys = np.random.default_rng(seed).integers(0, 2**63, 1000).astype(np.uint64)
    found = []
    with pytest.MonkeyPatch.context() as patch:
        for module in (bounding, units):
            patch.setattr(module, "random_keys", lambda count: keys[:count])
        for people in (others, [*others, added]):
            towns = [name for person in people for name in person]
            owners = [number for number, person in enumerate(people) for _ in person]
            source = source_of(towns, unit, owners)
            texts, counts = exact_values(source, bound_rows(source), "town", limit)
            found.append(dict(zip(texts, counts.tolist(), strict=True)))
    smaller, larger = found
    assert set(smaller) <= set(larger)
    moved = {key: count - smaller.get(key, 0) for key, count in larger.items()}
    changed = [change for change in moved.values() if change]
    assert set(changed) <= {1}
    planner = Planner(dictionary(entity=True), unit, "zcdp")
    plan = planner.plan(ValuesQuestion(Values("town", limit), LOSS))
    assert isinstance(plan, ValuesPlan)
    assert len(changed) <= plan.unit.l1 == min(limit, max_rows)


@settings(max_examples=50, deadline=None)
@given(towns=st.lists(town, max_size=30), known=st.sets(st.sampled_from("abcdz")))
def test_resolved_rows_have_the_code_of_their_own_value(
    towns: list[str | None], known: set[str]
) -> None:
    source = source_of(towns)
    schema = source.schema.with_values("town", sorted(known))
    chunks = [chunk["town"] for chunk in ResolvedCodes(source, schema).chunks(["town", "size"])]
    codes = np.concatenate([np.zeros(0, np.uint8), *chunks])
    expected = [name if name is None or name in known else "Other" for name in towns]
    assert schema.column("town").decode(codes).to_pylist() == expected


def test_values_are_found_first_once_and_for_some_delta() -> None:
    rho = PrivacyLoss.zcdp(ONE)
    for ask in (
        lambda session: session.find_values(Values("town"), rho),
        lambda session: session.find_values(Values("size"), LOSS),
        lambda session: session.find_values(Values("nothing"), LOSS),
        lambda session: [session.find_values(Values("town"), LOSS) for _ in range(2)],
        lambda session: [session.count([Count()], rho), session.find_values(Values("town"), LOSS)],
    ):
        with pytest.raises(QuestionRefused):
            ask(open_on(source_of(TOWNS), 2))
    with pytest.raises(BudgetExhausted):
        open_on(source_of(TOWNS)).find_values(Values("town"), PrivacyLoss.zcdp(ONE, 10**13))
    with pytest.raises(QuestionRefused):
        pure = PrivacyLoss.pure(ONE)
        LocalSession(Kernel(source_of(TOWNS), pure)).find_values(Values("town"), pure)
    with pytest.raises(ValueError, match="at least 1"):
        Values("town", 0)


def served(source: ArraySource, journal: MemoryJournal, ask: Any) -> Any:
    """What `ask` makes of a session whose kernel is at the other end of a pipe."""
    ours, theirs = socket.socketpair()
    told: dict[str, Any] = {}

    def child() -> None:
        session = RemoteSession(theirs)
        with contextlib.suppress(FrameError):  # the worker may end it
            told["it"] = ask(session)
            session.finish(b"")

    with ours, theirs:
        thread = threading.Thread(target=child)
        kernel = Kernel(source, PrivacyLoss.zcdp(3 * ONE, 10**13))
        thread.start()
        try:
            SessionServer(ours, kernel, journal, lambda *_: None).run()
        finally:
            ours.close()
            thread.join()
    return told["it"]


def ask(session: Any) -> tuple[Any, Any, Any]:
    found = session.find_values(Values("town"), LOSS)
    (counted,) = session.count([Count(("town",))], PrivacyLoss.zcdp(ONE))
    return found.texts, counted.values.tolist(), session.schema


def test_a_session_over_a_pipe_and_its_replay_tell_the_same() -> None:
    journal = MemoryJournal()
    source = source_of(TOWNS)
    texts, counted, schema = served(source, journal, ask)
    assert texts == ("Eridu", "Ur")
    assert len(counted) == 4
    assert schema == source.schema.with_values("town", texts)
    assert resolved(source.schema, journal.entries()) == schema
    after_the_values = MemoryJournal(journal.entries()[:1])
    for kept in (journal, after_the_values):
        again, of_again, by = served(source, kept, ask)
        assert (again, by) == (texts, schema)
        assert len(of_again) == len(counted)
        assert (of_again == counted) or kept is after_the_values
    with pytest.raises(ReplayDiverged):
        served(source, journal, lambda session: session.find_values(Values("town", 2), LOSS))


def test_the_answer_is_certified_and_published_by_its_texts() -> None:
    journal = MemoryJournal()
    served(source_of(TOWNS), journal, ask)
    schema = resolved(dictionary(), journal.entries())
    found, counted = measurements(journal.entries())
    wire = measurement_to_wire(found, schema)
    assert wire["listed"] == [{"town": "Eridu"}, {"town": "Ur"}]
    assert wire["threshold"] == 5
    assert wire["contribution"] == {"rule": "distinct", "limit": 1}
    assert wire["columns"] == []
    assert measurement_to_wire(counted, schema)["columns"][0]["cells"][:2] == ["Eridu", "Ur"]
    table = measurements_to_arrow([found, counted], schema)
    assert table.column("cell").to_pylist()[:2] == [["Eridu"], ["Ur"]]
    certificate = Certificate.of_release(
        unit=ROW,
        guarantee=Guarantee(rho=3 * ONE, delta=10**13),
        accountant=Accountant.ZCDP,
        charge=Charge(3 * ONE, 10**13),
        allowance=PrivacyLoss.zcdp(3 * ONE, 10**13),
        journal=journal.entries(),
        synthesizer={},
        assurance="enforced",
        ledger_row_hash="",
    ).to_wire()
    first = certificate["mechanisms"][0]
    assert first["mechanism"] == "discovery of values with threshold 5"
    assert first["columns"] == [["town"]]
    assert first["loss"] == {"rho": "1", "delta": "0.000001"}
    assert "Kish" not in json.dumps(certificate)


def test_questions_and_answers_survive_the_wire() -> None:
    question = ValuesQuestion(Values("town", 3), LOSS)
    assert decode_question(unpack(pack(encode_question(question)))) == question
    journal = MemoryJournal()
    served(source_of(TOWNS), journal, ask)
    exchange = next(exchanges(journal.entries()))
    frame = unpack(pack(encode_answer(exchange.answer)))  # type: ignore[arg-type]
    again = decode_answer(exchange.question, frame)
    assert again.texts == ("Eridu", "Ur")  # type: ignore[union-attr]
    for arrays in (
        (),
        (frame.arrays[0],),
        (frame.arrays[0][1:], frame.arrays[1]),
        (np.frombuffer(b"[1,2]", np.uint8), frame.arrays[1]),
        (np.frombuffer(b'"ab"', np.uint8), frame.arrays[1]),
        (frame.arrays[0], frame.arrays[1][:1]),
    ):
        with pytest.raises(FrameError):
            decode_answer(exchange.question, Frame(frame.header, arrays))


def test_rows_without_a_text_have_no_number() -> None:
    source = source_of(["b", None, "Other", "a", "b"])
    assert tuple(source.texts("town")) == ("b", "a")
    assert np.concatenate(list(source.numbers("town"))).tolist() == [0, NO_TEXT, NO_TEXT, 1, 0]

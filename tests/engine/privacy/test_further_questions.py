"""Functions, sums, tuples, quantiles and keys on the wire, in the journal and as published."""

from __future__ import annotations

import copy
import json
import socket
import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from privacy_tables import table
from test_messages import json_values, paths

from app.engine.grouping import Grouping
from app.engine.privacy.certificate import Certificate
from app.engine.privacy.declared import Feature, FeatureClasses, MixtureMode, RowNumber
from app.engine.privacy.journal import MemoryJournal, Record, measurements
from app.engine.privacy.kernel import Kernel
from app.engine.privacy.library import LocalSession
from app.engine.privacy.loss import Accountant, Charge, Guarantee, PrivacyLoss
from app.engine.privacy.messages import (
    decode_answer,
    decode_question,
    encode_answer,
    encode_question,
    pack_question,
    question_digest,
)
from app.engine.privacy.publication import measurement_to_wire, measurements_to_arrow
from app.engine.privacy.queries import (
    BudgetExhausted,
    Count,
    Discovered,
    Keys,
    Measurement,
    Quantile,
    QuestionRefused,
    Sum,
    TupleCount,
    TupleNumber,
    Tuples,
)
from app.engine.privacy.questions import (
    AnsweredQuantile,
    CountQuestion,
    DiscoverQuestion,
    Quantiled,
    QuantileQuestion,
    Question,
)
from app.engine.privacy.session import RemoteSession, SessionServer
from app.engine.privacy.wire import Frame, FrameError, pack, unpack
from app.engine.schema import Schema
from app.releases.published import MeasurementOut

ONE = 10**12
SIZES = {"a": 3, "b": 2}
RHO = PrivacyLoss.zcdp(ONE)
APPROXIMATE = PrivacyLoss.zcdp(ONE, ONE)
HALVES = Grouping((0, 2, 3), 0)
PAIRS = Tuples(("a", "b"), {"a": HALVES}, np.array([[0, 2], [1, 3]]))
CLASSES = FeatureClasses(
    (Feature("distinct", "a", grouping=HALVES), Feature("rows")), ((2.0,), (1.5,)), (0, 1, 1, 2)
)
MIXTURE = MixtureMode(
    ("a", "b"), np.zeros(2), np.ones(2), np.full(2, 0.5), np.eye(2), np.stack([np.eye(2)] * 2)
)
BATCH = CountQuestion(
    (
        Count.of_units(RowNumber(3)),
        Count.of_units(MIXTURE),
        Count.of_units(CLASSES),
        Sum("b", -0.5, 1.0, ("a",), {"a": HALVES}),
        TupleCount(PAIRS, 2),
    ),
    RHO,
    (1.0, 2.0, 3.0, 4.0, 5.0),
)
QUESTIONS: list[Question] = [
    BATCH,
    QuantileQuestion(Quantile(RowNumber(4), 0.5, (0.0, 1.0)), RHO),
    QuantileQuestion(Quantile(TupleNumber(PAIRS), 0.95, (0.0, 1.0, 2.0)), RHO),
    QuantileQuestion(Quantile("a", 0.25, (0.5,)), RHO),
    QuantileQuestion(Quantile("a", 0.25, (0.5,), regular_only=True), RHO),
    DiscoverQuestion(Keys(("a", "b"), {"a": HALVES}, 2), APPROXIMATE),
]


def kernel() -> Kernel:
    rows = [(0, 1)] * 40 + [(2, 0)] * 40
    return Kernel(table(SIZES, rows, list(range(40)) * 2), PrivacyLoss.zcdp(50 * ONE, 2 * ONE))


def ask_all(session: Any) -> dict[str, Any]:
    counted = session.count(BATCH.queries, RHO, BATCH.shares)
    (total,) = session.sum([Sum("a", 0, 2)], RHO)
    pairs = session.tuples(TupleCount(PAIRS, 2), RHO)
    found = session.discover(Keys(("a", "b"), limit=2), APPROXIMATE)
    return {
        "counted": [measurement.values.tolist() for measurement in counted],
        "sum": total.values.tolist(),
        "tuples": pairs.values.tolist(),
        "quantile": session.quantile(Quantile("a", 0.5, (0, 1, 2)), RHO),
        "keys": found.keys.tolist(),
        "counts": found.values.tolist(),
    }


def converse(journal: MemoryJournal, answering: Kernel) -> dict[str, Any]:
    ours, theirs = socket.socketpair()

    def child() -> None:
        session = RemoteSession(theirs)
        session.finish(json.dumps(ask_all(session)).encode())

    with ours, theirs:
        ours.settimeout(30)
        thread = threading.Thread(target=child)
        thread.start()
        model = SessionServer(ours, answering, journal, lambda *_: None).run()
        thread.join(30)
    told: dict[str, Any] = json.loads(model)
    return told


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda each: type(each).__name__)
def test_questions_survive_the_wire(question: Question) -> None:
    packed = pack_question(question)
    again = decode_question(unpack(packed))
    assert again == question
    assert question_digest(pack_question(again)) == question_digest(packed)


def test_other_questions_have_other_digests() -> None:
    assert len({pack_question(question) for question in QUESTIONS}) == len(QUESTIONS)
    more = FeatureClasses(CLASSES.features, ((2.0,), (1.75,)), CLASSES.classes)
    one, other = (CountQuestion((Count.of_units(function),), RHO) for function in (CLASSES, more))
    assert pack_question(one) != pack_question(other)


@settings(max_examples=500, deadline=None)
@given(st.sampled_from(QUESTIONS), st.data())
def test_a_header_changed_anywhere_is_a_question_or_refused(
    question: Question, data: st.DataObject
) -> None:
    frame = encode_question(question)
    header = copy.deepcopy(frame.header)
    *way, last = data.draw(st.sampled_from(paths(header)))
    place = header
    for step in way:
        place = place[step]
    place[last] = data.draw(json_values)
    try:
        changed = decode_question(unpack(pack(Frame(header, frame.arrays))))
        kernel().admit(changed)
    except (FrameError, QuestionRefused, BudgetExhausted):
        return


def test_a_session_over_a_pipe_gives_what_one_here_gives() -> None:
    remote, local = converse(MemoryJournal(), kernel()), ask_all(LocalSession(kernel()))
    for told in (remote, local):
        assert np.shape(told["counted"][3]) == (2,)
        assert told["keys"] == [[0, 1], [2, 0]]
        assert told["quantile"] in (0, 1, 2)
    assert [np.shape(each) for each in remote["counted"]] == [
        np.shape(each) for each in local["counted"]
    ]


def test_a_replay_gives_the_same_answers_without_new_noise_or_new_charge() -> None:
    journal, first, second = MemoryJournal(), kernel(), kernel()
    told = converse(journal, first)
    entries = journal.entries()
    assert first.remaining == PrivacyLoss.zcdp(45 * ONE, ONE)
    assert converse(journal, second) == told
    assert journal.entries() == entries
    assert second.remaining == first.remaining


def test_the_journal_gives_back_every_answer() -> None:
    journal = MemoryJournal()
    told = converse(journal, kernel())
    *tables, found, quantile = [record.answer for record in measurements(journal.entries())]
    values = [each.values.tolist() for each in tables if isinstance(each, Measurement)]
    assert values == [*told["counted"], told["sum"], told["tuples"]]
    assert isinstance(found, Discovered)
    assert (found.keys.tolist(), found.values.tolist()) == (told["keys"], told["counts"])
    assert isinstance(quantile, AnsweredQuantile)
    assert quantile.answer.value == told["quantile"]


def test_an_answer_to_another_question_is_no_answer() -> None:
    asked = LocalSession(kernel()).discover(Keys(("a",)), APPROXIMATE)
    for question in QUESTIONS[:-1]:
        with pytest.raises(FrameError):
            decode_answer(question, encode_answer(asked))
    short = Frame(encode_answer(asked).header, (asked.keys, asked.values[:-1]))
    with pytest.raises(FrameError):
        decode_answer(DiscoverQuestion(Keys(("a",)), APPROXIMATE), short)


def test_the_certificate_lists_each_mechanism_and_adds_up() -> None:
    journal = MemoryJournal()
    converse(journal, kernel())
    wire = Certificate.of_release(
        unit=table(SIZES, [], []).unit,
        guarantee=Guarantee(epsilon=ONE, delta=ONE),
        accountant=Accountant.BASIC,
        charge=Charge(ONE, ONE),
        allowance=PrivacyLoss.zcdp(50 * ONE, 2 * ONE),
        journal=journal.entries(),
        synthesizer={},
        assurance="enforced",
        ledger_row_hash="",
    ).to_wire()
    assert json.loads(json.dumps(wire, allow_nan=False)) == wire
    assert wire["session"]["spent"] == {"rho": "5", "delta": "0.000001"}
    by_name = {each["mechanism"]: each for each in wire["mechanisms"]}
    assert by_name["histogram of a function"]["sensitivity"] == {"l1": 1.0, "l2": 1.0}
    functions = [each["contributions"][0].get("function") for each in wire["mechanisms"][:3]]
    assert functions == ["row_number", "mixture_mode", "feature_classes"]
    assert by_name["clipped sum"]["sensitivity"]["l1"] == 3 * 2
    assert by_name["clipped sum"]["contributions"][0]["sum_of"] == "a"
    assert by_name["counts of tuples"]["contributions"] == [
        {"rule": "distinct", "limit": 2, "tuples": 2, "length": 2}
    ]
    assert by_name["quantile 0.5 out of 3 points"]["noise"] == "gumbel"
    found = by_name["key discovery with threshold 7"]
    assert found["loss"] == {"rho": "1", "delta": "0.000001"}
    assert found["sensitivity"]["l2"] == pytest.approx(2**0.5)


def test_all_of_them_are_published_with_the_cells_they_are_about() -> None:
    journal = MemoryJournal()
    converse(journal, kernel())
    schema = table(SIZES, []).schema
    records = measurements(journal.entries())
    wires = [measurement_to_wire(each, schema) for each in records]
    assert json.loads(json.dumps(wires, allow_nan=False)) == wires
    for wire in wires:
        told = MeasurementOut.model_validate(wire).model_dump(exclude_unset=True)
        assert told == wire
    numbers, _, classes, sums, *_, pairs, found, median = wires
    assert numbers["columns"] == [{"name": "row_number", "cells": ["1", "2", "3 or more"]}]
    assert classes["columns"] == [{"name": "feature_classes", "cells": list(CLASSES.labels)}]
    assert sums["step"] == 1
    assert sums["contribution"] == {"rule": "rows", "sum_of": "b", "low": -0.5, "high": 1.0}
    assert pairs["listed"] == [{"a": "[0, 2)", "b": "0"}, {"a": "2", "b": "1"}]
    assert found["listed"] == [{"a": "0", "b": "1"}, {"a": "2", "b": "0"}]
    assert found["threshold"] == 7
    assert median["quantile"] == {
        "of": "a",
        "q": 0.5,
        "point": median["quantile"]["point"],
        "points": 3,
        "rank_error": pytest.approx(median["scale"] * np.log(3 / 0.05)),
    }
    assert median["quantile"]["point"] in ("0", "1", "2")
    assert (median["values"], median["standard_error"]) == ([], None)
    assert [wire["question"] for wire in wires] == [0, 0, 0, 0, 0, 1, 2, 3, 4]
    losses = [wire["loss"] for wire in wires]
    assert losses[3] == {"rho": "0.266666666666"}  # 4 parts of 15
    assert losses[-2:] == [{"rho": "1", "delta": "0.000001"}, {"rho": "1"}]
    *long, quantile = measurements_to_arrow(records, schema).to_pylist()
    assert len(long) == sum(len(wire["values"]) for wire in wires)
    assert long[-1]["columns"] == ["a", "b"]
    assert long[-1]["cell"] == ["2", "0"]
    assert quantile["columns"] == ["a"]
    assert quantile["cell"] == [median["quantile"]["point"]]
    assert (quantile["quantile"], quantile["value"], quantile["question"]) == (0.5, None, 4)
    assert [row["sum_of"] for row in long if row["measurement"] == 3] == ["b", "b"]
    assert [row["cell"] for row in long if row["measurement"] == 6] == [["[0, 2)", "0"], ["2", "1"]]


def test_a_quantile_reads_as_a_value_of_its_column_or_as_a_number() -> None:
    year = {"minimum": "2020-01-01", "maximum": "2020-12-31"}
    fields = [
        {"name": "day", "type": "date", "constraints": year},
        {
            "name": "fare",
            "type": "number",
            "constraints": {"minimum": 0, "maximum": 9},
            "step": 0.01,
        },
    ]
    schema = Schema.parse({"fields": fields})
    for of, value, name, point in (
        ("day", 18263.0, "day", "2020-01-02"),
        ("fare", 0.3, "fare", "0.3"),
        (RowNumber(4), 30.0, "rows", "30"),
        (TupleNumber(PAIRS), 2.0, "tuples", "2"),
    ):
        query = Quantile(of, 0.5, (value,))
        answered = AnsweredQuantile(query, Quantiled(value, "gumbel", 1.0, 0.5))
        wire = measurement_to_wire(Record(0, answered, RHO), schema)
        assert (wire["quantile"]["of"], wire["quantile"]["point"]) == (name, point)


def test_the_rank_of_a_quantile_is_off_by_no_more_than_it_says() -> None:
    """Of 200 draws 1 in 20 may be; 37 are with a chance below 1e-9. A tenth of it would fail."""
    rows = [(value,) for value in range(1000)]
    answering = Kernel(table({"a": 1000}, rows), PrivacyLoss.zcdp(200 * ONE // 50))
    query = Quantile("a", 0.5, tuple(map(float, range(1000))))
    question = QuantileQuestion(query, PrivacyLoss.zcdp(ONE // 50))
    off, told = [], 0.0
    for _ in range(200):
        answer = answering.answer(answering.admit(question))
        assert isinstance(answer, Quantiled)
        off.append(abs(answer.value - 500))
        told = AnsweredQuantile(query, answer).rank_error()
    assert np.sum(np.array(off) > told) < 37
    assert np.sum(np.array(off) > told / 10) >= 37


@pytest.mark.parametrize(
    "made",
    [
        lambda: Sum("a", 1.0, 1.0),
        lambda: Sum("a", float("nan"), 1.0),
        lambda: Quantile("a", 1.5, (0.0,)),
        lambda: Quantile("a", 0.5, ()),
        lambda: Quantile("a", 0.5, (1.0, 1.0)),
        lambda: Quantile("a", 0.5, (float("inf"),)),
        lambda: Quantile(RowNumber(2), 0.5, (0.0,), regular_only=True),
        lambda: Keys(()),
        lambda: Keys(("a",), limit=0),
        lambda: TupleCount(PAIRS, 0),
        lambda: Tuples(("a",), {}, np.array([0])),
        lambda: Tuples(("a",), {}, np.array([[0.5]])),
        lambda: RowNumber(0),
    ],
)
def test_values_that_make_no_sense_are_refused_when_made(made: Any) -> None:
    with pytest.raises(ValueError):
        made()

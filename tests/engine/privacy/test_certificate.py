from __future__ import annotations

import json
from importlib import metadata
from typing import Any

import numpy as np
import pytest
from privacy_tables import schema, table

from app.engine.grouping import Grouping
from app.engine.privacy.certificate import Certificate
from app.engine.privacy.journal import JournalEntry, MemoryJournal, Record, measurements
from app.engine.privacy.kernel import Kernel
from app.engine.privacy.loss import Accountant, Charge, Guarantee, PrivacyLoss
from app.engine.privacy.messages import encode_answer, pack_question, question_digest
from app.engine.privacy.publication import measurement_to_wire, measurements_to_arrow
from app.engine.privacy.queries import Candidate, Contribution, Count, Measurement, Scored
from app.engine.privacy.questions import (
    CountQuestion,
    Question,
    ScoreQuestion,
    SelectQuestion,
    TrustedQuestion,
)
from app.engine.privacy.wire import pack
from app.releases.published import MeasurementOut

ONE = 10**12
SIZES = {"a": 3, "b": 4}
RHO = PrivacyLoss.zcdp(ONE)


def journal_of(*questions: Question) -> MemoryJournal:
    source = table(SIZES, [(0, 1), (2, 3)], [1, 2])
    kernel = Kernel(source, PrivacyLoss.zcdp(100 * ONE), trusted=True)
    journal = MemoryJournal()
    for number, question in enumerate(questions):
        packed = pack_question(question)
        answer = kernel.answer(kernel.admit(question))
        kept = b"" if isinstance(question, TrustedQuestion) else pack(encode_answer(answer))
        journal.append(JournalEntry(number, question_digest(packed), packed, kept, question.loss))
    return journal


def certificate(journal: MemoryJournal, **changes: Any) -> Certificate:
    facts: dict[str, Any] = {
        "unit": table(SIZES, [], []).unit,
        "guarantee": Guarantee(rho=5 * ONE),
        "accountant": Accountant.ZCDP,
        "charge": Charge(5 * ONE),
        "allowance": PrivacyLoss.zcdp(5 * ONE),
        "journal": journal.entries(),
        "synthesizer": {"name": "mst", "version": "1"},
        "assurance": "enforced",
        "ledger_row_hash": "ab" * 32,
    }
    return Certificate.of_release(**{**facts, **changes})


def counts() -> CountQuestion:
    return CountQuestion(
        (Count(("a",)), Count(("a", "b"), contribution=Contribution("distinct", limit=2))),
        RHO,
        (1.0, 3.0),
    )


def test_every_mechanism_is_listed_with_its_cost() -> None:
    candidates = tuple(Candidate(Count((name,)), (np.zeros(size),)) for name, size in SIZES.items())
    journal = journal_of(counts(), SelectQuestion(candidates, RHO, 2), TrustedQuestion(RHO))
    wire = certificate(journal).to_wire()
    rows, distinct, selection, handed = wire["mechanisms"]
    assert rows["columns"] == [["a"]]
    assert rows["contributions"] == [{"rule": "rows"}]
    assert rows["sensitivity"] == {"l1": 3.0, "l2": 3.0}
    assert rows["loss"] == {"rho": "0.25"}
    assert distinct["contributions"] == [{"rule": "distinct", "limit": 2}]
    assert distinct["loss"] == {"rho": "0.75"}
    assert distinct["scale"] == pytest.approx((2 / 1.5) ** 0.5)
    assert selection["noise"] == "gumbel"
    assert selection["sensitivity"]["l1"] == 3.0
    assert sorted(selection["columns"]) == [["a"], ["b"]]
    assert handed["mechanism"] == "trusted call"
    assert wire["session"] == {"allowed": {"rho": "5"}, "spent": {"rho": "3"}}


def scores() -> ScoreQuestion:
    return ScoreQuestion(
        (
            Candidate(Count(("a", "b")), (np.ones(3), np.ones(4)), weight=2.0),
            Candidate(Count(("a",), contribution=Contribution("one")), (np.full(3, 2.5),)),
        ),
        RHO,
    )


def test_scores_are_one_mechanism() -> None:
    (wire,) = certificate(journal_of(scores())).to_wire()["mechanisms"]
    assert wire["mechanism"] == "scores of 2 candidates"
    assert wire["columns"] == [["a", "b"], ["a"]]
    assert wire["contributions"] == [{"rule": "rows"}, {"rule": "one"}]
    assert wire["noise"] == "discrete gaussian"
    assert wire["sensitivity"] == {"l1": 3.5, "l2": pytest.approx(9.25**0.5)}
    assert wire["scale"] == pytest.approx((9.25 / 2) ** 0.5)
    assert wire["loss"] == {"rho": "1"}


def test_scores_are_published_with_what_they_compare() -> None:
    (record,) = measurements(journal_of(scores()).entries())
    scored, wire = record.answer, measurement_to_wire(record, schema(**SIZES))
    assert isinstance(scored, Scored)
    assert (wire["question"], wire["loss"]) == (0, {"rho": "1"})
    assert MeasurementOut.model_validate(wire).model_dump(exclude_none=True) == wire
    assert json.loads(json.dumps(wire, allow_nan=False)) == wire
    assert (wire["columns"], wire["contribution"]) == ([], {"scores": 2})
    assert wire["step"] == 1 / 1024
    assert (np.array(wire["values"]) * wire["step"]).tolist() == scored.values.tolist()
    pair, single = wire["candidates"]
    assert pair["columns"] == ["a", "b"]
    assert (pair["reference_total"], single["reference_total"]) == (12.0, 7.5)
    assert single["contribution"] == {"rule": "one"}
    assert single["standard_error"] == pytest.approx(2 * pair["standard_error"])
    assert pair["standard_error"] == wire["standard_error"]
    assert wire["standard_error"] * wire["step"] == pytest.approx(scored.standard_error.min())


def test_scores_in_long_form_have_columns_but_no_cell() -> None:
    (record,) = measurements(journal_of(scores()).entries())
    assert isinstance(record.answer, Scored)
    pair = measured(Count(("a", "b")), np.arange(12).reshape(3, 4))
    rows = measurements_to_arrow([pair, record], schema(**SIZES)).to_pylist()[12:]
    assert [row["columns"] for row in rows] == [["a", "b"], ["a"]]
    assert [row["cell"] for row in rows] == [[], []]
    assert [row["rule"] for row in rows] == ["rows", "one"]
    assert [row["measurement"] for row in rows] == [1, 1]
    for row, value in zip(rows, record.answer.values, strict=True):
        assert row["value"] * row["step"] == value


def test_a_certificate_states_what_it_rests_on() -> None:
    wire = certificate(journal_of(counts())).to_wire()
    assert wire["unit"] == {"kind": "entity", "column": "id", "max_rows": 3}
    assert "entity" in wire["neighbours"]
    assert wire["guarantee"] == {"rho": "5"}
    assert wire["charge"] == {"rho": "5", "delta": "0"}
    assert wire["accountant"] == "zcdp"
    assert wire["assurance"] == "enforced"
    assert wire["ledger_row_hash"] == "ab" * 32
    assert wire["versions"]["opendp"] == metadata.version("opendp")
    assert json.loads(json.dumps(wire, allow_nan=False)) == wire


def test_a_journal_beyond_the_allowance_gets_no_certificate() -> None:
    with pytest.raises(ValueError, match="allowed"):
        certificate(journal_of(counts()), allowance=PrivacyLoss.zcdp(ONE - 1))


def measured(count: Count, values: Any) -> Record:
    measurement = Measurement(count, np.array(values), "gaussian", 2.0, 1.9, 1.0, 1.0)
    return Record(0, measurement, PrivacyLoss.zcdp(ONE))


def test_a_measurement_is_published_with_labels_and_error() -> None:
    grouping = Grouping((0, 2, 4), 0)
    wire = measurement_to_wire(
        measured(Count(("a", "b"), {"b": grouping}), [[1, 2], [3, 4], [5, -6]]), schema(**SIZES)
    )
    assert [column["name"] for column in wire["columns"]] == ["a", "b"]
    assert [len(column["cells"]) for column in wire["columns"]] == [3, 2]
    assert wire["values"] == [1, 2, 3, 4, 5, -6]
    assert wire["standard_error"] == 1.9
    assert wire["contribution"] == {"rule": "rows"}


def test_measurements_in_long_form_name_every_cell() -> None:
    total = measured(Count(()), 7)
    pair = measured(Count(("a", "b")), np.arange(12).reshape(3, 4))
    long = measurements_to_arrow([total, pair], schema(**SIZES))
    rows = long.to_pylist()
    assert len(rows) == 13
    assert rows[0]["cell"] == rows[0]["columns"] == []
    assert rows[0]["value"] == 7
    assert rows[7] == {
        "measurement": 1,
        "question": 0,
        "columns": ["a", "b"],
        "cell": ["1", "2"],
        "value": 6,
        "standard_error": 1.9,
        "scale": 2.0,
        "noise": "discrete gaussian",
        "rule": "rows",
        "sum_of": None,
        "step": 1.0,
        "quantile": None,
    }


def test_no_measurements_are_an_empty_table() -> None:
    assert measurements_to_arrow([], schema(**SIZES)).num_rows == 0

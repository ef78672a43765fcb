from __future__ import annotations

import copy
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.engine.grouping import Grouping
from app.engine.privacy.loss import PrivacyLoss
from app.engine.privacy.messages import (
    decode_answer,
    decode_question,
    encode_answer,
    encode_question,
    pack_question,
    question_digest,
)
from app.engine.privacy.queries import (
    Candidate,
    Contribution,
    Count,
    GridReference,
    Measurement,
    QuestionRefused,
    Scored,
)
from app.engine.privacy.questions import (
    Counted,
    CountQuestion,
    HandedOver,
    Question,
    ScoreQuestion,
    Selected,
    SelectQuestion,
    TrustedQuestion,
)
from app.engine.privacy.references import checked_reference, on_grid
from app.engine.privacy.wire import (
    MOST_HEADER_BYTES,
    MOST_KEYS,
    Frame,
    FrameError,
    is_too_large,
    narrowed,
    pack,
    unpack,
)
from app.engine.table import Table

RHO = PrivacyLoss.zcdp(10**12, 5)
GROUPING = Grouping((0, 2, 5), 1, (0, 1, 0))
COUNTS = CountQuestion(
    (
        Count(("a", "b"), {"a": GROUPING}),
        Count((), contribution=Contribution("one")),
        Count(("b",), {"b": GROUPING}, Contribution("clipped", norm=1.5)),
        Count(("a",), contribution=Contribution("distinct", limit=3)),
    ),
    RHO,
    (1.0, 2.0, 0.5, 4.0),
)
SELECTION = SelectQuestion(
    (
        Candidate(Count(("a", "b"), {"a": GROUPING}), (np.ones(2), np.arange(3.0))),
        Candidate(Count(()), (np.array(7.0),), weight=0.5, bias=-2.0),
    ),
    RHO,
    2,
)
SCORES = ScoreQuestion(
    (
        Candidate(Count(("a", "b"), {"a": GROUPING}), (np.ones(2), np.arange(3.0))),
        Candidate(Count(("b", "a")), (np.arange(3.0), np.ones(2)), weight=0.25),
        Candidate(Count(("a", "b")), (np.full((2, 3), 0.3),)),
        Candidate(
            Count(("a",)), GridReference(np.array([1, -7], dtype=np.int8), np.array([[0], [999]]))
        ),
    ),
    RHO,
)


@pytest.mark.parametrize("question", [COUNTS, TrustedQuestion(RHO)], ids=["count", "trusted"])
def test_questions_survive_the_wire(question: Question) -> None:
    assert decode_question(unpack(pack_question(question))) == question


def test_selections_survive_the_wire() -> None:
    again = decode_question(unpack(pack_question(SELECTION)))
    assert isinstance(again, SelectQuestion)
    assert (again.loss, again.winners) == (SELECTION.loss, SELECTION.winners)
    check_candidates(again.candidates, SELECTION.candidates)


def check_candidates(again: Sequence[Candidate], original: Sequence[Candidate]) -> None:
    for candidate, asked in zip(again, original, strict=True):
        assert candidate.count == asked.count
        assert (candidate.weight, candidate.bias) == (asked.weight, asked.bias)
        if isinstance(candidate.reference, GridReference):
            whole = asked.reference
            expected = whole if isinstance(whole, GridReference) else on_grid(whole[0])
            assert candidate.reference.steps.tolist() == expected.steps.tolist()
            assert candidate.reference.apart.tolist() == expected.apart.tolist()
            continue
        assert not isinstance(asked.reference, GridReference)
        for factor, vector in zip(candidate.reference, asked.reference, strict=True):
            np.testing.assert_array_equal(factor, vector)


def test_scores_survive_the_wire() -> None:
    again = decode_question(unpack(pack_question(SCORES)))
    assert isinstance(again, ScoreQuestion)
    assert again.loss == RHO
    check_candidates(again.candidates, SCORES.candidates)


def test_equal_vectors_travel_once_and_arrays_in_small_integers() -> None:
    arrays = encode_question(SCORES).arrays
    kinds = [np.float64, np.float64, np.int16, np.int8, np.int8, np.int16]
    assert [array.dtype for array in arrays] == kinds
    pairs = [Candidate(Count(("a", "b")), (np.ones(100), np.arange(100.0)))] * 4950
    assert len(pack_question(ScoreQuestion(tuple(pairs), RHO))) < 2**20


def test_a_long_reference_survives_the_wire() -> None:
    counts = np.zeros((300, 300))
    counts[[0, 217, 218, 299], [5, 0, 200, 299]] = [0.3, 7.0, -2e6, 1e9]
    sent = ScoreQuestion((Candidate(Count(("a", "b")), (counts,)),), RHO)
    again = decode_question(unpack(pack_question(sent)))
    assert isinstance(again, ScoreQuestion)
    reference = checked_reference(again.candidates[0].reference, (300, 300))
    steps = np.concatenate([steps for _, steps in reference.blocks()])
    assert steps.tolist() == np.rint(counts * 1024).reshape(-1).tolist()
    assert len(pack_question(sent)) < 300 * 300 + 1000
    nothing = ScoreQuestion((Candidate(Count(("a", "b")), (np.zeros((300, 300)),)),), RHO)
    again = decode_question(unpack(pack_question(nothing)))
    assert isinstance(again, ScoreQuestion)
    assert checked_reference(again.candidates[0].reference, (300, 300)).total == 0


def test_noisy_scores_survive_the_wire() -> None:
    answer = Scored(
        counts=tuple(candidate.count for candidate in SCORES.candidates),
        weights=np.array([1.0, 0.25, 1.0, 1.0]),
        reference_totals=np.array([9.0, 9.0, 1.8, -6 / 1024]),
        values=np.array([-3.5, 700.0, 1 / 1024, 2.0**31]),
        noise="gaussian",
        scale=np.array([0.1, 0.4, 0.1, 0.1]),
        standard_error=np.array([0.1, 0.4, 0.1, 0.1]),
        l1_sensitivity=3.25,
        l2_sensitivity=1.75,
    )
    frame = unpack(pack(encode_answer(answer)))
    again = decode_answer(SCORES, frame)
    assert isinstance(again, Scored)
    assert again.counts == answer.counts
    for name in ("weights", "reference_totals", "values", "scale", "standard_error"):
        np.testing.assert_array_equal(getattr(again, name), getattr(answer, name))
    assert (again.noise, again.l1_sensitivity, again.l2_sensitivity) == ("gaussian", 3.25, 1.75)
    for wrong in (Frame(frame.header, frame.arrays[:4]), Frame(frame.header, (np.ones(3),) * 5)):
        with pytest.raises(FrameError):
            decode_answer(SCORES, wrong)
    with pytest.raises(FrameError):
        decode_answer(SELECTION, frame)


def hostile(reference: Any, *arrays: np.ndarray[Any, Any]) -> Frame:
    frame = encode_question(ScoreQuestion(SCORES.candidates[:1], RHO))
    header = copy.deepcopy(frame.header)
    header["candidates"][0]["reference"] = reference
    return Frame(header, (*frame.arrays, *arrays))


@pytest.mark.parametrize(
    "reference",
    [
        [0, 2],
        {},
        {"cells": 2},
        {"cells": 9, "apart": 2},
        {"cells": 2, "apart": 9},
        {"cells": -1, "apart": 2},
        {"cells": 2, "apart": 2.0},
        {"cells": 0, "factors": [0, 1]},
        {"factors": 0},
        {"factors": [0, 9]},
        {"factors": [0, True]},
        {"factors": [0, 2]},
        {"factors": [0] * 5000},
    ],
)
def test_a_reference_that_is_none_is_no_question(reference: Any) -> None:
    with pytest.raises(FrameError):
        decode_question(hostile(reference, np.zeros(3, np.int16)))


def test_cells_of_another_type_are_refused() -> None:
    with pytest.raises(QuestionRefused, match="integers"):
        decode_question(hostile({"cells": 0, "apart": 2}, np.zeros((2, 0), np.int8)))
    with pytest.raises(QuestionRefused, match="outside"):
        decode_question(
            hostile({"cells": 3, "apart": 2}, np.ones((2, 1), np.int8), np.zeros(1, np.int8))
        )


@pytest.mark.parametrize("question", [COUNTS, SELECTION, SCORES, TrustedQuestion(RHO)])
def test_a_question_read_back_has_the_same_digest(question: Question) -> None:
    packed = pack_question(question)
    assert question_digest(pack_question(decode_question(unpack(packed)))) == question_digest(
        packed
    )


def test_other_questions_have_other_digests() -> None:
    questions: list[Question] = [
        CountQuestion((Count(("a",)),), RHO),
        CountQuestion((Count(("b",)),), RHO),
        CountQuestion((Count(("a",)),), PrivacyLoss.zcdp(10**12)),
        CountQuestion((Count(("a",), {"a": GROUPING}),), RHO),
        CountQuestion((Count(("a",), contribution=Contribution("one")),), RHO),
        SelectQuestion((Candidate(Count(("a",)), (np.zeros(2),)),), RHO),
        SelectQuestion((Candidate(Count(("a",)), (np.ones(2),)),), RHO),
        ScoreQuestion((Candidate(Count(("a",)), (np.ones(2),)),), RHO),
        TrustedQuestion(RHO),
    ]
    assert len({question_digest(pack_question(question)) for question in questions}) == 9


def test_equal_groupings_travel_once() -> None:
    queries = tuple(Count(("a",), {"a": Grouping((0, 2, 5), 1, (0, 1, 0))}) for _ in range(9))
    assert len(encode_question(CountQuestion(queries, RHO)).header["groupings"]) == 1


def test_answers_survive_the_wire() -> None:
    measurement = Measurement(
        COUNTS.queries[0], np.array([[1, -70_000], [2, 3]]), "laplace", 2.0, 2.8, 1.0, 1.0
    )
    question = CountQuestion(COUNTS.queries[:1], RHO)
    (again,) = decode_answer(
        question, unpack(pack(encode_answer(Counted((measurement,)))))
    ).measurements  # type: ignore[union-attr]
    assert again.values.dtype == np.int64
    assert again.values.tolist() == measurement.values.tolist()
    assert (again.noise, again.scale, again.standard_error) == ("laplace", 2.0, 2.8)
    selected = Selected((1, 0), "gumbel", 5.0, 1.0)
    assert decode_answer(SELECTION, unpack(pack(encode_answer(selected)))) == selected
    table = Table({"b": np.arange(3), "a": np.arange(3) * 500}, 3, np.array([0, 0, 1]))
    handed = decode_answer(TrustedQuestion(RHO), unpack(pack(encode_answer(HandedOver(table)))))
    assert isinstance(handed, HandedOver)
    assert handed.table.codes["a"].tolist() == [0, 500, 1000]
    assert handed.table.entity is not None


def test_half_a_character_in_a_header_is_no_frame() -> None:
    assert unpack(pack(Frame({"type": "\U0001f600"}))).header == {"type": "\U0001f600"}
    for header in ({"type": "\ud800"}, {"type": "x", "\udfff": [1]}, {"type": [{"a": "\udc00"}]}):
        with pytest.raises(FrameError):
            unpack(pack(Frame(header)))


def test_a_header_has_a_limit_of_its_own() -> None:
    short, long = (pack(Frame({"type": "x" * size})) for size in (2**10, MOST_HEADER_BYTES))
    assert not is_too_large(short, 2**20)
    assert is_too_large(short, 2**10)
    assert is_too_large(long, 2**30)
    with pytest.raises(FrameError):
        unpack(long)


def test_an_object_has_a_limit_of_keys() -> None:
    """A reader makes a report of each unknown key: of a million, 5 s and 450 MB."""
    many = {f"k{number}": 0 for number in range(MOST_KEYS + 1)}
    few = dict(list(many.items())[:MOST_KEYS])
    unknown = unpack(pack(Frame({**encode_question(COUNTS).header, "groupings": [few]})))
    with pytest.raises(FrameError):
        decode_question(unknown)
    for header in (many, {"type": "count", "queries": [{"groupings": many}]}):
        with pytest.raises(FrameError, match="the header is not JSON"):
            unpack(pack(Frame(header)))


def test_a_number_out_of_range_is_no_frame() -> None:
    packed = pack(Frame({"fraction": 1e300}))
    assert unpack(packed).header == {"fraction": 1e300}
    with pytest.raises(FrameError):
        unpack(packed.replace(b"1e+300", b"1e+999"))


def test_an_answer_whose_arrays_are_no_counts_or_not_finite_is_no_answer() -> None:
    question = CountQuestion(COUNTS.queries[:1], RHO)
    measured = Measurement(COUNTS.queries[0], np.ones((2, 2), int), "laplace", 2.0, 2.8, 1.0, 1.0)
    counted = encode_answer(Counted((measured,)))
    for values in (np.ones((2, 2)), np.ones((2, 2), np.uint64)):
        with pytest.raises(FrameError):
            decode_answer(question, Frame(counted.header, (values,)))
    scored = Frame({"type": "scored", "noise": "gaussian", "l1": 1.0, "l2": 1.0})
    columns = [np.arange(4), *[np.ones(4)] * 4]
    decode_answer(SCORES, Frame(scored.header, tuple(columns)))
    for wrong in (np.array([1.0, np.nan, 1.0, 1.0]), np.arange(4)):
        with pytest.raises(FrameError):
            decode_answer(SCORES, Frame(scored.header, (*columns[:4], wrong)))


def test_an_answer_to_another_question_is_no_answer() -> None:
    selected = encode_answer(Selected((0,), "gumbel", 5.0, 1.0))
    for question in (COUNTS, TrustedQuestion(RHO)):
        with pytest.raises(FrameError):
            decode_answer(question, selected)


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ([], np.int8),
        ([127, -128], np.int8),
        ([128], np.int16),
        ([-(2**15) - 1], np.int32),
        ([2**31], np.int64),
    ],
)
def test_integers_travel_in_the_smallest_type(values: list[int], dtype: type) -> None:
    array = narrowed(np.array(values, dtype=np.int64))
    assert array.dtype == dtype
    assert array.tolist() == values


numbers = st.sampled_from([0, -1, 1, 3, 2**31, 2**62, -(2**63), 10**39, 0.5, -0.0, 1e308])
json_values = st.recursive(
    st.none() | st.booleans() | numbers | st.sampled_from(["", "a", "rows", "pure", "clipped"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["tail", "regular", "edges", "merge", "a"]), inner)
    ),
    max_leaves=6,
)


def paths(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a JSON value, the whole left out."""
    if not isinstance(value, dict | list):
        return []
    found: list[tuple[Any, ...]] = []
    for key, item in value.items() if isinstance(value, dict) else enumerate(value):
        found += [(*at, key), *paths(item, (*at, key))]
    return found


@settings(max_examples=600, deadline=None)
@given(st.sampled_from([COUNTS, SELECTION, SCORES]), st.data())
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
        decode_question(unpack(pack(Frame(header, frame.arrays))))
    except (FrameError, QuestionRefused):
        return


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_a_frame_with_changed_bytes_is_a_frame_or_an_error(data: st.DataObject) -> None:
    asked: list[Question] = [SELECTION, SCORES]
    question = data.draw(st.sampled_from(asked))
    packed = bytearray(pack_question(question))
    for _ in range(data.draw(st.integers(1, 3))):
        packed[data.draw(st.integers(0, len(packed) - 1))] = data.draw(st.integers(0, 255))
    try:
        decode_question(unpack(bytes(packed)))
    except (FrameError, QuestionRefused):
        return


def test_a_childs_end_loads_neither_kernel_nor_noise() -> None:
    loaded = subprocess.run(
        [
            sys.executable,
            "-c",
            "import app.engine.privacy.session, sys; print(*sys.modules)",
        ],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert "app.engine.privacy.session" in loaded
    unwanted = {"opendp", "app.engine.privacy.kernel", "app.engine.privacy.noise", "sqlalchemy"}
    assert not unwanted & set(loaded)

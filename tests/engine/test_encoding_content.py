"""The same content is recognised whatever its form, and other content is not."""

from __future__ import annotations

import io
from collections import Counter

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.engine.encoding import ContentHasher
from app.engine.encoding.content import canonical_texts, hash_texts
from app.engine.files import FileOptions, open_table

KEY = b"k" * 32
ROWS = st.lists(
    st.tuples(st.sampled_from(["a", "", "ab"]), st.sampled_from(["1", "12"])), max_size=6
)


def digest(rows: list[tuple[str, str]], key: bytes = KEY, block: int = 100) -> bytes:
    hasher = ContentHasher(key)
    for start in range(0, max(len(rows), 1), block):
        part = rows[start : start + block]
        columns = [pa.array([row[i] for row in part], pa.string()) for i in range(2)]
        hasher.update(pa.RecordBatch.from_arrays(columns, names=["x", "y"]))
    return hasher.digest()


def digest_of(data: bytes, **options: object) -> bytes:
    hasher = ContentHasher(KEY)
    for block in open_table(io.BytesIO(data), FileOptions.parse(options)):
        hasher.update(block)
    return hasher.digest()


@given(left=ROWS, right=ROWS)
def test_digests_agree_exactly_where_the_rows_do(
    left: list[tuple[str, str]], right: list[tuple[str, str]]
) -> None:
    assert (digest(left) == digest(right)) == (Counter(left) == Counter(right))


@given(rows=ROWS, block=st.integers(1, 3))
def test_blocks_may_be_cut_anywhere(rows: list[tuple[str, str]], block: int) -> None:
    assert digest(rows, block=block) == digest(rows)


def test_a_cell_that_moves_to_another_column_is_other_content() -> None:
    assert digest([("1", "12")]) != digest([("12", "1")])
    assert digest([("1", "1"), ("12", "12")]) != digest([("1", "12"), ("12", "1")])


def test_the_key_decides_the_digest() -> None:
    assert digest([("a", "1")], b"k" * 32) != digest([("a", "1")], b"l" * 32)
    with pytest.raises(ValueError, match="16 bytes"):
        ContentHasher(b"short")


def test_format_column_order_and_spelling_do_not_matter() -> None:
    csv = b"name,size\nx,1.50\ny,\n"
    parquet = io.BytesIO()
    pq.write_table(pa.table({"size": [1.5, None], "name": ["x", "y"]}), parquet)
    same = {
        digest_of(csv),
        digest_of(b"\xef\xbb\xbfsize;name\r\n;y\r\n1.5;x\r\n"),
        digest_of(b"size\tname\n 1.5\tx\n\ty\n", format="tsv"),
        digest_of(b'{"name": "x", "size": 1.50}\n{"name": "y"}\n'),
        digest_of(parquet.getvalue()),
    }
    assert len(same) == 1
    assert digest_of(b"name,size\nx,1.5\ny,0\n") not in same


def test_blocks_of_other_columns_are_refused() -> None:
    hasher = ContentHasher(KEY)
    hasher.update(pa.RecordBatch.from_pydict({"x": ["1"]}))
    with pytest.raises(ValueError, match="same columns"):
        hasher.update(pa.RecordBatch.from_pydict({"y": ["1"]}))


def test_columns_without_a_name_of_their_own_are_kept_apart() -> None:
    def of(left: str, right: str) -> bytes:
        hasher = ContentHasher(KEY)
        columns = [pa.array([left]), pa.array([right])]
        hasher.update(pa.RecordBatch.from_arrays(columns, names=["", ""]))
        return hasher.digest()

    assert of("1", "2") != of("2", "1")


def test_columns_that_no_dictionary_can_read_are_content_too() -> None:
    def of(*values: object) -> bytes:
        hasher = ContentHasher(KEY)
        hasher.update(pa.RecordBatch.from_pydict({"x": list(values)}))
        return hasher.digest()

    assert of([1], [2]) == of([2], [1]) != of([1], [3])
    assert of(b"\xff") != of(b"\xfe")


def test_each_value_has_one_spelling_and_other_texts_keep_theirs() -> None:
    spellings = {
        "7": ["7.0", "7.", "007", "+7", "0.7e1", "70E-1"],
        "-0.5": ["-.5", "-0.50", "-00.5", "-5e-1"],
        "0": ["-0", "0.0", "00", "-0.0"],
        "100000000000000000000": ["1e+20", "1E20", "100000000000000000000.0"],
        "0.00001": ["1e-05", "0.000010"],
        "": ["NA", "NaN", "nan", "null", "None", "<NA>", " "],
        "true": ["True", "TRUE"],
        "false": ["False", "FALSE"],
        "2020-01-02": ["2020-01-02 00:00:00", "2020-01-02T00:00:00.000Z"],
        "2020-01-02 10:00:01.5": ["2020-01-02T10:00:01.500+00:00"],
        "10:20": ["10:20:00", "10:20:00.000000"],
    }
    for spelling, others in spellings.items():
        assert set(canonical_texts(pa.array([spelling, *others])).to_pylist()) == {spelling}
    kept = ["70", "1.0.0", "a.0", "x", "é", "0x10", "5e", "Nan-an", "1e999", "2020-01-20", "truer"]
    assert canonical_texts(pa.array(kept)).to_pylist() == kept
    assert canonical_texts(pa.array([" x ", "é "])).to_pylist() == ["x", "é"]


def test_a_table_that_pandas_read_and_wrote_again_is_the_same_content() -> None:
    frame = pd.DataFrame(
        {
            "whole": [1, 2, 3],
            "gaps": [1.0, None, 30.0],
            "small": [0.1, 1e-5, 1e20],
            "truth": [True, False, True],
            "day": pd.to_datetime(["2019-01-01", "2020-02-03", "2021-12-31"]),
            "moment": pd.to_datetime(["2019-01-01 10:00:00", "2020-02-03 11:12:13", "2021-12-31"],
                                     format="ISO8601"),
            "word": ["x", "", "z"],
        }
    )  # fmt: skip
    csv = frame.to_csv(index=False).encode()
    typed, read_again = io.BytesIO(), io.BytesIO()
    frame.to_parquet(typed)
    pd.read_csv(io.BytesIO(csv)).to_parquet(read_again)
    lines = frame.to_json(orient="records", lines=True, date_format="iso").encode()
    forms = (csv, typed.getvalue(), read_again.getvalue(), lines)
    assert len({digest_of(form) for form in forms}) == 1


@given(st.lists(st.text("ab\0é", max_size=20), unique=True, max_size=20))
def test_distinct_texts_have_distinct_hashes_wherever_they_lie(texts: list[str]) -> None:
    secret = np.uint64(0x0123456789ABCDEF)
    hashes = hash_texts(pa.array(texts, pa.string()), secret)
    assert len(set(hashes.tolist())) == len(texts)
    sliced = pa.array(["before", *texts], pa.string())[1:]
    assert hash_texts(sliced, secret).tolist() == hashes.tolist()

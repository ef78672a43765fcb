from __future__ import annotations

import io
import zipfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from app.engine.method.model_file import ModelFormatError, counts, number, pack, unpack, weights


def test_what_is_packed_comes_back() -> None:
    header, content = (
        {"edges": [["a", "b"]], "rows": 7},
        {
            "counts": np.arange(6, dtype=np.int16).reshape(2, 3),
            "empty": np.zeros(0),
            "total": np.array(3.5),
        },
    )
    read, arrays_read = unpack(pack(header, content))
    assert read == header
    assert arrays_read.keys() == content.keys()
    for name, array in content.items():
        assert arrays_read[name].dtype == array.dtype
        assert np.array_equal(arrays_read[name], array)
        assert arrays_read[name].shape == array.shape


def test_any_numpy_reads_it_without_pickle() -> None:
    with np.load(io.BytesIO(pack({"a": 1}, {"x": np.ones(3)})), allow_pickle=False) as archive:
        assert archive["x"].tolist() == [1, 1, 1]
        assert archive["header"].tobytes() == b'{"a":1}'


@given(arrays(np.float64, array_shapes(max_side=4), elements=st.floats(allow_nan=False)))
def test_equal_content_has_equal_bytes(array: np.ndarray) -> None:
    assert pack({"b": 1, "a": 2}, {"x": array}) == pack({"a": 2, "b": 1}, {"x": array.copy()})


def test_objects_are_not_stored() -> None:
    with pytest.raises(ModelFormatError):
        pack({}, {"x": np.array([object()])})


def pickled() -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, header=np.array([{"a": 1}], dtype=object))
    return buffer.getvalue()


def compressed() -> bytes:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, header=np.zeros(10_000_000, dtype=np.uint8))
    return buffer.getvalue()


def with_entry(name: str, content: bytes) -> bytes:
    buffer = io.BytesIO(pack({}, {}))
    with zipfile.ZipFile(buffer, "a") as archive:
        archive.writestr(name, content)
    return buffer.getvalue()


def claiming_to_be_huge() -> bytes:
    entry = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        entry, {"descr": "<f8", "fortran_order": False, "shape": (2**60,)}
    )
    return with_entry("x.npy", entry.getvalue())


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"not a zip",
        pack({}, {"x": np.ones(9)})[:-30],
        pickled(),
        compressed(),
        claiming_to_be_huge(),
        with_entry("x.npy", b"\x93NUMPY\x01\x00"),
        with_entry("header.txt", b""),
        pack({}, {}).replace(b"{}", b"[]"),
    ],
    ids=["empty", "text", "cut", "pickle", "bomb", "huge", "header", "stray", "no object"],
)
def test_anything_else_is_refused(data: bytes) -> None:
    with pytest.raises(ModelFormatError):
        unpack(data)


@pytest.mark.parametrize("value", [None, True, -1, 1.0, "3", 2**60])
def test_a_number_of_the_header_is_a_whole_one_in_range(value: object) -> None:
    with pytest.raises(ModelFormatError):
        number({"rows": value}, "rows")


@pytest.mark.parametrize(
    "array", [np.ones(3), np.array([-1.0, 1.0]), np.array([np.nan, 1.0]), np.array([1, 2])]
)
def test_weights_are_finite_floats_of_their_shape(array: np.ndarray) -> None:
    with pytest.raises(ModelFormatError):
        weights({"x": array}, "x", (2,))


@pytest.mark.parametrize(
    "array", [np.array([1, 2, 3]), np.array([-1, 2]), np.array([2**62, 2**62]), np.ones(2)]
)
def test_counts_are_whole_and_add_up_exactly(array: np.ndarray) -> None:
    with pytest.raises(ModelFormatError):
        counts({"x": array}, "x", (2,))

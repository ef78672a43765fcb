"""Codes back to cell texts, spelled as the dictionary says files spell them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from app.engine.schema import Column


def render(column: Column, codes: NDArray[Any], missing: Sequence[str] = ("",)) -> pa.StringArray:
    """The text of each stored code: the column's date format, decimal mark and truth values,

    and the first spelling of null (the column's own, else the table's `missing`). Reading the
    texts again gives the same codes.
    """
    own = column.text_format.missing
    null = next(iter(missing if own is None else own), "")
    return pc.fill_null(_texts(column, column.decode(codes)), null)


def _texts(column: Column, values: pa.Array) -> pa.StringArray:
    form = column.text_format
    if column.type == "boolean":
        true, false = (next(iter(v), "") for v in (form.true_values, form.false_values))
        return pc.if_else(values, true, false)
    if column.type in ("date", "datetime", "time"):
        return _moments(column, values)
    texts = values.cast(pa.string())
    if column.type == "number" and form.decimal_char != ".":
        return pc.replace_substring(texts, ".", form.decimal_char)
    return texts


def _moments(column: Column, values: pa.Array) -> pa.StringArray:
    iso = {"date": "%Y-%m-%d", "datetime": "%Y-%m-%dT%H:%M:%S", "time": "%H:%M:%S"}[column.type]
    if column.type == "time":
        values = values.cast(pa.int32()).cast(pa.int64())
    return pc.strftime(
        values.cast(pa.timestamp("s")), format=next(iter(column.text_format.formats), iso)
    )

"""Finding the values of a column that many units have, where no list of them is public.

Every row of such a column is stored as `other` (or null), which says nothing about it; beside it
stands the private number of its text. Finding values is key discovery (see `discovery`, whose
statement and proof hold for any keys, so for texts too): each unit enters at most m distinct
texts, and a text is published with its noisy count if that reaches the threshold. The private
numbers never show: texts come out in alphabetical order. Where more are found than the dictionary
wants, those with the smallest noisy counts are left out, which is post-processing.

Once published, the values are public: the session continues with a dictionary that lists them,
and with rows that are coded by it. That maps each row by itself, so no unit contributes more to
any later question than the question's rule says.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.engine.privacy.bounding import Bounded
from app.engine.privacy.contributions import counted_codes
from app.engine.privacy.discovery import entered_counts
from app.engine.privacy.source import CodeSource
from app.engine.schema import PrivacyUnit, Schema


def exact_values(
    source: CodeSource, bounded: Bounded, column: str, limit: int
) -> tuple[tuple[str, ...], NDArray[np.int64]]:
    """Every text that some unit enters, in order, and how many do."""
    texts = source.texts(column)
    codes, entity = counted_codes(_Numbers(source, column), bounded, (column,))
    number = np.minimum(codes[column], len(texts))  # rows without a text enter none of them
    counts = entered_counts(number, entity, bounded, len(texts) + 1, limit)[:-1]
    entered = sorted((texts[place], place) for place in np.flatnonzero(counts).tolist())
    return tuple(text for text, _ in entered), counts[[place for _, place in entered]]


def most_frequent(counts: NDArray[np.int64], most: int) -> NDArray[np.bool_]:
    """A mask of the `most` largest; of equal ones the first are taken."""
    mask = np.zeros(len(counts), dtype=bool)
    mask[np.argsort(-counts, kind="stable")[:most]] = True
    return mask


class ResolvedCodes:
    """A `CodeSource` whose found values are coded as a dictionary lists them.

    `schema` is that of `source` after `with_values`.
    """

    def __init__(self, source: CodeSource, schema: Schema) -> None:
        self._source = source
        self.schema = schema
        self._lookups = {
            column.name: _lookup(source, schema, column.name)
            for column in source.schema.columns
            if column.discovers is not None and schema.column(column.name).regular
        }

    @property
    def unit(self) -> PrivacyUnit:
        return self._source.unit

    def chunks(self, columns: Sequence[str]) -> Iterator[dict[str, NDArray[Any]]]:
        found = [name for name in columns if name in self._lookups]
        numbers = [self._source.numbers(name) for name in found]
        for chunk, *of_chunk in zip(self._source.chunks(columns), *numbers, strict=True):
            for name, number in zip(found, of_chunk, strict=True):
                chunk[name] = self._coded(name, chunk[name], number)
            yield chunk

    def entities(self) -> Iterator[NDArray[np.uint64]]:
        return self._source.entities()

    def texts(self, column: str) -> Sequence[str]:
        return self._source.texts(column)

    def numbers(self, column: str) -> Iterator[NDArray[np.uint32]]:
        return self._source.numbers(column)

    def _coded(self, name: str, declared: NDArray[Any], number: NDArray[np.uint32]) -> NDArray[Any]:
        """Codes of found values; `other` and null stay, after the values."""
        column, lookup = self.schema.column(name), self._lookups[name]
        codes = lookup[np.minimum(number, len(lookup) - 1)]
        codes = np.where(codes < 0, column.regular + declared.astype(np.int64), codes)
        return codes.astype(column.dtype)


def _lookup(source: CodeSource, schema: Schema, name: str) -> NDArray[np.int64]:
    """The code of each private number, -1 for what was not found and, at the end, for no text."""
    column = schema.column(name)
    codes = [column.scale.code(text) for text in source.texts(name)]
    return np.array([*(-1 if code is None else code for code in codes), -1], dtype=np.int64)


class _Numbers:
    """A `CodeSource` of one column, with private numbers in place of its codes."""

    def __init__(self, source: CodeSource, column: str) -> None:
        self._source = source
        self._column = column
        self.schema = source.schema
        self.unit = source.unit

    def chunks(self, columns: Sequence[str]) -> Iterator[dict[str, NDArray[Any]]]:
        assert tuple(columns) == (self._column,)
        for numbers in self._source.numbers(self._column):
            yield {self._column: numbers}

    def entities(self) -> Iterator[NDArray[np.uint64]]:
        return self._source.entities()

    def texts(self, column: str) -> Sequence[str]:
        return self._source.texts(column)

    def numbers(self, column: str) -> Iterator[NDArray[np.uint32]]:
        return self._source.numbers(column)

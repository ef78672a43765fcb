"""Private numbers for the texts of a column with discovered values."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from app.engine.encoding.cells import Cells, trimmed
from app.engine.escapes import has_escapes
from app.engine.rows import refuse
from app.engine.schema import Column

# The largest uint32, which no text gets.
NO_NUMBER = 2**32 - 1
# Longer texts are free text rather than categories.
LONGEST_FOUND = 500
# All distinct texts are in memory at once.
MOST_TEXTS = 2**20


class FoundTexts:
    """Numbers the distinct texts in the order of their first occurrence.

    The numbers are private, as the texts are. Null, the text of `other` and texts of over 500
    characters, or with bytes that are not text, get `NO_NUMBER`; such texts stay `other`. Blanks
    around a text are ignored.
    """

    def __init__(self, column: Column) -> None:
        self._column = column
        self._known: dict[str, int] = {}

    @property
    def texts(self) -> tuple[str, ...]:
        """The texts, in the order of their numbers."""
        return tuple(self._known)

    def numbers(self, cells: Cells, is_null: NDArray[np.bool_]) -> NDArray[np.uint32]:
        """The number of each row's text, uint32; raises `TableError` for too many texts."""
        held = np.unique(cells.indices[~is_null])
        of_texts = np.full(len(cells.texts) + 1, NO_NUMBER, dtype=np.uint32)
        texts = trimmed(cells.texts.take(pa.array(held)))
        of_texts[held] = [
            NO_NUMBER if not_text else self._number(text)
            for text, not_text in zip(texts.to_pylist(), has_escapes(texts), strict=True)
        ]
        return of_texts[cells.indices]

    def _number(self, text: str) -> int:
        if text == self._column.other or len(text) > LONGEST_FOUND:
            return NO_NUMBER
        if len(self._known) == MOST_TEXTS and text not in self._known:
            raise refuse(
                f"a column with discovered values has over {MOST_TEXTS} different texts",
                "leave it out as free text, or group its values first",
                self._column.name,
            )
        return self._known.setdefault(text, len(self._known))

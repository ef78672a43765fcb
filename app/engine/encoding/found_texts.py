"""Private numbers for the texts of a column whose values are to be found."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from app.engine.encoding.cells import Cells, trimmed
from app.engine.rows import refuse
from app.engine.schema import Column

NO_NUMBER = 2**32 - 1
LONGEST_FOUND = 500
MOST_TEXTS = 2**20


class FoundTexts:
    """Numbers distinct texts in the order in which they come: private, as the texts are.

    `NO_NUMBER` is that of null, of the text of `other`, and of texts of over 500 characters,
    which stay `other`. Blanks around a text do not count.
    """

    def __init__(self, column: Column) -> None:
        self._column = column
        self._known: dict[str, int] = {}

    @property
    def texts(self) -> tuple[str, ...]:
        """By number."""
        return tuple(self._known)

    def numbers(self, cells: Cells, is_null: NDArray[np.bool_]) -> NDArray[np.uint32]:
        """The number of each row's text, uint32; raises `TableError` for too many texts."""
        held = np.unique(cells.indices[~is_null])
        of_texts = np.full(len(cells.texts) + 1, NO_NUMBER, dtype=np.uint32)
        of_texts[held] = [
            self._number(text) for text in trimmed(cells.texts.take(pa.array(held))).to_pylist()
        ]
        return of_texts[cells.indices]

    def _number(self, text: str) -> int:
        if text == self._column.other or len(text) > LONGEST_FOUND:
            return NO_NUMBER
        if len(self._known) == MOST_TEXTS and text not in self._known:
            raise refuse(
                f"a column whose values are to be found has over {MOST_TEXTS} different ones",
                "leave it out as free text, or group its values before",
                self._column.name,
            )
        return self._known.setdefault(text, len(self._known))

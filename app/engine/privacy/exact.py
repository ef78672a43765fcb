"""The exact histograms of one session, over rows that are drawn once."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.engine.privacy.bounding import Bounded, bound_rows
from app.engine.privacy.contributions import Histogram, exact_histograms
from app.engine.privacy.source import CodeSource
from app.engine.privacy.wire import narrowed

# 8 MiB of counts for each pass over the rows, and up to 64 MiB kept between questions.
_CELLS_AT_ONCE = 2**20
_CACHED_CELLS = 2**23


class ExactHistograms:
    """Exact histograms of the session, computed in few passes and kept for a while.

    A rule that draws at random (`distinct`, `one`) keeps its draw as long as its histogram is
    kept. Drawing again later is just as private, since the sensitivity holds for every draw.
    """

    def __init__(self, source: CodeSource, bounded: Bounded | None = None) -> None:
        self._source = source
        self._bounded = bounded
        self._kept: OrderedDict[Histogram, NDArray[Any]] = OrderedDict()
        self._kept_cells = 0

    @property
    def bounded(self) -> Bounded:
        """The rows that count, drawn when first needed and never again."""
        if self._bounded is None:
            self._bounded = bound_rows(self._source)
        return self._bounded

    def each(self, histograms: Sequence[Histogram]) -> Iterator[NDArray[np.int64]]:
        """Flat histograms in the order given; a bounded number of cells is held at once."""
        # A question too large to be kept as a whole would push out its own first histograms
        # before the next one of its kind could use them: nothing of it is kept.
        keeps = sum(histogram.cells for histogram in histograms) <= _CACHED_CELLS
        for group in _groups(histograms, lambda histogram: histogram.cells):
            yield from self._of_group(group, keeps)

    def _of_group(self, group: Sequence[Histogram], keeps: bool) -> Iterator[NDArray[np.int64]]:
        missing = [each for each in dict.fromkeys(group) if each not in self._kept]
        found = {each: self._kept[each] for each in group if each in self._kept}
        if missing:
            computed = exact_histograms(self._source, self.bounded, missing)
            found.update(zip(missing, computed, strict=True))
            del computed
        for histogram in group:
            values = found[histogram]
            if keeps:
                found[histogram] = self._keep(histogram, values)
            yield values.astype(np.int64, copy=False)

    def _keep(self, histogram: Histogram, values: NDArray[Any]) -> NDArray[Any]:
        """Keeps a histogram in the smallest type that holds its counts."""
        if histogram not in self._kept:
            self._kept_cells += histogram.cells
            values = narrowed(values)
        self._kept[histogram] = values
        self._kept.move_to_end(histogram)
        while self._kept_cells > _CACHED_CELLS:
            oldest, _ = self._kept.popitem(last=False)
            self._kept_cells -= oldest.cells
        return values


def _groups(
    histograms: Sequence[Histogram], size: Callable[[Histogram], int]
) -> Iterator[list[Histogram]]:
    group: list[Histogram] = []
    cells = 0
    for histogram in histograms:
        if group and cells + size(histogram) > _CELLS_AT_ONCE:
            yield group
            group, cells = [], 0
        group.append(histogram)
        cells += size(histogram)
    if group:
        yield group

"""What counting columns takes: memory of the kernel, and cells that messages describe."""

from __future__ import annotations

from app.engine.columns.axes import Axes

# The kernel counts histograms in batches of no more exact cells, if none has more by itself.
_CELLS_AT_ONCE = 2**20

# The most exact cells that the kernel keeps for later questions.
_CELLS_KEPT = 2**23


def counting_bytes(cells: int, largest: int = 0) -> int:
    """Memory of the kernel for a question over `cells` cells, `largest` in one histogram."""
    return 8 * (max(min(cells, _CELLS_AT_ONCE), largest) + min(cells, _CELLS_KEPT))


def header_cells(axes: Axes) -> int:
    """Cells whose edges a message about these columns describes."""
    return sum(axes.shape) + sum(grouping.cells for grouping in axes.sub_bins.values())

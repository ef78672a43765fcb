"""Limits of one question to the kernel. They are public, so a preflight can check them too."""

from __future__ import annotations

import math

# Cells of one question, all its queries together: 1 GiB of 64-bit counts.
MOST_CELLS = 2**27

# Numbers in one question, all its queries together: the items of its lists of tuples, the cells
# of their columns, and the tables that split cells into parts.
MOST_LISTED = 2**25

# Items (cells) of one tuple. Noisy counts of longer combinations are of no use.
LONGEST_TUPLE = 64

# Items that the rows of one unit may have together in a list of tuples.
MOST_ITEMS_OF_UNIT = 2**26

# Steps to find a row's tuples: some 20 milliseconds, so that no row stops a worker.
MOST_STEPS_OF_ROW = 2**22

# The largest scale of noise, in steps of the noised integers: counts, or steps of the grid of
# `clipped`; for a selection, in counts of the heaviest candidate.
LARGEST_SCALE = 2.0**40


def steps_of_row(width: int, length: int, tuples: int) -> int:
    """An upper bound on the steps that find which of `tuples` listed tuples of this length are in
    a row of `width` items: every choice of items, or every item below each node of the tree."""
    choices = sum(math.comb(width, size) for size in range(1, length + 1))
    return min(choices, width * (1 + tuples * (length - 1)))

"""How far a question may go: public limits of the kernel, for whoever forecasts a run."""

MOST_CELLS = 2**27
"""Cells of one question, all its queries together."""

MOST_LISTED = 2**25
"""Entries of one question's lists of tuples, the cells of their columns and the tables of
their parts, all queries together."""

LONGEST_TUPLE = 64

MOST_ITEMS_OF_UNIT = 2**26
"""Items that the rows of one unit may have together in a list of tuples."""

LARGEST_SCALE = 2.0**40
"""The largest scale of noise, in steps of the noised integers: counts, or steps of the grid
of `clipped`; for a selection, in counts of the heaviest candidate."""

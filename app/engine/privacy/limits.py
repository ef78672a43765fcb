"""How far a question may go: public limits of the kernel, for whoever forecasts a run."""

MOST_CELLS = 2**27
"""Cells of one question, all its queries together."""

LARGEST_SCALE = 2.0**40
"""The largest scale of noise, in steps of the noised integers: counts, or steps of the grid
of `clipped`; for a selection, in counts of the heaviest candidate."""

"""`linked_histograms`: joint histograms of groups of columns, counted once per entity and
cell, and linked by rank. Jim King's system of the NIST Temporal Map Challenge, Sprint 3 (2021).
"""

from app.engine.synthesizers.linked_histograms.model import LinkedHistogramsModel
from app.engine.synthesizers.linked_histograms.synthesizer import LinkedHistograms

__all__ = ["LinkedHistograms", "LinkedHistogramsModel"]

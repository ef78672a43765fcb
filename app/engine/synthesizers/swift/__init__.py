"""`swift`: three questions, and a junction tree over the pairs that are worth their noise."""

from app.engine.synthesizers.swift.synthesizer import Swift

__all__ = ["Swift"]

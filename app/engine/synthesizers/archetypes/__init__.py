"""`archetypes`: entities of kinds learnt from public rows, counted privately kind by kind."""

from app.engine.synthesizers.archetypes.synthesizer import Archetypes

__all__ = ["Archetypes"]

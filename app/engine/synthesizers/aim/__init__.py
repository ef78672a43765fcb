"""`aim`: marginals chosen one after another, each where the model so far is furthest off."""

from app.engine.synthesizers.aim.synthesizer import Aim

__all__ = ["Aim"]

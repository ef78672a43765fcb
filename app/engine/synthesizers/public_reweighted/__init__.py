"""`public_reweighted`: public rows, weighted so that they agree with noisy counts."""

from app.engine.synthesizers.public_reweighted.synthesizer import PublicReweighted

__all__ = ["PublicReweighted"]

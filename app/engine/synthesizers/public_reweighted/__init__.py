"""`public_reweighted`: public rows, weighed until they agree with noisy counts."""

from app.engine.synthesizers.public_reweighted.synthesizer import PublicReweighted

__all__ = ["PublicReweighted"]

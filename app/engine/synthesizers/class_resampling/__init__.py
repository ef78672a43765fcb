"""`class_resampling`: noisy counts of classes of entities, filled with public entities."""

from app.engine.synthesizers.class_resampling.synthesizer import ClassResampling

__all__ = ["ClassResampling"]

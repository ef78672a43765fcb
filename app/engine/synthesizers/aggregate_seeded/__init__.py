"""`aggregate_seeded`: rows made item by item to match noisy counts of combinations."""

from app.engine.synthesizers.aggregate_seeded.synthesizer import AggregateSeeded

__all__ = ["AggregateSeeded"]

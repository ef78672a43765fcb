"""What every private run of the bench is held to."""

from __future__ import annotations

from decimal import Decimal

from app.engine.privacy.loss import DELTA_UNIT, EPSILON_UNIT, Guarantee, to_units

DELTA = "1e-9"


def guarantee(epsilon: str) -> Guarantee:
    """(epsilon, delta of the bench)."""
    return Guarantee(
        epsilon=to_units(Decimal(epsilon), EPSILON_UNIT, rounding="up"),
        delta=to_units(Decimal(DELTA), DELTA_UNIT, rounding="up"),
    )

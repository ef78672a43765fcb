"""Amounts of `zcdp` accounts told as epsilon, at a delta that stands beside it.

Rho adds up over releases; epsilon at a delta does not. What was spent and what is left, both told
as epsilon, come to more than the cap: each is right by itself.
"""

from __future__ import annotations

from dataclasses import dataclass

from app.engine.privacy.accounting import epsilon_for, largest_epsilon_within
from app.engine.privacy.loss import (
    DELTA_UNIT,
    EPSILON_UNIT,
    Accountant,
    AmountError,
    Charge,
    Guarantee,
    from_units,
)

# At which epsilon is told where neither a request nor an allowance states a delta: 1e-6.
USUAL_DELTA = 10**12


@dataclass(frozen=True, slots=True)
class EpsilonAtDelta:
    """Epsilon and the delta at which it is meant, in units of 1e-12 and 1e-18."""

    epsilon: int
    delta: int

    def as_wire(self) -> dict[str, str]:
        return {
            "epsilon": from_units(self.epsilon, EPSILON_UNIT),
            "delta": from_units(self.delta, DELTA_UNIT),
        }


def requested(
    charge: Charge, guarantee: Guarantee, accountant: Accountant
) -> dict[str, str] | None:
    """A charge as the guarantee asked for it; of a guarantee in rho, at the usual delta."""
    if accountant is Accountant.BASIC:
        return None
    if guarantee.epsilon is not None:
        return EpsilonAtDelta(guarantee.epsilon, guarantee.delta or 0).as_wire()
    return spent(charge, accountant, delta_of(guarantee))


def delta_of(guarantee: Guarantee) -> int:
    """At which delta a request's amounts are told."""
    return guarantee.delta or USUAL_DELTA


def spent(charge: Charge, accountant: Accountant, delta: int) -> dict[str, str] | None:
    """The smallest epsilon that covers what was charged.

    None on `basic` accounts, whose amounts are epsilon already, and where no epsilon can be stated:
    approximate steps alone took all of `delta`, or the epsilon would be beyond all use.
    """
    if accountant is Accountant.BASIC or charge.delta >= delta:
        return None
    try:
        return EpsilonAtDelta(epsilon_for(charge.primary, delta - charge.delta), delta).as_wire()
    except AmountError:
        return None


def left(
    charge: Charge, accountant: Accountant, delta: int, most: int | None = None
) -> dict[str, str] | None:
    """The largest epsilon of one release, without approximate steps, that the amount covers.

    `most` is what was stated of the whole, if it was: units of rho can cover some 1e-11 more.
    """
    if accountant is Accountant.BASIC:
        return None
    epsilon = largest_epsilon_within(charge.primary, delta)
    return EpsilonAtDelta(epsilon if most is None else min(epsilon, most), delta).as_wire()

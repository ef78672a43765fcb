"""The guarantee that a row-level library is run with, for what a release was charged.

All adapted methods are zero-concentrated inside: they turn the (epsilon, delta) that they are
given into a rho, and compose Gaussian noise and exponential mechanisms up to it. So the rho that
each states is what counts. One entity has at most k rows, and rho-zCDP for one row is k^2 rho for k
of them (Bun and Steinke 2016, proposition 1.9), so the library gets rho / k^2.
"""

from __future__ import annotations

from dataclasses import dataclass

from app.engine.privacy.accounting import epsilon_for
from app.engine.privacy.loss import SMALLEST_PRIMARY, AmountError
from app.engine.privacy.unit_budget import UnitBudget

# A library takes epsilon and delta. At this delta of 1e-9 the rho is converted; the charge does not
# depend on it.
_DELTA_UNITS = 10**9
_UNITS_OF_EPSILON = 10**12
_UNITS_OF_DELTA = 10**18


@dataclass(frozen=True, slots=True)
class LibraryGuarantee:
    """The epsilon and delta that a library is given, and the largest rho that it may state."""

    epsilon: float
    delta: float
    rho: float


def rho_of_rows(budget: UnitBudget) -> int:
    """Units of rho that a row-level library may spend, rounded down; 0 where it cannot run."""
    if budget.loss.kind != "zcdp":
        return 0
    rho: int = budget.loss.amount // budget.unit.max_rows**2
    return rho if rho >= SMALLEST_PRIMARY else 0


def library_guarantee(budget: UnitBudget) -> LibraryGuarantee:
    """Raises `AmountError` for a loss that no row-level library can be run with."""
    rho = rho_of_rows(budget)
    if not rho:
        raise AmountError("the loss leaves a row-level library nothing to spend")
    return LibraryGuarantee(
        # Rounded up; one unit less, so that the library converts it back to no more than rho.
        (epsilon_for(rho, _DELTA_UNITS) - 1) / _UNITS_OF_EPSILON,
        _DELTA_UNITS / _UNITS_OF_DELTA,
        rho / _UNITS_OF_EPSILON,
    )

"""How guarantees become charges: the conversions between epsilon, rho and delta.

Everything is in the integer units of `loss`. The conversion from rho-zCDP to
(epsilon, delta) is that of Canonne, Kamath and Steinke ("The discrete Gaussian for
differential privacy", 2020, arXiv:2004.00010v5): for every alpha > 1,

    delta <= exp((alpha - 1)(alpha rho - epsilon)) / (alpha - 1) * (1 - 1/alpha)^alpha.

The bound holds at *every* alpha, so floats may look for a good alpha and cannot harm: what
counts is its one evaluation, in decimals of 60 digits. `decimal` rounds `ln` and `exp`
correctly, the expression has a dozen operations, and its exponent is below 1e25 in size
wherever the bound is not negligible; so the relative error stays below 1e-30, and each
bound is multiplied by 1 + 1e-25 before it is compared or rounded up.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import MAX_EMAX, MIN_EMIN, ROUND_CEILING, ROUND_HALF_EVEN, Context, Decimal
from functools import lru_cache
from math import isqrt

from app.engine.privacy.loss import (
    DELTA_UNIT,
    EPSILON_UNIT,
    LARGEST_AMOUNT,
    RHO_UNIT,
    SMALLEST_PRIMARY,
    Accountant,
    AmountError,
    Charge,
    Guarantee,
    PrivacyLoss,
)

_ONE_EPSILON = 10**12
_ONE_DELTA = 10**18
_PRECISE = Context(
    prec=60, rounding=ROUND_HALF_EVEN, Emin=MIN_EMIN, Emax=MAX_EMAX, traps=[], flags=[]
)
# Bounds are raised by 1e-25, far above the relative error of 1e-30 that is derived above.
_AGAINST_US = Decimal(1) + Decimal("1e-25")
# exp(-10^9) is far below one unit of delta, and raising a smaller bound to it is safe.
_LARGEST_EXPONENT = Decimal(10**9)


class GuaranteeNotAccepted(ValueError):
    """The account cannot book this kind of guarantee: where, why, and what to do instead."""

    def __init__(self, pointer: str, message: str, remedy: str) -> None:
        super().__init__(message)
        self.pointer = pointer
        self.message = message
        self.remedy = remedy


class BudgetNotAccepted(GuaranteeNotAccepted):
    """The budget gives an account of this kind no cap."""


@dataclass(frozen=True, slots=True)
class Caps:
    """What an account may spend: epsilon (`basic`) or rho (`zcdp`), and delta."""

    primary: int
    delta: int


def _best_alpha(rho: float, epsilon: float) -> float:
    """An alpha near the minimum of the bound, where the derivative of its logarithm,
    (2 alpha - 1) rho - epsilon + ln(1 - 1/alpha), crosses zero; it rises with alpha."""
    # Bisection in the logarithm of alpha - 1, which spans many orders of magnitude. At the
    # upper end the derivative is positive already.
    low, high = math.log(1e-12), math.log(1.0 + (epsilon + 1.0) / rho)
    for _ in range(90):
        middle = (low + high) / 2
        excess = math.exp(middle)
        slope = (2 * excess + 1) * rho - epsilon - math.log1p(1 / excess)
        low, high = (middle, high) if slope < 0 else (low, middle)
    return 1.0 + math.exp(high)


def _bound(rho: int, epsilon: int) -> Decimal:
    """An upper bound on delta of rho-zCDP at epsilon, at one alpha, rounded against us."""
    alpha = Decimal(_best_alpha(rho / _ONE_EPSILON, epsilon / _ONE_EPSILON))
    if alpha <= 1:
        return Decimal(1)
    ctx = _PRECISE
    rho_exact = ctx.multiply(Decimal(rho), RHO_UNIT)
    epsilon_exact = ctx.multiply(Decimal(epsilon), EPSILON_UNIT)
    excess = ctx.subtract(alpha, Decimal(1))
    exponent = ctx.multiply(excess, ctx.subtract(ctx.multiply(alpha, rho_exact), epsilon_exact))
    shrink = ctx.multiply(alpha, ctx.ln(ctx.divide(excess, alpha)))
    log_bound = ctx.subtract(ctx.add(exponent, shrink), ctx.ln(excess))
    if log_bound > 0:
        return Decimal(1)
    if log_bound < -_LARGEST_EXPONENT:
        log_bound = -_LARGEST_EXPONENT
    return ctx.multiply(ctx.exp(log_bound), _AGAINST_US)


@lru_cache(maxsize=4096)
def delta_of(rho: int, epsilon: int) -> int:
    """Units of delta, rounded up, such that every rho-zCDP mechanism is (epsilon, delta)-DP."""
    if rho < 0 or epsilon < 0:
        raise AmountError("rho and epsilon are not negative")
    if rho == 0:
        return 0
    units = _PRECISE.divide(_bound(rho, epsilon), DELTA_UNIT)
    return min(int(units.to_integral_value(rounding=ROUND_CEILING)), _ONE_DELTA)


def _largest(holds: Callable[[int], bool], low: int, high: int) -> int:
    """The largest integer in [low, high] where `holds`, which is true at `low` and falls once."""
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if holds(middle) else (low, middle - 1)
    return low


@lru_cache(maxsize=4096)
def rho_for(epsilon: int, delta: int) -> int:
    """The largest rho whose delta at `epsilon` is at most `delta`; 0 if delta is 0."""
    if epsilon < 0 or not 0 <= delta < _ONE_DELTA:
        raise AmountError("epsilon is not negative and delta lies in [0, 1)")
    if delta == 0:
        return 0
    rho = _largest(lambda rho: delta_of(rho, epsilon) <= delta, 0, LARGEST_AMOUNT)
    if delta_of(rho, epsilon) > delta:
        raise AmountError("the conversion to rho could not be verified")
    return rho


@lru_cache(maxsize=4096)
def epsilon_for(rho: int, delta: int) -> int:
    """The smallest epsilon, rounded up, at which every rho-zCDP mechanism has at most `delta`.

    Raises `AmountError` where no accountable epsilon does, as for a delta of 0.
    """
    if rho < 0 or not 0 <= delta < _ONE_DELTA:
        raise AmountError("rho is not negative and delta lies in [0, 1)")
    if rho == 0:
        return 0
    if delta == 0 or delta_of(rho, LARGEST_AMOUNT) > delta:
        raise AmountError("no epsilon can be stated for this rho at this delta")
    slack = _largest(
        lambda slack: delta_of(rho, LARGEST_AMOUNT - slack) <= delta, 0, LARGEST_AMOUNT
    )
    epsilon = LARGEST_AMOUNT - slack
    if delta_of(rho, epsilon) > delta:
        raise AmountError("the conversion to epsilon could not be verified")
    return epsilon


def pure_as_rho(epsilon: int) -> int:
    """The rho of a pure guarantee, epsilon^2 / 2 (Bun and Steinke 2016), rounded up."""
    return -(-epsilon * epsilon // (2 * _ONE_EPSILON))


def _room(guarantee: Guarantee, approximate_delta: int) -> int:
    """The delta left for the conversion once the approximate steps have their share."""
    delta = guarantee.delta or 0
    if approximate_delta < 0 or approximate_delta >= delta:
        raise GuaranteeNotAccepted(
            "/guarantee/delta",
            "this release needs some of delta for approximate steps, and the guarantee has"
            " no more than that",
            "ask for a larger delta, or choose params without approximate steps",
        )
    return delta - approximate_delta


def _booked(primary: int, delta: int) -> Charge:
    if primary > LARGEST_AMOUNT:
        raise GuaranteeNotAccepted(
            "/guarantee", "the guarantee is larger than the service can account for", "ask for less"
        )
    return Charge(primary, delta)


def _session_rho(epsilon: int, delta: int) -> int:
    rho = rho_for(epsilon, delta)
    if rho == 0:
        raise GuaranteeNotAccepted(
            "/guarantee", "no noise is large enough for this guarantee", "raise epsilon or delta"
        )
    return rho


def _open_rho(guarantee: Guarantee, accountant: Accountant, aside: int) -> tuple[Charge, int]:
    rho = guarantee.rho
    assert rho is not None
    if accountant is Accountant.ZCDP:
        if guarantee.delta:
            raise GuaranteeNotAccepted(
                "/guarantee/delta",
                "an account of the `zcdp` accountant books rho itself, without a delta",
                "leave delta out, or ask for epsilon and delta",
            )
        if aside:
            raise GuaranteeNotAccepted(
                "/guarantee",
                "these params take approximate steps, which a guarantee in rho alone cannot hold",
                "ask for epsilon and delta",
            )
        return Charge(rho), rho
    if not guarantee.delta:
        raise GuaranteeNotAccepted(
            "/guarantee",
            "an account of the `basic` accountant books epsilon and delta, which rho alone"
            " does not give",
            "name the delta at which rho is to be booked, or ask for epsilon",
        )
    room = _room(guarantee, aside)
    try:
        return _booked(epsilon_for(rho, room), guarantee.delta), rho
    except AmountError as error:
        raise GuaranteeNotAccepted("/guarantee", str(error), "raise delta") from None


def open_guarantee(
    guarantee: Guarantee, accountant: Accountant, approximate_delta: int = 0
) -> tuple[Charge, PrivacyLoss]:
    """What the account books for a release, and the loss its session opens with.

    `approximate_delta` is what the release's params need for approximate steps, in units of
    delta; it comes out of the guarantee's own delta. Raises `GuaranteeNotAccepted`.
    """
    if guarantee.rho is not None:
        charge, rho = _open_rho(guarantee, accountant, approximate_delta)
        return charge, PrivacyLoss.zcdp(rho, approximate_delta)
    epsilon = guarantee.epsilon
    assert epsilon is not None
    if guarantee.is_pure:
        if approximate_delta:
            _room(guarantee, approximate_delta)
        primary = epsilon if accountant is Accountant.BASIC else pure_as_rho(epsilon)
        return _booked(primary, 0), PrivacyLoss.pure(epsilon)
    rho = _session_rho(epsilon, _room(guarantee, approximate_delta))
    assert guarantee.delta is not None
    if accountant is Accountant.BASIC:
        charge = Charge(epsilon, guarantee.delta)
    else:
        charge = Charge(rho, approximate_delta)
    return charge, PrivacyLoss.zcdp(rho, approximate_delta)


def account_caps(
    epsilon_budget: int, delta_budget: int, accountant: Accountant, delta_for_approximate: int = 0
) -> Caps:
    """The caps of an account with this budget. Raises `BudgetNotAccepted`.

    On `zcdp` the budget is turned into rho once, at what `delta_for_approximate` leaves of
    delta; on `basic` nothing is set aside.
    """
    if not 0 < epsilon_budget <= LARGEST_AMOUNT:
        raise BudgetNotAccepted(
            "/budget/epsilon", "epsilon is a positive amount", "state a positive epsilon"
        )
    if not 0 <= delta_budget < _ONE_DELTA:
        raise BudgetNotAccepted("/budget/delta", "delta must be below 1", "state a smaller delta")
    if accountant is Accountant.BASIC:
        if delta_for_approximate:
            raise BudgetNotAccepted(
                "/delta_for_approximate",
                "only accounts of the `zcdp` accountant set delta aside",
                "leave it out: on `basic`, approximate steps draw on the budget's delta",
            )
        return Caps(epsilon_budget, delta_budget)
    if delta_budget == 0:
        raise BudgetNotAccepted(
            "/budget/delta",
            "the `zcdp` accountant needs a delta above 0",
            "state a delta, or use the `basic` accountant",
        )
    if not 0 <= delta_for_approximate < delta_budget:
        raise BudgetNotAccepted(
            "/delta_for_approximate",
            "what is set aside must leave some of the budget's delta",
            "set aside less than delta",
        )
    cap = rho_for(epsilon_budget, delta_budget - delta_for_approximate)
    if cap == 0:
        raise BudgetNotAccepted("/budget", "the budget leaves no rho", "raise epsilon or delta")
    return Caps(cap, delta_for_approximate)


def largest_epsilon_within(rho: int, delta: int) -> int:
    """The largest epsilon that a `zcdp` account books, at this delta, within `rho`."""
    if delta == 0:
        return isqrt(2 * _ONE_EPSILON * rho)
    try:
        too_much = epsilon_for(rho + 1, delta)  # the smallest epsilon that books more than rho
    except AmountError:
        return LARGEST_AMOUNT
    return too_much - 1


def largest_epsilon(
    remaining: Charge, guarantee: Guarantee, accountant: Accountant, approximate_delta: int = 0
) -> int | None:
    """The largest epsilon that would still be admitted at the request's own delta.

    `remaining` is what the scope has left. A request without a delta (pure, or rho alone) is
    answered for a pure guarantee. None if nothing fits, so that asking for what is stated
    here is always admitted (as long as nobody else spends first).
    """
    delta = guarantee.delta or 0
    needed = delta if accountant is Accountant.BASIC else approximate_delta
    if needed > remaining.delta or (approximate_delta and approximate_delta >= delta):
        return None
    if accountant is Accountant.BASIC:
        epsilon = remaining.primary
    else:
        epsilon = largest_epsilon_within(remaining.primary, delta - approximate_delta)
    epsilon = min(epsilon, LARGEST_AMOUNT)
    if epsilon < SMALLEST_PRIMARY:
        return None
    try:
        open_guarantee(Guarantee(epsilon=epsilon, delta=delta), accountant, approximate_delta)
    except GuaranteeNotAccepted:
        return None
    return epsilon

"""What a certificate states of losses, added up: never more than was charged.

The conversion between rho and (epsilon, delta) is that of Canonne, Kamath and Steinke ("The
discrete Gaussian for differential privacy", 2020): for every alpha > 1,

    delta <= exp((alpha - 1)(alpha rho - epsilon)) / (alpha - 1) * (1 - 1/alpha)^alpha.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, localcontext
from typing import Any

Amounts = Mapping[str, Decimal]

_PRECISE = Context(prec=60, Emin=MIN_EMIN, Emax=MAX_EMAX)
_NONE = Decimal(0)


def losses_fault(certificate: Mapping[str, Any]) -> str | None:
    """What does not add up; None if the mechanisms stay within the session, the session within the
    guarantee, and the guarantee within the charge."""
    session = certificate["session"]
    spent, allowed = amounts(session["spent"]), amounts(session["allowed"])
    used = total([amounts(each["loss"]) for each in certificate["mechanisms"]])
    if not covers(spent, used):
        return "its mechanisms add up to more than the session spent"
    if not covers(allowed, spent):
        return "its session spent more than it was allowed"
    if not within(allowed, amounts(certificate["guarantee"])):
        return "its session was allowed more than the guarantee"
    if not within(allowed, amounts(certificate["charge"])):
        return "its session was allowed more than was charged"
    return None


def amounts(wire: Mapping[str, Any]) -> Amounts:
    """Exact amounts of their decimal texts."""
    return {name: Decimal(text) for name, text in wire.items() if text is not None}


def total(losses: Sequence[Amounts]) -> Amounts:
    """The sum of losses, amount by amount."""
    summed: dict[str, Decimal] = {}
    with localcontext(_PRECISE):
        for loss in losses:
            for name, amount in loss.items():
                summed[name] = summed.get(name, _NONE) + amount
    return summed


def covers(limit: Amounts, loss: Amounts) -> bool:
    """Whether no amount of the loss is above the limit's."""
    return all(amount <= limit.get(name, _NONE) for name, amount in loss.items())


def within(session: Amounts, terms: Amounts) -> bool:
    """Whether a session with this allowance keeps a guarantee, or fits a charge, of these terms."""
    delta, delta_of_session = terms.get("delta", _NONE), session.get("delta", _NONE)
    with localcontext(_PRECISE):
        if "epsilon" in session:
            if "epsilon" in terms:
                return session["epsilon"] <= terms["epsilon"]
            return session["epsilon"] ** 2 / 2 <= terms["rho"]
        rho = session["rho"]
        if "rho" in terms:
            # Where delta stands beside rho in a guarantee, rho is booked at that delta.
            return rho <= terms["rho"] and delta_of_session <= delta
        return delta_bound(rho, terms["epsilon"]) + delta_of_session <= delta


def delta_bound(rho: Decimal, epsilon: Decimal) -> Decimal:
    """A delta at which every rho-zCDP mechanism is (epsilon, delta)-differentially private."""
    alpha = Decimal(_best_alpha(float(rho), float(epsilon)))
    with localcontext(_PRECISE):
        if alpha <= 1:
            return Decimal(1)
        excess = alpha - 1
        exponent = excess * (alpha * rho - epsilon)
        return min(Decimal(1), (exponent + alpha * (excess / alpha).ln() - excess.ln()).exp())


def _best_alpha(rho: float, epsilon: float) -> float:
    """An alpha near the minimum of the bound; the bound holds at every alpha."""
    if rho <= 0:
        return 2.0
    low, high = math.log(1e-12), math.log(1.0 + (epsilon + 1.0) / rho)
    for _ in range(90):
        middle = (low + high) / 2
        excess = math.exp(middle)
        slope = (2 * excess + 1) * rho - epsilon - math.log1p(1 / excess)
        low, high = (middle, high) if slope < 0 else (low, middle)
    return 1.0 + math.exp(high)

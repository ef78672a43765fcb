"""What a guarantee costs an account, opened once and passed on."""

from __future__ import annotations

from dataclasses import dataclass

from app.engine.privacy.accounting import GuaranteeNotAccepted, open_guarantee
from app.engine.privacy.loss import Accountant, Charge, Guarantee, PrivacyLoss
from app.ledger import as_epsilon
from app.ledger.as_epsilon import EpsilonAtDelta
from app.problems import Invalid


@dataclass(frozen=True, slots=True)
class Allowance:
    """A share of a budget as it is given: `cap` in the account's own terms, and as it was `stated`
    where that was in epsilon on a `zcdp` account."""

    cap: Charge
    stated: EpsilonAtDelta | None = None


@dataclass(frozen=True, slots=True)
class Terms:
    """What an account would book for a guarantee, and the loss that the session opens with.

    `approximate_delta` is the part of the guarantee's delta, in its units, that the session
    sets aside for approximate steps.
    """

    guarantee: Guarantee
    accountant: Accountant
    approximate_delta: int
    charge: Charge
    loss: PrivacyLoss

    @property
    def charge_as_epsilon(self) -> dict[str, str] | None:
        """On `zcdp`, the charge in the terms that were asked for."""
        return as_epsilon.requested(self.charge, self.guarantee, self.accountant)

    @property
    def primary(self) -> str:
        """What the account adds up."""
        return "epsilon" if self.accountant is Accountant.BASIC else "rho"

    @classmethod
    def of(cls, guarantee: Guarantee, accountant: Accountant, approximate_delta: int = 0) -> Terms:
        """Raises `Invalid` for a guarantee that the accountant does not take."""
        try:
            opened = open_guarantee(guarantee, accountant, approximate_delta)
        except GuaranteeNotAccepted as error:
            raise Invalid.at(error.pointer, error.message, error.remedy) from None
        return cls(guarantee, accountant, approximate_delta, *opened)

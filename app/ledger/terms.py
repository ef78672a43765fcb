"""What a guarantee costs an account, opened once and passed on."""

from __future__ import annotations

from dataclasses import dataclass

from app.engine.privacy.accounting import GuaranteeNotAccepted, open_guarantee
from app.engine.privacy.loss import Accountant, Charge, Guarantee, PrivacyLoss
from app.problems import Invalid


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

    @classmethod
    def of(cls, guarantee: Guarantee, accountant: Accountant, approximate_delta: int = 0) -> Terms:
        """Raises `Invalid` for a guarantee that the accountant does not take."""
        try:
            opened = open_guarantee(guarantee, accountant, approximate_delta)
        except GuaranteeNotAccepted as error:
            raise Invalid.at(error.pointer, error.message, error.remedy) from None
        return cls(guarantee, accountant, approximate_delta, *opened)

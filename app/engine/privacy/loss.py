"""Amounts of privacy loss: exact integers, parsed from text, never floats.

Epsilon and rho are counted in units of 1e-12, delta in units of 1e-18. A cost is rounded up
when it is parsed and a cap is rounded down, so that rounding never allows more loss than was
agreed. Caps end at 2^61 so that the sum of any two amounts fits SQLite's 64-bit integers.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal, InvalidOperation
from enum import StrEnum
from fractions import Fraction
from typing import Literal

from app.engine.privacy.forms import Form

EPSILON_UNIT = Decimal("1e-12")
RHO_UNIT = EPSILON_UNIT
DELTA_UNIT = Decimal("1e-18")
LARGEST_AMOUNT = 2**61
# An epsilon or rho below 1e-6 is refused: its noise would exceed any useful count.
SMALLEST_PRIMARY = 10**6

AMOUNT_PATTERN = r"[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?"
AMOUNT_MAX_LENGTH = 40

_AMOUNT = re.compile(AMOUNT_PATTERN, re.ASCII)
# Amounts have at most 40 digits and exponents of at most 60: 120 digits hold every quotient of
# an amount and a unit without rounding.
_WIDE = Context(prec=120)
_LARGEST_EXPONENT = 60


class AmountError(ValueError):
    """The text is no amount, or the amount is out of range."""


def parse_amount(text: str | int | Decimal) -> Decimal:
    """Read an amount in the grammar of the wire.

    `text` is JSON text, or a number already parsed by a Decimal-preserving JSON parser.
    Raises `AmountError` for anything else, floats included.
    """
    if isinstance(text, bool) or not isinstance(text, str | int | Decimal):
        raise AmountError("an amount is a decimal number, or text holding one")
    written = str(text)
    if len(written) > AMOUNT_MAX_LENGTH or not _AMOUNT.fullmatch(written):
        raise AmountError(
            "an amount is digits without a sign, with an optional fraction and exponent, such as"
            " 0.5 or 1e-6, at most 40 characters"
        )
    try:
        value = Decimal(written)
    except InvalidOperation:  # an exponent beyond what decimals can hold
        raise AmountError("the amount is out of range") from None
    if value and abs(value.adjusted()) > _LARGEST_EXPONENT:
        raise AmountError("the amount is out of range")
    return value


def to_units(value: Decimal, unit: Decimal, *, rounding: Literal["up", "down"]) -> int:
    """Whole units in `value`, rounded up for costs and down for caps."""
    ratio = _WIDE.divide(value, unit)
    mode = ROUND_CEILING if rounding == "up" else ROUND_FLOOR
    units = int(ratio.to_integral_value(rounding=mode, context=_WIDE))
    if units > LARGEST_AMOUNT:
        raise AmountError("the amount is larger than the service can account for")
    return units


def from_units(units: int, unit: Decimal) -> str:
    """Plain decimal text of an integer amount, exact, without an exponent."""
    text = format(_WIDE.multiply(Decimal(units), unit), "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


class Accountant(StrEnum):
    """How an account adds up its charges; chosen at creation, never changed."""

    BASIC = "basic"
    ZCDP = "zcdp"


@dataclass(frozen=True, slots=True)
class Charge:
    """What an account books: (epsilon, delta) on `basic`, (rho, delta) on `zcdp`.

    `primary` is in units of 1e-12 of epsilon or rho, `delta` in units of 1e-18.
    """

    primary: int
    delta: int = 0

    def __post_init__(self) -> None:
        if not (0 <= self.primary <= LARGEST_AMOUNT and 0 <= self.delta <= LARGEST_AMOUNT):
            raise AmountError("a charge lies between 0 and 2^61 units")

    def as_wire(self, accountant: Accountant) -> dict[str, str]:
        """`{"epsilon" | "rho": text, "delta": text}` in the account's own terms."""
        name = "epsilon" if accountant is Accountant.BASIC else "rho"
        return {
            name: from_units(self.primary, EPSILON_UNIT),
            "delta": from_units(self.delta, DELTA_UNIT),
        }


@dataclass(frozen=True, slots=True)
class Guarantee:
    """What a release asks for, as it was asked: units of 1e-12 and 1e-18, rounded up.

    Exactly one of `epsilon` and `rho` is set. `delta` is None when the request named none.
    """

    epsilon: int | None = None
    rho: int | None = None
    delta: int | None = None

    def __post_init__(self) -> None:
        if (self.epsilon is None) == (self.rho is None):
            raise AmountError("a guarantee names either epsilon or rho")
        primary = self.epsilon if self.epsilon is not None else self.rho
        assert primary is not None
        if not SMALLEST_PRIMARY <= primary <= LARGEST_AMOUNT:
            raise AmountError("epsilon or rho must be at least 1e-6")
        if self.delta is not None and not 0 <= self.delta < 10**18:
            raise AmountError("delta must be below 1")

    @property
    def is_pure(self) -> bool:
        return self.epsilon is not None and not self.delta

    def as_wire(self) -> dict[str, str]:
        wire = {}
        if self.epsilon is not None:
            wire["epsilon"] = from_units(self.epsilon, EPSILON_UNIT)
        if self.rho is not None:
            wire["rho"] = from_units(self.rho, RHO_UNIT)
        if self.delta is not None:
            wire["delta"] = from_units(self.delta, DELTA_UNIT)
        return wire


@dataclass(frozen=True, slots=True)
class PrivacyLoss(Form):
    """The allowance of a session, or the cost of one question to it.

    A `pure` loss counts epsilon; a `zcdp` loss counts rho, with `delta` set aside for
    approximate steps (key discovery). The two kinds are never mixed in one session.
    """

    kind: Literal["pure", "zcdp"]
    amount: int
    delta: int = 0

    def __post_init__(self) -> None:
        if not (0 <= self.amount <= LARGEST_AMOUNT and 0 <= self.delta <= LARGEST_AMOUNT):
            raise AmountError("a loss lies between 0 and 2^61 units")
        if self.kind == "pure" and self.delta:
            raise AmountError("a pure loss has no delta")

    @classmethod
    def pure(cls, epsilon: int) -> PrivacyLoss:
        return cls("pure", epsilon)

    @classmethod
    def zcdp(cls, rho: int, delta: int = 0) -> PrivacyLoss:
        return cls("zcdp", rho, delta)

    @property
    def value(self) -> float:
        """Epsilon or rho as a float, for choosing noise scales (verified in integers after)."""
        return self.amount / 10**12

    def of_each(self, parts: int) -> PrivacyLoss:
        """One of `parts` equal parts, rounded down, without delta."""
        return PrivacyLoss(self.kind, self.amount // parts)

    def _same_kind(self, other: PrivacyLoss) -> None:
        if self.kind != other.kind:
            raise AmountError("pure and zCDP losses do not add up in one session")

    def __add__(self, other: PrivacyLoss) -> PrivacyLoss:
        self._same_kind(other)
        return PrivacyLoss(self.kind, self.amount + other.amount, self.delta + other.delta)

    def __sub__(self, other: PrivacyLoss) -> PrivacyLoss:
        self._same_kind(other)
        return PrivacyLoss(self.kind, self.amount - other.amount, self.delta - other.delta)

    def covers(self, other: PrivacyLoss) -> bool:
        self._same_kind(other)
        return other.amount <= self.amount and other.delta <= self.delta

    def split(self, weights: Sequence[float]) -> tuple[PrivacyLoss, ...]:
        """Parts in proportion to `weights`, rounded down, so that they never exceed the whole."""
        times = Counter(weights)  # thousands may be equal, and fractions are slow
        total = sum(Fraction(weight) * count for weight, count in times.items())
        if total <= 0 or min(weights) < 0:
            raise AmountError("shares are non-negative and not all zero")
        parts = {weight: self._part(Fraction(weight) / total) for weight in times}
        return tuple(parts[weight] for weight in weights)

    def _part(self, weight: Fraction) -> PrivacyLoss:
        return PrivacyLoss(self.kind, int(self.amount * weight), int(self.delta * weight))

    def as_wire(self) -> dict[str, str]:
        name = "epsilon" if self.kind == "pure" else "rho"
        wire = {name: from_units(self.amount, EPSILON_UNIT)}
        if self.kind == "zcdp" and self.delta:
            wire["delta"] = from_units(self.delta, DELTA_UNIT)
        return wire

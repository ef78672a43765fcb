"""A dataset as declared, validated as far as public facts allow."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

from app.engine.schema import PrivacyUnit, Schema

Visibility = Literal["private", "public"]


@dataclass(frozen=True, slots=True)
class BudgetTerms:
    """What the account of a private dataset is opened with."""

    epsilon: Decimal
    delta: Decimal
    accountant: Literal["basic", "zcdp"]
    delta_for_approximate: Decimal


@dataclass(frozen=True, slots=True)
class DatasetDraft:
    """A dataset to create.

    A private one has either `terms` or `joins`, the dataset whose account it joins; a public one
    has neither. `new_population` is the custodian's reason why a table of the same content is
    about other people.
    """

    name: str
    visibility: Visibility
    schema: Schema
    unit: PrivacyUnit
    max_total_rows: int
    file_options: dict[str, Any]
    terms: BudgetTerms | None = None
    joins: str | None = None
    new_population: str | None = None

    def __post_init__(self) -> None:
        paid = (self.terms is not None) + (self.joins is not None)
        if paid != (self.visibility == "private"):
            raise ValueError("a private dataset opens or joins one account, a public one none")

"""Errors of counted combinations, for the custodian's report."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from app.engine.table import Table


@dataclass(frozen=True, slots=True)
class CombinationErrors:
    """How far reported combinations of one length are from those of the original table.

    suppressed: share of the original combinations that are not reported. fabricated: share of
    the reported ones that are not in the original. mean_error: mean absolute difference of
    the counts over the original combinations that are reported, and mean_count the mean of
    their original counts. Shares and means of nothing are 0.
    """

    length: int
    original: int
    reported: int
    suppressed: float
    fabricated: float
    mean_error: float
    mean_count: float

    @property
    def combination_error(self) -> float:
        """The mean error in proportion to the mean count."""
        return self.mean_error / self.mean_count if self.mean_count else 0.0


@dataclass(frozen=True, slots=True)
class ComparedCombinations:
    """The errors, by length from 1, of a model's counted combinations and of synthetic rows."""

    aggregates: tuple[CombinationErrors, ...]
    rows: tuple[CombinationErrors, ...]


class CombinationsModel(Protocol):
    """A built-in's model of counted combinations, which a custodian's report holds against the
    exact table. It is asked by the service's own code alone, never in a child's process, and
    nobody else's model is asked: exact rows are shown to no code of a third party."""

    def combination_errors(self, real: Table, synthetic: Table) -> ComparedCombinations:
        """Both tables have the model's columns; `entity` is set on an entity unit."""
        ...

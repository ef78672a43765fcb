"""What is public about a request: all that may be known before anything is charged."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from numpy.typing import NDArray

from app.engine.privacy.loss import PrivacyLoss
from app.engine.privacy.unit_budget import UnitBudget
from app.engine.schema import PrivacyUnit, Schema


@dataclass(frozen=True, slots=True)
class PublicFacts:
    """What `check` may know of the public dataset: its dictionary and its size."""

    schema: Schema
    rows: int


class PublicChunks(Protocol):
    """Rows of a public dataset as `check_public` reads them: a part at a time, and no further
    than it needs. Of a large one only so many rows are shown, evenly taken."""

    @property
    def schema(self) -> Schema:
        """The public dataset's own dictionary."""
        ...

    def chunks(self, columns: Sequence[str]) -> Iterator[Mapping[str, NDArray[Any]]]:
        """Stored codes of these columns of the public dictionary, arrays of equal length."""
        ...


@dataclass(frozen=True, slots=True)
class Limits:
    """Public limits of a run: declared rows, rows asked for (None: the noisy count), caps."""

    max_total_rows: int
    rows: int | None
    memory_bytes: int
    time_s: float


@dataclass(frozen=True, slots=True)
class Case:
    """What `check` may know of a request: nothing in it was read off a private row."""

    schema: Schema
    unit: PrivacyUnit
    loss: PrivacyLoss
    public: PublicFacts | None
    limits: Limits

    @property
    def budget(self) -> UnitBudget:
        return UnitBudget(self.unit, self.loss)

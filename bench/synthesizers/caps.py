"""The least memory and time with which preflight lets a release be made."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, sqrt

from app.engine.catalog import registry
from app.engine.method import Limits
from app.engine.privacy.accounting import open_guarantee
from app.engine.privacy.loss import Accountant, PrivacyLoss
from bench.synthesizers.guarantee import guarantee
from bench.synthesizers.tables import CodedTable

_ANY_MEMORY = 2**62
_LEAST_TIME_S = 1.0
_MOST_TIME_S = 1e6
_TIME_APART = 1.01
"""Times are given to a hundredth of a second."""


@dataclass(frozen=True, slots=True)
class Caps:
    """Limits of a job: what its processes may hold, and how long it may run."""

    memory_bytes: int
    time_s: float

    @property
    def settings(self) -> dict[str, str]:
        """As settings of a server."""
        return {
            "HALFTONE_JOB_MEMORY_BYTES": str(self.memory_bytes),
            "HALFTONE_JOB_TIME_LIMIT_S": str(ceil(self.time_s)),
        }


def least_caps(synthesizer: str, table: CodedTable, epsilon: str) -> Caps:
    """From public facts alone, as preflight itself; raises `ValueError` where none would do."""
    _, loss = open_guarantee(guarantee(epsilon), Accountant.BASIC)
    memory = _checked(synthesizer, table, loss, _MOST_TIME_S)
    if memory is None:
        raise ValueError(f"no caps would do for {synthesizer} on {table.name}")
    least, most = _LEAST_TIME_S, _MOST_TIME_S
    while most / least > _TIME_APART:
        middle = sqrt(least * most)
        if _checked(synthesizer, table, loss, middle) is None:
            least = middle
        else:
            most = middle
    return Caps(memory, most)


def _checked(synthesizer: str, table: CodedTable, loss: PrivacyLoss, time_s: float) -> int | None:
    """The memory that is forecast; None where the time would not do."""
    chosen = registry.builtin(synthesizer)
    limits = Limits(table.declared_rows, None, _ANY_MEMORY, time_s)
    preflight = chosen.check(table.schema, table.unit, chosen.Params(), loss, None, limits)
    return None if preflight.problems else preflight.memory_bytes

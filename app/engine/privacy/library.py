"""A session in the same process, for tests, benchmarks and use as a library.

The service never uses it: there the kernel and the synthesizer are different processes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from app.engine.privacy.accounting import open_guarantee
from app.engine.privacy.kernel import Kernel
from app.engine.privacy.loss import Accountant, Guarantee, PrivacyLoss
from app.engine.privacy.questions import Answer, Question
from app.engine.privacy.session_base import Session
from app.engine.privacy.source import ArraySource
from app.engine.schema import PrivacyUnit, Schema


class LocalSession(Session):
    """A session straight onto a kernel."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self.schema, self.unit = kernel.schema, kernel.unit
        self.allowance, self.remaining = kernel.allowance, kernel.remaining

    def _answer_to(self, question: Question) -> Answer:
        try:
            return self._kernel.answer(self._kernel.admit(question))
        finally:
            # What was charged stays charged where the answer failed.
            self.schema, self.remaining = self._kernel.schema, self._kernel.remaining


def open_session(
    codes: Mapping[str, NDArray[Any]],
    schema: Schema,
    unit: PrivacyUnit,
    allowance: Guarantee | PrivacyLoss,
    *,
    entities: NDArray[Any] | None = None,
    trusted: bool = False,
) -> LocalSession:
    """A session on a table of stored codes, each column a 1-d integer array.

    `entities` holds each row's entity id (integers) on an entity unit. A guarantee is opened
    as a release of its own would be.
    """
    if isinstance(allowance, Guarantee):
        accountant = Accountant.ZCDP if _is_rho_alone(allowance) else Accountant.BASIC
        _, allowance = open_guarantee(allowance, accountant)
    source = ArraySource(schema, unit, codes, entities)
    return LocalSession(Kernel(source, allowance, trusted=trusted))


def _is_rho_alone(guarantee: Guarantee) -> bool:
    return guarantee.rho is not None and not guarantee.delta

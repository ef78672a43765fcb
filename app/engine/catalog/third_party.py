"""A third party's synthesizer, with a default for whatever its code leaves out.

It may inherit `Synthesizer` or only have the members that the contract names: `name`, `title`,
`reference`, `Params`, `check`, `fit`, `load`, and models with `sample` and `dump`. Any other member
that it has is used, and any that it lacks is as in the base class.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from app.engine.method import CountsTable, ExpectedError, Model, Preflight, Problem, Synthesizer
from app.engine.schema import PrivacyUnit, Schema
from app.engine.table import Table

# Without these there is nothing to run, or nothing to sample again.
_REQUIRED = ("check", "fit", "load")


def adapted(theirs: Any) -> Synthesizer:
    """A synthesizer with every member of the contract, whatever `theirs` inherits.

    Raises `TypeError` if a required member is missing: the code is loaded to describe and to check
    a request, so it is refused before anything is charged.
    """
    missing = [each for each in _REQUIRED if not callable(getattr(theirs, each, None))]
    if missing or not isinstance(getattr(theirs, "name", None), str):
        raise TypeError(
            f"a synthesizer has a `name` and the methods {', '.join(_REQUIRED)};"
            f" missing here: {', '.join(missing) or 'name'}"
        )
    return _Adapted(theirs)


class _Adapted(Synthesizer):
    def __init__(self, theirs: Any) -> None:
        self._theirs = theirs
        for member in ("name", "title", "reference", "Params", "outputs", "uses_public", "example"):
            if hasattr(theirs, member):
                setattr(self, member, getattr(theirs, member))

    def check(self, *facts: Any, **named: Any) -> Preflight:
        checked: Preflight = self._theirs.check(*facts, **named)
        return checked

    def check_public(self, *facts: Any, **named: Any) -> Sequence[Problem]:
        if not self.looks_at_public_rows:
            return ()
        return tuple(self._theirs.check_public(*facts, **named))

    @property
    def looks_at_public_rows(self) -> bool:
        # The base class has `check_public` too, so having it says nothing of one that inherits.
        if isinstance(self._theirs, Synthesizer):
            return self._theirs.looks_at_public_rows
        return hasattr(self._theirs, "check_public")

    def delta_share(self, params: Any, schema: Schema) -> float:
        """Earlier versions of the contract had two: one by params, one by the dictionary."""
        share = 0.0
        if hasattr(self._theirs, "delta_share"):
            theirs = self._theirs.delta_share
            takes_schema = len(inspect.signature(theirs).parameters) > 1
            share += float(theirs(params, schema) if takes_schema else theirs(params))
        if hasattr(self._theirs, "delta_for_values"):
            share += float(self._theirs.delta_for_values(params, schema))
        return share

    def fit(self, *run: Any, **named: Any) -> Model:
        return _AdaptedModel(self._theirs.fit(*run, **named))

    def load(self, schema: Schema, unit: PrivacyUnit, data: bytes) -> Model:
        return _AdaptedModel(self._theirs.load(schema, unit, data))


@dataclass(frozen=True)
class _AdaptedModel(Model):
    theirs: Any

    def sample(self, rows: int | None, rng: np.random.Generator) -> Table:
        table: Table = self.theirs.sample(rows, rng)
        return table

    def dump(self) -> bytes:
        data: bytes = self.theirs.dump()
        return data

    @property
    def noisy_rows(self) -> int:
        rows: int = getattr(self.theirs, "noisy_rows", 0)
        return rows

    def expected_errors(self) -> tuple[ExpectedError, ...]:
        stated = getattr(self.theirs, "expected_errors", None)
        return () if stated is None else tuple(stated())

    def counts(self) -> CountsTable:
        counts: CountsTable = self.theirs.counts()
        return counts

"""A session that answers from a table in the test's hands, with numpy noise or none.

It shows what a synthesizer makes of its answers, not that the answers are private.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import reduce

import numpy as np

from app.engine.privacy.loss import PrivacyLoss
from app.engine.privacy.queries import BudgetExhausted, Candidate, Count, Measurement
from app.engine.schema import PrivacyUnit, Schema
from app.engine.synthesizers.contribution import sensitivities


class ScriptedSession:
    def __init__(
        self,
        schema: Schema,
        codes: Mapping[str, np.ndarray],
        loss: PrivacyLoss,
        *,
        unit: PrivacyUnit | None = None,
        entities: int = 0,
        noise_seed: int | None = None,
    ) -> None:
        self.schema = schema
        self.unit = unit or PrivacyUnit("row")
        self.allowance = self.remaining = loss
        self.codes = codes
        self.rows = len(next(iter(codes.values())))
        self.entities = entities
        self.rng = None if noise_seed is None else np.random.default_rng(noise_seed)

    def _spend(self, loss: PrivacyLoss) -> None:
        if not self.remaining.covers(loss):
            raise BudgetExhausted("spent")
        self.remaining -= loss

    def _exact(self, query: Count) -> np.ndarray:
        if not query.columns:
            return np.array(self.entities if query.contribution.rule == "one" else self.rows)
        groupings = [
            query.groupings.get(name, self.schema.column(name).grouping) for name in query.columns
        ]
        cells = np.ravel_multi_index(
            [g.cell_of(self.codes[n]) for g, n in zip(groupings, query.columns, strict=True)],
            [g.cells for g in groupings],
        )
        shape = tuple(g.cells for g in groupings)
        return np.bincount(cells, minlength=math.prod(shape)).reshape(shape)

    def count(
        self, queries: Sequence[Count], loss: PrivacyLoss, shares: Sequence[float] | None = None
    ) -> tuple[Measurement, ...]:
        self._spend(loss)
        parts = loss.split(shares or [1.0] * len(queries))
        return tuple(map(self._measure, queries, parts))

    def _measure(self, query: Count, loss: PrivacyLoss) -> Measurement:
        exact = self._exact(query)
        l1, l2 = sensitivities(query.contribution, self.unit, max(exact.size, 1))
        pure = loss.kind == "pure"
        scale = l1 / loss.value if pure else l2 / math.sqrt(2 * loss.value)
        error = scale * math.sqrt(2) if pure else scale
        noise = 0 if self.rng is None else self.rng.normal(0, error, exact.shape)
        values = np.asarray(np.rint(exact + noise), dtype=np.int64)
        return Measurement(query, values, "laplace" if pure else "gaussian", scale, error, l1, l2)

    def select(
        self, candidates: Sequence[Candidate], loss: PrivacyLoss, winners: int = 1
    ) -> tuple[int, ...]:
        self._spend(loss)
        scores = [
            c.weight * np.abs(self._exact(c.count) - reduce(np.multiply.outer, c.reference)).sum()
            + c.bias
            for c in candidates
        ]
        return tuple(int(i) for i in np.argsort(scores)[::-1][:winners])

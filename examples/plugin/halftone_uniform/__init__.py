"""A synthesizer that knows nothing but the number of rows: the floor others must beat."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass

import numpy as np
from pydantic import Field

from app.engine.method import Case, Model, Needs, Params, Progress, Session, Synthesizer
from app.engine.privacy.loss import PrivacyLoss
from app.engine.privacy.queries import Count
from app.engine.schema import PrivacyUnit, Schema
from app.engine.table import PublicTable, Table


class UniformParams(Params):
    """The form of this synthesizer."""

    include_null: bool = Field(True, description="Whether null counts as one of a column's values.")


@dataclass(frozen=True)
class UniformModel(Model):
    """The noisy number of rows, and facts that are public anyway."""

    schema: Schema
    unit: PrivacyUnit
    rows: int
    include_null: bool

    def sample(self, rows: int | None, rng: np.random.Generator) -> Table:
        wanted = self.rows if rows is None else rows
        codes = {}
        for column in self.schema.columns:
            values = np.arange(column.codes)
            if column.null_code is not None and not self.include_null:
                values = np.delete(values, column.null_code)
            codes[column.name] = rng.choice(values, size=wanted).astype(np.int64)
        entity = np.arange(wanted, dtype=np.int64) // self.unit.max_rows
        return Table(codes, wanted, entity if self.unit.kind == "entity" else None)

    def dump(self) -> bytes:
        return json.dumps({"rows": self.rows, "include_null": self.include_null}).encode()


class Uniform(Synthesizer):
    name = "uniform"
    title = "Rows drawn evenly from the declared values"
    reference = "The uniform distribution over the public domain"
    Params = UniformParams

    def needs(self, case: Case, params: UniformParams) -> Needs:  # noqa: ARG002
        """One noisy number, and the rows that are made."""
        return Needs.of_table(len(case.schema.columns), case.limits) + Needs(
            cells=1, draws=1, expected_error=_standard_error(case.unit, case.loss)
        )

    def fit(
        self,
        session: Session,
        params: UniformParams,
        public: PublicTable | None,  # noqa: ARG002
        seed: int,  # noqa: ARG002
        progress: Progress,
    ) -> UniformModel:
        progress(0.1, "counting rows")
        allowance = session.allowance
        (total,) = session.count([Count(())], PrivacyLoss(allowance.kind, allowance.amount))
        rows = max(0, int(total.values))
        return UniformModel(session.schema, session.unit, rows, params.include_null)

    def load(self, schema: Schema, unit: PrivacyUnit, data: bytes) -> UniformModel:
        stored = json.loads(data)
        return UniformModel(schema, unit, int(stored["rows"]), bool(stored["include_null"]))


def _standard_error(unit: PrivacyUnit, loss: PrivacyLoss) -> float:
    """Of the noisy count of rows, to which one unit adds `max_rows` at most."""
    if loss.kind == "pure":
        return math.sqrt(2) * unit.max_rows / loss.value
    return unit.max_rows / math.sqrt(2 * loss.value)

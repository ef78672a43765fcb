"""`evenly`: as many rows as there are by noise, of values drawn evenly."""

import json
from dataclasses import dataclass

import numpy as np
from pydantic import Field

from app.engine.method import Model, Params, Synthesizer
from app.engine.privacy.loss import PrivacyLoss
from app.engine.privacy.queries import Count
from app.engine.schema import Schema
from app.engine.table import Table


class EvenlyParams(Params):
    most_rows: int = Field(1000, ge=1, description="The most rows that are made unasked.")


@dataclass(frozen=True)
class EvenModel(Model):
    schema: Schema
    rows: int

    def sample(self, rows, rng):
        made = self.rows if rows is None else rows
        columns = self.schema.columns
        return Table({each.name: rng.integers(0, each.codes, made) for each in columns}, made)

    def dump(self):
        return json.dumps(self.rows).encode()


class Evenly(Synthesizer):
    name, title, Params, auto_rank = "evenly", "Values drawn evenly", EvenlyParams, 1

    def fit(self, session, params, public, seed, progress):
        loss = PrivacyLoss(session.allowance.kind, session.allowance.amount)
        (total,) = session.count([Count(())], loss)
        return EvenModel(session.schema, int(np.clip(total.values, 0, params.most_rows)))

    def load(self, schema, unit, data):
        return EvenModel(schema, json.loads(data))

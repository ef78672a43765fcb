"""A package with synthesizers of its own, written to a folder and found through its metadata."""

from __future__ import annotations

import textwrap
from pathlib import Path

_FRAME = '''
from __future__ import annotations

import json
import os
import signal
import time

import numpy as np
from pydantic import BaseModel

from app.engine.privacy.loss import PrivacyLoss
from app.engine.privacy.queries import BudgetExhausted, Contribution, Count, QuestionRefused
from app.engine.method import Preflight
from app.engine.table import Table


class Form(BaseModel):
    do: str = "behave"
    wait_s: float = 0.0
    target: str = ""


class Model:
    """Keeps what the synthesizer learned, and makes rows of the first code."""

    def __init__(self, schema, learned):
        self.schema, self.learned = schema, learned

    def sample(self, rows, rng):
        rows = 5 if rows is None else rows
        zeros = np.zeros(rows, dtype=np.int64)
        return Table({column.name: zeros for column in self.schema.columns}, rows)

    def dump(self):
        return json.dumps(self.learned).encode()


class Base:
    title = "Made for tests"
    reference = "None"
    Params = Form

    def check(self, schema, unit, params, loss, public, limits):
        return Preflight(1, 1, 1.0)

    def load(self, schema, unit, data):
        return Model(schema, json.loads(data))


def half(session):
    """Half of what is left."""
    left = session.remaining
    return PrivacyLoss(left.kind, left.amount // 2, 0)


def total(session, loss):
    """The noisy number of rows."""
    (answer,) = session.count([Count((), {}, Contribution())], loss)
    return int(answer.values)

'''


def write_plugin(folder: Path, name: str, code: str) -> None:
    """Install a distribution `name` into `folder`; `code` defines the class `Synthesizer`."""
    module = f"halftone_{name}"
    (folder / f"{module}.py").write_text(_FRAME + textwrap.dedent(code))
    metadata = folder / f"{module}-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(
        f"[halftone.synthesizers]\n{name} = {module}:Synthesizer\n"
    )


SLOW = '''
class Synthesizer(Base):
    """Asks once, waits, and keeps the answer."""

    name = "slow"

    def fit(self, session, params, public, seed, progress):
        answer = total(session, half(session))
        progress(0.5, "asked")
        time.sleep(params.wait_s)
        return Model(session.schema, {"total": answer})
'''

"""The contract between Halftone and a synthesizer.

A synthesizer holds a `Session`, the only way to learn about private rows: it asks, the
kernel on the other side of the pipe answers with noise and counts the loss. `fit` is a
deterministic function of params, seed and answers, so that a lost run can be replayed.
"""

from app.engine.method.case import Case, Limits, PublicChunks, PublicFacts
from app.engine.method.expected_error import ExpectedError
from app.engine.method.model import (
    CountsModel,
    CountsTable,
    ExpectingModel,
    Model,
    SizedModel,
    expected_errors,
    rows_to_ask,
)
from app.engine.method.params import Params
from app.engine.method.preflight import Preflight, Problem
from app.engine.method.session import Progress, Session
from app.engine.method.synthesizer import (
    PublicUse,
    Synthesizer,
    delta_share,
    looks_at_public_rows,
    public_row_problems,
    public_use,
)

__all__ = [
    "Case",
    "CountsModel",
    "CountsTable",
    "ExpectedError",
    "ExpectingModel",
    "Limits",
    "Model",
    "Params",
    "Preflight",
    "Problem",
    "Progress",
    "PublicChunks",
    "PublicFacts",
    "PublicUse",
    "Session",
    "SizedModel",
    "Synthesizer",
    "delta_share",
    "expected_errors",
    "looks_at_public_rows",
    "public_row_problems",
    "public_use",
    "rows_to_ask",
]

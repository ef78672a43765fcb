"""The contract between Halftone and a synthesizer.

A synthesizer holds a `Session`, the only way to learn about private rows: it puts questions, and
the kernel on the other side of the pipe charges their loss and answers with noise. `fit` is a
deterministic function of params, seed and answers, so that a lost run can be replayed.
"""

from app.engine.method.case import Case, Limits, PublicChunks, PublicFacts
from app.engine.method.model import CountsTable, ExpectedError, Model
from app.engine.method.needs import Needs, Preflight, Problem, Question, Step
from app.engine.method.params import Params
from app.engine.method.synthesizer import Example, Output, Progress, PublicUse, Synthesizer
from app.engine.privacy.session_base import Session

__all__ = [
    "Case",
    "CountsTable",
    "Example",
    "ExpectedError",
    "Limits",
    "Model",
    "Needs",
    "Output",
    "Params",
    "Preflight",
    "Problem",
    "Progress",
    "PublicChunks",
    "PublicFacts",
    "PublicUse",
    "Question",
    "Session",
    "Step",
    "Synthesizer",
]

"""How good a release is, stated for nothing: from its noisy answers and its first sample alone.

Everything here is post-processing. A statement is made of what the release publishes anyway (the
sample and the measurements), the known law of the noise, and public facts. No private row is read.
"""

from app.engine.statements.making import Released, stated
from app.engine.statements.sample import KeptRows
from app.engine.statements.statement import Statement

__all__ = ["KeptRows", "Released", "Statement", "stated"]

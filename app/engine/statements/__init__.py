"""How good a release is, stated for nothing: from its noisy answers and its first sample alone.

Everything here is post-processing. A statement is made of what the release publishes anyway (the
sample and the measurements), the known law of the noise, and public facts. No private row is read.
"""

from app.engine.statements.making import Released, stated, stated_and_pictured
from app.engine.statements.pictures import Pictures
from app.engine.statements.sample import KeptRows
from app.engine.statements.statement import StatedDistance, Statement

__all__ = [
    "KeptRows",
    "Pictures",
    "Released",
    "StatedDistance",
    "Statement",
    "stated",
    "stated_and_pictured",
]

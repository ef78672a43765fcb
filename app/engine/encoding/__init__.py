"""Encoding blocks of a file into codes, and recognising the same content, in bounded memory."""

from app.engine.encoding.content import ContentHasher
from app.engine.encoding.encoder import EncodedBlock, Encoder, EncodeTotals
from app.engine.rows import RowProblem, TableError

__all__ = [
    "ContentHasher",
    "EncodeTotals",
    "EncodedBlock",
    "Encoder",
    "RowProblem",
    "TableError",
]

"""Values to codes: blocks of a file, encoded and recognised out of core."""

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

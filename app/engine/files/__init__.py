"""Table files (CSV, TSV, Parquet, JSON Lines), read as blocks in bounded memory."""

from app.engine.files.guess import Guesses, with_guesses
from app.engine.files.layout import FileReport, TableLayout
from app.engine.files.options import OPEN_ENCODING, FileOptions
from app.engine.files.reader import TableReader, open_table
from app.engine.rows import RowProblem, TableError

__all__ = [
    "OPEN_ENCODING",
    "FileOptions",
    "FileReport",
    "Guesses",
    "RowProblem",
    "TableError",
    "TableLayout",
    "TableReader",
    "open_table",
    "with_guesses",
]

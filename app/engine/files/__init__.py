"""Table files (CSV, TSV, Parquet, JSON Lines), read as blocks in bounded memory."""

from app.engine.files.guess import with_guesses
from app.engine.files.layout import FileReport, TableLayout
from app.engine.files.options import FileOptions
from app.engine.files.reader import TableReader, open_table
from app.engine.rows import RowProblem, TableError

__all__ = [
    "FileOptions",
    "FileReport",
    "RowProblem",
    "TableError",
    "TableLayout",
    "TableReader",
    "open_table",
    "with_guesses",
]

"""What a table file may declare or unfold to, checked before the work is done."""

from __future__ import annotations

from app.engine.rows import refuse

# Five times what a dictionary may declare. Each column costs 11 kB in Arrow's CSV reader, whatever
# is in it: 100,000 took 1.2 GB.
MOST_COLUMNS = 10_000

# What a file of any size may unfold to, and what for each of its bytes. A run of equal values takes
# a few bytes of Parquet, however many rows it stands for: 600 bytes can be 100 million cells. Text
# needs a byte for each cell.
_LEAST_CELLS = 2**24
_CELLS_PER_BYTE = 1000


def expect_columns(number: int) -> None:
    """Raises `TableError` for more columns than a table may have."""
    if number > MOST_COLUMNS:
        raise refuse(
            f"the table has {number} columns; at most {MOST_COLUMNS} can be read",
            "send the columns that the dictionary declares, and not many others",
        )


def expect_size(size_bytes: int, most_bytes: int) -> None:
    """Raises `TableError` for a file that is too large after decompression."""
    if size_bytes > most_bytes:
        raise refuse(
            f"the file is larger than {most_bytes} bytes after decompression",
            "split it, or ask the administrator for a higher limit",
        )


def expect_cells(number: int, file_bytes: int) -> None:
    """Raises `TableError` for a file that unfolds to far more cells than one of its size has."""
    most = max(_LEAST_CELLS, _CELLS_PER_BYTE * file_bytes)
    if number > most:
        raise refuse(
            f"the file has {number} cells in {file_bytes} bytes; at most {most} can be read",
            "leave out columns that are the same in every row, or send the table as CSV",
        )

"""What is known of a member of a bundle once its bytes have passed."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Written:
    """A file in the bundle: its name, size and SHA-256 in hex."""

    name: str
    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Table:
    """A sample in the bundle: its two files and the columns they have.

    `schema` is the Table Schema of its CSV; `types` gives the Arrow type of each column as text.
    """

    sample_id: str
    kind: str
    rows: int
    csv: Written
    parquet: Written
    schema: dict[str, object]
    types: dict[str, str]

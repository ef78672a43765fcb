"""Where the real tables lie that the benches read; they are not part of the repository."""

from __future__ import annotations

import os
import sys
from pathlib import Path

DATA = Path(os.environ.get("HALFTONE_SHARED_DATA", "../shared/data"))


def must_be_there() -> None:
    """Ends the program with the remedy where there is no such folder."""
    if not DATA.is_dir():
        sys.exit(
            f"There is no folder {DATA}: set HALFTONE_SHARED_DATA to that of the real tables"
            " (docs/how-to/run-the-benchmarks.md names them)."
        )

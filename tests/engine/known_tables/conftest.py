"""These tests read real tables that the project does not ship: without them none is collected."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).parents[3]
DATA = Path(os.environ.get("HALFTONE_SHARED_DATA", ROOT / "../shared/data"))

collect_ignore = (
    [] if DATA.is_dir() else ["test_challenge_scores.py", "test_encoding_known_tables.py"]
)

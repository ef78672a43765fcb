"""The challenge's score of a public table, published as it is, for the private one."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from app.engine.metrics import sprint3

ROOT = Path(__file__).parents[3]
DATA = Path(os.environ.get("HALFTONE_SHARED_DATA", ROOT / "../shared/data"))


def columns(name: str) -> dict[str, np.ndarray]:
    table = pd.read_csv(DATA / f"taxi/{name}.csv")
    return {each: table[each].to_numpy() for each in table}


def test_a_third_of_the_same_days_taxis_scores_what_is_known() -> None:
    score = sprint3(columns("private_2022"), columns("public_2022"), np.random.default_rng(0))
    assert round(score.pairs) == 306
    assert round(score.places) == 860
    # Which taxis are compared is drawn: it moves H by some thousandths.
    assert score.taxis == pytest.approx(988, abs=8)
    assert score.mean == pytest.approx(718, abs=3)

"""The Massachusetts census excerpt with its mixed types, scored as NIST scores it."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from halftone_client import Halftone
from numpy.typing import NDArray

from bench.real_tables.census_dictionary import declaration
from bench.service.running import KEY, serving
from bench.shared_data import DATA
from bench.synthesizers.measures import Codes, k_marginal, quantile_edges

FILE = DATA / "census_ma/ma2019.csv"
NUMERIC = ("AGEP", "DENSITY", "INDP", "PINCP", "POVPIP", "PWGTP", "WGTP")
"""Cut into at most 20 quantile bins of the real rows; null, and what is no number, apart."""
SYNTHESIZERS = ("auto", "mst", "aim")
EPSILONS = ("1", "10")
DELTA = "1e-7"


def report(runs: int, systems: Sequence[str]) -> Iterator[str]:
    yield "| synthesizer | epsilon | k-marginal, 24 columns | without INDP | seconds |"
    yield "|---|---|---|---|---|"
    real = _read(FILE)
    with tempfile.TemporaryDirectory() as folder, serving(Path(folder), workers=1) as (url, _):
        client = Halftone(url, KEY)
        dataset = client.upload(declaration(client), FILE, progress=False)
        for name in systems:
            for epsilon in EPSILONS:
                scores, seconds = [], []
                for _ in range(runs):
                    started = time.perf_counter()
                    release = client.release(
                        dataset, name, {"epsilon": epsilon, "delta": DELTA}, progress=False
                    )
                    seconds.append(time.perf_counter() - started)
                    made = client.save(release, Path(folder) / "made.csv")
                    scores.append(scored(real, _read(made)))
                whole, without = (f"{np.mean(each):.0f}" for each in zip(*scores, strict=True))
                yield f"| {name} | {epsilon} | {whole} | {without} | {np.mean(seconds):.1f} |"


def scored(real: pd.DataFrame, made: pd.DataFrame) -> tuple[float, float]:
    """The score over all columns, and over those without the industry codes."""
    ours, theirs = _coded(real, made)
    fewer = [name for name in ours if name != "INDP"]
    return (
        k_marginal(ours, theirs),
        k_marginal(*({name: table[name] for name in fewer} for table in (ours, theirs))),
    )


def _read(path: Path) -> pd.DataFrame:
    table = pd.read_csv(path, dtype=str, keep_default_na=False)
    return table.replace("", "N")


def _coded(real: pd.DataFrame, made: pd.DataFrame) -> tuple[Codes, Codes]:
    """Codes of one spelling in both tables."""
    ours: dict[str, NDArray[np.int64]] = {}
    theirs: dict[str, NDArray[np.int64]] = {}
    for name in map(str, real):
        texts = [table[name].to_numpy(str) for table in (real, made)]
        if name in NUMERIC:
            numbers = [pd.to_numeric(pd.Series(each), errors="coerce").to_numpy() for each in texts]
            edges = quantile_edges(numbers[0][~np.isnan(numbers[0])])
            texts = [_cut(*each, edges) for each in zip(texts, numbers, strict=True)]
        _, places = np.unique(np.concatenate(texts), return_inverse=True)
        ours[name], theirs[name] = places[: len(real)], places[len(real) :]
    return ours, theirs


def _cut(
    texts: NDArray[np.str_], numbers: NDArray[np.float64], edges: NDArray[np.float64]
) -> NDArray[np.str_]:
    bins = np.searchsorted(edges, numbers, side="right").astype(str)
    return np.where(np.isnan(numbers), texts, bins)

"""Known tables through the whole service: upload, releases, rows out; or a refusal that says why.

    .venv/bin/python -m bench.service.known_tables

Uploads each table with its dictionary of `examples/dictionaries` and asks for a release of
every built-in at epsilon 1; the taxi table (entity unit) is asked at (1, 2.5e-5) and
(10, 2.5e-5). Reads the tables below HALFTONE_SHARED_DATA (default `../shared/data`).
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from halftone_client import Halftone, HalftoneError, UploadRejected

from bench import shared_data
from bench.service.running import KEY, serving
from bench.shared_data import DATA

DICTIONARIES = Path(__file__).parents[2] / "examples" / "dictionaries"
TABLES = {
    "adult": "adult/adult-raw.data",
    "census_ma": "census_ma/ma2019.csv",
    "baltimore_incidents": "incidents/baltimore_2019.csv",
    "star_wars": "messy/StarWars.csv",
    "accidentes_bicicletas": "messy/AccidentesBicicletas_2019.csv",
    "absenteeism": "messy/Absenteeism_at_work.csv",
    "patient_info": "messy/PatientInfo.csv",
    "taxi": "taxi/private_2022.csv",
}
ORDINARY = ({"epsilon": "1", "delta": "1e-7"},)
TAXI = ({"epsilon": "1", "delta": "2.5e-5"}, {"epsilon": "10", "delta": "2.5e-5"})


@dataclass(frozen=True, slots=True)
class Release:
    """One release asked for: what it was, how it ended, seconds from request to success."""

    synthesizer: str
    guarantee: dict[str, str]
    outcome: str
    seconds: float

    def __str__(self) -> str:
        terms = f"({self.guarantee['epsilon']}, {self.guarantee['delta']})"
        return f"    {self.synthesizer:12} {terms:14} {self.outcome}  {self.seconds:.1f} s"


def specification(name: str) -> dict[str, Any]:
    """The example's own, with a budget that holds all that is asked here."""
    spec: dict[str, Any] = json.loads((DICTIONARIES / f"{name}.json").read_text())
    spec["accountant"] = "basic"
    spec.pop("delta_for_approximate", None)
    spec["budget"] = {"epsilon": "1000", "delta": "1e-3"}
    return spec


def histogram_columns(spec: dict[str, Any]) -> list[str]:
    """Two categories to count together: a table of all columns has too many cells."""
    enumerated = [
        field["name"]
        for field in spec["schema"]["fields"]
        if "enum" in field.get("constraints", {}) and len(field["constraints"]["enum"]) <= 100
    ]
    integers = [
        field["name"]
        for field in spec["schema"]["fields"]
        if field.get("type") == "integer" and field.get("role") != "entity"
    ]
    return (enumerated + integers)[:2]


def release(
    client: Halftone, dataset: str, spec: dict[str, Any], name: str, guarantee: dict[str, str]
) -> Release:
    params = {"columns": histogram_columns(spec)} if name == "histogram" else {}
    started = time.perf_counter()
    try:
        made = client.release(dataset, name, guarantee, params=params, progress=False)
        frame = client.download(made)
        outcome = f"{len(frame):7d} rows x {len(frame.columns):2d} columns"
    except HalftoneError as error:
        outcome = f"refused: {error}"
    return Release(name, guarantee, outcome, time.perf_counter() - started)


def main() -> None:
    argparse.ArgumentParser(
        prog="python -m bench.service.known_tables", description=(__doc__ or "").splitlines()[0]
    ).parse_args()
    shared_data.must_be_there()
    with tempfile.TemporaryDirectory() as folder, serving(Path(folder), workers=1) as (url, _):
        client = Halftone(url, KEY)
        for name, path in TABLES.items():
            spec = specification(name)
            started = time.perf_counter()
            try:
                dataset = client.upload(spec, DATA / path, progress=False)["id"]
            except UploadRejected as error:
                print(f"{name}: refused\n    {error}")
                continue
            print(f"{name}: ready in {time.perf_counter() - started:.1f} s")
            methods = (
                ("mst", "histogram") if name == "taxi" else ("independent", "mst", "histogram")
            )
            for guarantee in TAXI if name == "taxi" else ORDINARY:
                for method in methods:
                    print(release(client, dataset, spec, method, guarantee))


if __name__ == "__main__":
    main()

"""The dictionaries in `examples/` read the real tables that they were written for."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path
from typing import Any

import pytest

from app.engine.encoding import ContentHasher, Encoder, EncodeTotals, TableError
from app.engine.files import FileOptions, open_table
from app.engine.schema import PrivacyUnit, Schema

ROOT = Path(__file__).parents[3]
DATA = Path(os.environ.get("HALFTONE_SHARED_DATA", ROOT / "../shared/data"))

READ = {
    "absenteeism": ("messy/Absenteeism_at_work.csv", 740),
    "accidentes_bicicletas": ("messy/AccidentesBicicletas_2019.csv", 891),
    "adult": ("adult/adult-raw.data", 32_561),
    "baltimore_incidents": ("incidents/baltimore_2019.csv", 22_281),
    "census_ma": ("census_ma/ma2019.csv", 7_634),
    "star_wars": ("messy/StarWars.csv", 1_186),
    "taxi": ("taxi/private_2022.csv", 22_608),
}
READABLE = [(name, *found) for name, found in READ.items() if (DATA / found[0]).exists()]


def spec(name: str) -> dict[str, Any]:
    wire: dict[str, Any] = json.loads((ROOT / f"examples/dictionaries/{name}.json").read_text())
    return wire


def encoded(name: str, data: bytes) -> EncodeTotals:
    """Reads a whole table by its dictionary, and every code back to its value."""
    wire = spec(name)
    schema, unit = Schema.parse(wire["schema"]), PrivacyUnit.parse(wire["unit"])
    reader = open_table(io.BytesIO(data), FileOptions.parse(wire.get("file", {})), schema.names)
    encoder = Encoder(schema, unit, reader.layout)
    for block in reader:
        codes = encoder.encode(block).codes
        for column in schema.columns:
            assert len(column.decode(codes[column.name])) == len(codes[column.name])
    return encoder.totals


@pytest.mark.parametrize(("path", "rows"), [("public_2022", 11_482), ("public_2019", 16_000)])
def test_public_taxi_trips_are_read_by_the_dictionary_of_the_private_ones(
    path: str, rows: int
) -> None:
    totals = encoded("taxi", (DATA / f"taxi/{path}.csv").read_bytes())
    assert (totals.problems.count, totals.rows_kept) == (0, rows)


@pytest.mark.parametrize(("name", "path", "rows"), READABLE)
def test_a_real_table_is_read_whole(name: str, path: str, rows: int) -> None:
    totals = encoded(name, (DATA / path).read_bytes())
    assert totals.problems.count == 0
    assert totals.rows_kept == rows
    treated = sum(sum(counts.values()) for counts in totals.treated.values())
    assert treated < rows / 100
    assert all(count < rows / 1000 for count in totals.violations)


def test_the_patients_are_refused_at_the_row_that_is_broken_and_read_once_it_is_mended() -> None:
    data = (DATA / "messy/PatientInfo.csv").read_bytes()
    with pytest.raises(TableError) as refusal:
        encoded("patient_info", data)
    (problem,) = refusal.value.problems
    broken = data.split(b"\n")[problem.record - 1 if problem.record else 0]
    assert broken.startswith(b'"5000000022,')
    assert problem.column == "sex"
    assert "outer quotes" in problem.remedy
    mended = data.replace(broken, broken.strip()[1:-1].replace(b'""', b'"'))
    totals = encoded("patient_info", mended)
    assert (totals.problems.count, totals.rows_kept) == (0, 5_165)


def test_a_table_keeps_its_content_when_it_is_sorted_or_cut_otherwise() -> None:
    data = (DATA / "taxi/private_2022.csv").read_bytes()
    header, *lines = data.splitlines(keepends=True)

    def digest(table: bytes) -> bytes:
        hasher = ContentHasher(b"a key of sixteen bytes")
        for block in open_table(io.BytesIO(table)):
            hasher.update(block)
        return hasher.digest()

    assert digest(header + b"".join(sorted(lines))) == digest(data)
    assert digest(header + b"".join(lines[1:])) != digest(data)

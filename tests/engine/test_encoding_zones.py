"""Times with a zone keep what the clock showed, in every format alike."""

from __future__ import annotations

import datetime as dt
import io
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.parquet as pq

from app.engine.encoding import Encoder
from app.engine.files import open_table
from app.engine.schema import PrivacyUnit, Schema

SCHEMA = Schema.parse(
    {
        "fields": [
            {
                "name": "when",
                "type": "datetime",
                "constraints": {"minimum": "2020-07-01", "maximum": "2020-07-03"},
            }
        ]
    }
)


def seconds(data: bytes) -> list[int]:
    """Since the declared minimum, one for each row."""
    reader = open_table(io.BytesIO(data), names=SCHEMA.names)
    encoder = Encoder(SCHEMA, PrivacyUnit.parse({"kind": "row"}), reader.layout)
    found = [int(code) for block in reader for code in encoder.encode(block).codes["when"]]
    assert not encoder.totals.problems.count
    return found


def zoned(data: bytes) -> int:
    """The cells whose zone or offset is reported as left out."""
    reader = open_table(io.BytesIO(data), names=SCHEMA.names)
    encoder = Encoder(SCHEMA, PrivacyUnit.parse({"kind": "row"}), reader.layout)
    for block in reader:
        encoder.encode(block)
    return encoder.totals.zoned["when"]


def parquet(zone: str | None) -> bytes:
    noon = int(dt.datetime(2020, 7, 1, 12, tzinfo=dt.UTC).timestamp())
    sink = io.BytesIO()
    pq.write_table(pa.table({"when": pa.array([noon, noon, None], pa.timestamp("s", zone))}), sink)
    return sink.getvalue()


def test_an_offset_in_csv_and_a_zone_in_parquet_keep_the_wall_clock() -> None:
    lines = ["when", "2020-07-01T10:00:00+02:00", "2020-07-01 10:00-0530", "2020-07-01T10:00Z"]
    assert seconds("\n".join(lines).encode()) == [36_000] * 3
    noon = dt.datetime(2020, 7, 1, 10, tzinfo=ZoneInfo("Europe/Madrid"))
    for zone in ("Europe/Madrid", "UTC"):
        sink = io.BytesIO()
        moment = pa.array([noon], pa.timestamp("us", zone))
        pq.write_table(pa.table({"when": moment}), sink)
        assert seconds(sink.getvalue()) == [36_000 if zone != "UTC" else 28_800]


def test_times_whose_zone_was_left_out_are_counted_in_every_format_alike() -> None:
    day = "2020-07-01"
    zones = ["T10:00:00+02:00", " 10:00-0530", "T10:00Z", "T10:00:00.5Z", "Z"]
    plain = ["T10:00:00", "", " 10:00"]
    lines = ["when", *(day + end for end in (*zones, *plain))]
    assert zoned("\n".join(lines).encode()) == len(zones)
    rows = "".join(f'{{"when": "{day}{end}"}}\n' for end in (*zones, *plain))
    assert zoned(rows.encode()) == len(zones)
    for zone in ("Europe/Madrid", "UTC", "+05:30"):
        assert zoned(parquet(zone)) == 2
    assert zoned(parquet(None)) == 0

"""The ingest job: what it stores, refuses, reports, and how it starts again."""

from __future__ import annotations

import hashlib
import json
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from office import CSV, ENTITY, ENTITY_SCHEMA, SCHEMA, Office, open_office, public_spec, spec
from sqlalchemy import func, select, text, update

from app import quota
from app.database import rowcount
from app.datasets import blocks, ingest
from app.datasets.codes import DatasetUnreadable, StoredCodes, read_table
from app.engine.schema import PrivacyUnit, Schema
from app.queue import jobs
from app.queue.context import JobContext
from app.queue.jobs import LeaseLost
from app.storage.blobs import BlobCorrupt, BlobStore
from app.storage.encryption import Keyring
from app.storage.models import ChunkRow

DRIVERS = "driver,shift,pay\na,1,Cash\nb,2,Card\na,3,\n,4,Cash\nc,5,Card\n"


@pytest.fixture
def office(tmp_path: Path) -> Iterator[Office]:
    with open_office(tmp_path) as opened:
        yield opened


@pytest.fixture(params=[False, True], ids=["plain", "encrypted"])
def either(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Office]:
    with open_office(tmp_path, encrypted=request.param) as opened:
        yield opened


def codes(office: Office, dataset_id: str) -> StoredCodes:
    return StoredCodes(office.database, Keyring(office.settings), dataset_id)


def chunks(office: Office, dataset_id: str) -> int:
    with office.database.read() as session:
        count = select(func.count()).where(ChunkRow.collection == dataset_id)
        return int(session.execute(count).scalar_one())


@pytest.mark.parametrize(("block_rows", "lengths"), [(2, [2, 2]), (3, [3, 1]), (100, [4])])
def test_codes_are_stored_in_blocks_and_read_back_in_order(
    either: Office, monkeypatch: pytest.MonkeyPatch, block_rows: int, lengths: list[int]
) -> None:
    monkeypatch.setattr(blocks, "block_rows", lambda schema, unit: block_rows)  # noqa: ARG005
    made = either.uploaded(DRIVERS, schema=ENTITY_SCHEMA, unit=ENTITY)
    assert made["custodian"]["rows"] == 4
    source = codes(either, made["id"])
    read = list(source.chunks(["shift", "pay"]))
    assert [len(chunk["shift"]) for chunk in read] == lengths
    shift = np.concatenate([chunk["shift"] for chunk in read])
    pay = np.concatenate([chunk["pay"] for chunk in read])
    assert shift.tolist() == [1, 2, 3, 5]
    assert pay.tolist() == [0, 1, 2, 1]
    assert shift.dtype == source.schema.column("shift").dtype
    ids = np.concatenate(list(source.entities()))
    assert ids.shape == (4, 2)
    assert len(np.unique(ids, axis=0)) == 3
    assert (ids[0] == ids[2]).all()
    assert list(source.chunks([])) == [{}] * len(read)


def test_ids_are_digested_under_a_key_of_each_upload(office: Office) -> None:
    first, second = (
        office.uploaded(DRIVERS + extra, schema=ENTITY_SCHEMA, unit=ENTITY)
        for extra in ("", "z,1,Cash\n")
    )
    one, two = (next(codes(office, made["id"]).entities()) for made in (first, second))
    assert not (one[0] == two[0]).any()
    plain = hashlib.blake2b(b"a", digest_size=16).digest()
    assert one[0].tobytes() != plain


def test_a_row_unit_has_no_entities(office: Office) -> None:
    made = office.uploaded()
    with pytest.raises(ValueError, match="no entities"):
        next(codes(office, made["id"]).entities())


def test_only_ready_datasets_can_be_read(office: Office) -> None:
    waiting = office.custodian.declare().json()["id"]
    for dataset_id in (waiting, "ds_absent"):
        with pytest.raises(DatasetUnreadable):
            codes(office, dataset_id)


def test_a_public_table_is_read_in_full_and_a_private_one_never(office: Office) -> None:
    declaration = public_spec(schema=ENTITY_SCHEMA, unit=ENTITY)
    dataset_id = office.custodian.declare(declaration).json()["id"]
    office.custodian.put(dataset_id, DRIVERS)
    office.work()
    keyring = Keyring(office.settings)
    found = read_table(office.database, keyring, dataset_id)
    assert found.table.rows == 4
    assert found.table.codes["shift"].tolist() == [1, 2, 3, 5]
    assert found.table.codes["shift"].dtype == np.int64
    assert found.table.entity is not None
    assert found.table.entity[0] == found.table.entity[2] != found.table.entity[1]
    private = office.uploaded()
    with pytest.raises(DatasetUnreadable):
        read_table(office.database, keyring, private["id"])


def test_what_was_treated_and_dropped_is_counted_for_the_custodian(office: Office) -> None:
    schema = {
        "fields": [
            ENTITY_SCHEMA["fields"][0],
            {**SCHEMA["fields"][0], "undeclared": "clip"},
            {**SCHEMA["fields"][1], "other": "Other"},
            {"name": "note", "type": "string"},
        ],
        "constraints": [],
    }
    content = "driver,shift,pay,note,more\na,99,Cash,x,1\nb,-5,Coin,y,2\n,1,Cash,z,3\n"
    made = office.uploaded(content, schema=schema, unit=ENTITY)
    assert made["state"] == "ready"
    report = office.custodian.report(made["id"])
    assert (report["rows_read"], report["rows"], report["dropped_without_id"]) == (3, 2, 1)
    assert {(u["column"], u["treatment"], u["cells"]) for u in report["undeclared"]} == {
        ("shift", "clip", 2),
        ("pay", "other", 1),
    }
    assert report["unused_columns"] == ["note", "more"]
    assert [gone["name"] for gone in report["left_out"]] == ["note"]


def test_zones_left_out_and_texts_in_another_form_are_noted_for_the_custodian(
    office: Office,
) -> None:
    schema = {
        "fields": [
            {
                "name": "when",
                "type": "datetime",
                "constraints": {"minimum": "2020-07-01", "maximum": "2020-07-03"},
            },
            {
                "name": "città",
                "type": "string",
                "constraints": {"enum": ["Forlì", "Roma"]},
                "other": "Other",
            },
        ]
    }
    rows = [
        {"when": "2020-07-01T10:00:00+02:00", "città": "Roma"},
        {"when": "2020-07-01T10:00:00", "città": "Forlì"},
        {"when": None, "città": unicodedata.normalize("NFD", "Forlì")},
        {"when": None, unicodedata.normalize("NFD", "città"): "Roma"},
    ]
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    made = office.uploaded(lines, schema=schema)
    assert made["state"] == "ready"
    zones, value, key = office.custodian.report(made["id"])["file"]["notes"]
    assert zones.startswith("when: 1 cells have a time zone or an offset")
    assert value.startswith("città: 1 cells")
    assert "U+0069 U+0300" in value
    assert "U+0061 U+0300 here, U+00E0 in the dictionary" in key
    analyst = office.person(is_analyst=True)
    assert analyst.get(f"/datasets/{made['id']}/ingest-report").status_code in (403, 404)


def test_faults_are_told_by_row_and_column_and_other_data_may_be_sent(office: Office) -> None:
    made = office.uploaded("shift,pay\n1,Cash\n99,Coin\n")
    assert (made["state"], made["custodian"]["rows"]) == ("rejected", None)
    report = office.custodian.report(made["id"])
    assert report["problem_count"] == 2
    assert {(p["row"], p["record"], p["column"]) for p in report["problems"]} == {
        (2, 3, "shift"),
        (2, 3, "pay"),
    }
    assert all(problem["remedy"] for problem in report["problems"])
    assert chunks(office, made["id"]) == 0
    assert office.staged_files() == []
    assert office.custodian.put(made["id"]).status_code == 202
    office.work()
    assert office.custodian.dataset(made["id"])["state"] == "ready"


def test_problems_are_told_first_and_broken_constraints_by_their_number(office: Office) -> None:
    listed = [[shift, "Cash"] for shift in range(20)]
    schema = {
        "fields": SCHEMA["fields"],
        "constraints": [
            {"kind": "lookup", "columns": ["shift", "pay"], "rows": listed},
            {"kind": "forbidden", "when": {"shift": [1]}},
        ],
    }
    made = office.uploaded("shift,pay\n1,Card\n2,Card\n2,Cash\n", schema=schema)
    report = office.custodian.report(made["id"])
    assert list(report)[:3] == ["state", "problem_count", "problems"]
    assert report["constraint_violations"] == [
        {"number": 0, "kind": "lookup", "columns": ["shift", "pay"], "rows": 2},
        {"number": 1, "kind": "forbidden", "columns": ["shift"], "rows": 1},
    ]


def test_faults_are_grouped_so_that_one_bad_column_does_not_hide_another(office: Office) -> None:
    made = office.uploaded("shift,pay\n" + "99,Cash\n" * 500 + "x,Cheque\n", max_total_rows=10_000)
    report = office.custodian.report(made["id"])
    groups = [(each["column"], each["cause"], each["count"]) for each in report["problem_groups"]]
    assert sorted(groups) == [
        ("pay", "undeclared", 1),
        ("shift", "undeclared", 500),
        ("shift", "unreadable", 1),
    ]
    assert groups[0] == ("shift", "undeclared", 500)
    assert [len(each["examples"]) for each in report["problem_groups"]] == [5, 1, 1]
    assert report["problem_count"] == 502
    assert {problem["column"] for problem in report["problems"]} == {"shift", "pay"}


def test_rows_beyond_the_bound_are_told_to_the_custodian_alone(either: Office) -> None:
    rows = "".join(f"{who},{i},Cash\n" for who in "aab" for i in range(4)) + "c,1,Card\n,1,Card\n"
    made = either.uploaded("driver,shift,pay\n" + rows, schema=ENTITY_SCHEMA, unit=ENTITY)
    report = either.custodian.report(made["id"])
    assert report["bounding"] == {
        "max_rows": 3,
        "entities": 3,
        "most_rows": 8,
        "bounded_entities": 2,
        "rows_beyond": 6,
    }
    analyst = either.person(is_analyst=True)
    either.grant(made["id"], analyst)
    assert analyst.get(f"/datasets/{made['id']}/ingest-report").status_code == 403
    assert "beyond" not in analyst.get(f"/datasets/{made['id']}").text
    plain = either.uploaded("shift,pay\n5,Card\n")
    assert either.custodian.report(plain["id"])["bounding"] is None


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("shift\n1\n", "no column of this name"),
        (b"PAR1 not really", "parquet"),
        ("shift,pay\n1,Cash,more\n", ""),
        (b"\x1f\x8b broken gzip", "gzip"),
    ],
)
def test_a_file_that_is_not_the_table_is_rejected(
    office: Office, content: str | bytes, said: str
) -> None:
    made = office.uploaded(content)
    assert made["state"] == "rejected"
    problems = office.custodian.report(made["id"])["problems"]
    assert said in problems[0]["message"].lower()


def test_more_rows_than_declared_are_rejected(office: Office) -> None:
    at_the_limit = office.uploaded(CSV, max_total_rows=3)
    assert at_the_limit["state"] == "ready"
    beyond = office.uploaded(CSV + "1,Cash\n", max_total_rows=3)
    assert beyond["state"] == "rejected"
    assert chunks(office, beyond["id"]) == 0
    assert "max_total_rows" in office.custodian.report(beyond["id"])["problems"][0]["message"]


def test_a_file_of_far_more_rows_than_the_bound_is_not_read_to_its_end(office: Office) -> None:
    rejected = office.uploaded("shift,pay\n" + "99,Cash\n" * 200_000, max_total_rows=3)
    assert rejected["state"] == "rejected"
    report = office.custodian.report(rejected["id"])
    assert report["rows_read"] < 200_000
    assert any("max_total_rows" in each["message"] for each in report["problems"])


def test_rows_without_an_id_do_not_count_against_the_bound(office: Office) -> None:
    made = office.uploaded(DRIVERS, schema=ENTITY_SCHEMA, unit=ENTITY, max_total_rows=4)
    assert made["state"] == "ready"


def test_a_table_beyond_the_stored_bytes_of_its_owner_is_rejected(tmp_path: Path) -> None:
    with open_office(tmp_path, max_stored_bytes=10) as office:
        made = office.uploaded()
        assert made["state"] == "rejected"
        assert (
            "more than the service allows"
            in (office.custodian.report(made["id"])["problems"][0]["message"])
        )


def test_who_has_used_up_the_stored_bytes_may_not_upload(tmp_path: Path) -> None:
    with open_office(tmp_path) as office:
        made = office.uploaded()
        office.settings.max_stored_bytes = made["custodian"]["stored_bytes"]
        other = office.custodian.declare().json()["id"]
        assert office.custodian.put(other).status_code == 413
        assert office.person(is_custodian=True).declare().status_code == 201


def test_options_declared_with_the_dataset_and_the_upload_are_followed(office: Office) -> None:
    made = office.uploaded("1;Cash\n2;Card\n", file={"header": False, "delimiter": ";"})
    assert made["custodian"]["rows"] == 2
    dataset_id = office.custodian.declare(spec(file={"format": "csv"})).json()["id"]
    lines = '{"shift": 1, "pay": "Cash"}\n{"shift": 7, "pay": "Card"}\n'
    office.custodian.put(dataset_id, lines, params={"format": "jsonl"})
    office.work()
    assert office.custodian.report(dataset_id)["file"]["format"] == "jsonl"


class Stop(Exception):
    """Ends a run in the middle, as a crash would."""


def stopping_after(job: JobContext, units: int) -> JobContext:
    """The job, made to break off before its next writing unit of work."""
    whole, seen = job.fenced, []

    def fenced() -> Any:
        seen.append(1)
        if len(seen) > units:
            raise Stop
        return whole()

    job.fenced = fenced  # type: ignore[method-assign]
    return job


def test_a_run_that_was_cut_short_starts_clean(
    either: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocks, "block_rows", lambda schema, unit: 2)  # noqa: ARG005
    content = "shift,pay\n" + "".join(f"{n},Cash\n" for n in range(9))
    dataset_id = either.custodian.declare().json()["id"]
    either.custodian.put(dataset_id, content)
    for units in range(12):
        job = stopping_after(either.claim(), units)
        try:
            ingest.run(job, quota.used_bytes)
        except Stop:
            assert either.custodian.dataset(dataset_id)["state"] == "ingesting"
            with pytest.raises(DatasetUnreadable):
                codes(either, dataset_id)
            with either.database.write() as session:
                jobs.hand_back(session, job.claim)
        else:
            break
    assert units > 6
    shift = np.concatenate([c["shift"] for c in codes(either, dataset_id).chunks(["shift"])])
    assert shift.tolist() == list(range(9))


def test_a_worker_whose_lease_has_gone_stores_nothing(office: Office) -> None:
    dataset_id = office.custodian.declare().json()["id"]
    office.custodian.put(dataset_id)
    slow = office.claim()
    with office.database.write() as session:
        jobs.expire_worker(session, "worker")
    ingest.run(office.claim(), quota.used_bytes)
    before = chunks(office, dataset_id)
    with pytest.raises(LeaseLost):
        ingest.run(slow, quota.used_bytes)
    assert chunks(office, dataset_id) == before
    assert office.custodian.dataset(dataset_id)["state"] == "ready"


def test_a_job_that_failed_for_good_rejects_the_upload(office: Office) -> None:
    dataset_id = office.custodian.declare().json()["id"]
    office.custodian.put(dataset_id)
    with office.database.write() as session:
        ingest.failed(session, dataset_id)
    assert office.custodian.dataset(dataset_id)["state"] == "rejected"
    report = office.custodian.report(dataset_id)
    assert "limit of time or memory" in report["problems"][0]["message"]
    ready = office.uploaded()
    with office.database.write() as session:
        ingest.failed(session, ready["id"])
    assert office.custodian.dataset(ready["id"])["state"] == "ready"


def test_altered_codes_are_noticed(either: Office) -> None:
    made = either.uploaded()
    with either.database.write() as session:
        changed = session.execute(
            update(ChunkRow)
            .where(ChunkRow.collection == made["id"], ChunkRow.part == "column-0")
            .values(data=text("zeroblob(size_bytes)"))
        )
        assert rowcount(changed) == 1
    with pytest.raises(BlobCorrupt):
        list(codes(either, made["id"]).chunks(["shift"]))
    list(codes(either, made["id"]).chunks(["pay"]))


def test_a_block_of_another_length_than_the_manifest_says_is_noticed(office: Office) -> None:
    made = office.uploaded()
    longer = blocks.pack(np.zeros(4, np.uint8))
    BlobStore(office.database).write(made["id"], "column-0", [longer])
    with pytest.raises(BlobCorrupt):
        list(codes(office, made["id"]).chunks(["shift"]))


def test_nothing_of_an_encrypted_table_is_on_the_disk_in_the_clear(tmp_path: Path) -> None:
    schema = {
        "fields": [{"name": "word", "type": "string", "constraints": {"enum": ["zebra-crossing"]}}]
    }
    planted = b"zebra-crossing-7421"
    content = "word,extra\n" + f"zebra-crossing,{planted.decode()}\n" * 50_000
    with open_office(tmp_path, encrypted=True) as office:
        dataset_id = office.custodian.declare(spec(schema=schema, max_total_rows=10**6))
        office.custodian.put(dataset_id.json()["id"], content)
        assert len(office.staged_files()) == 1
        assert all(planted not in path.read_bytes() for path in files(tmp_path))
        office.work()
        made = office.custodian.dataset(dataset_id.json()["id"])
        assert made["custodian"]["rows"] == 50_000
        assert all(planted not in path.read_bytes() for path in files(tmp_path))
        with office.database.read() as session:
            stored = session.scalars(select(ChunkRow.data)).all()
        assert all(b"HTC1" not in data[:40] for data in stored)


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def test_blocks_of_wide_tables_are_shorter() -> None:
    def schema(columns: int) -> Schema:
        field = SCHEMA["fields"][0]
        return Schema.parse({"fields": [{**field, "name": f"c{i}"} for i in range(columns)]})

    row = PrivacyUnit("row")
    assert blocks.block_rows(schema(1), row) == blocks.MOST_BLOCK_ROWS
    assert blocks.block_rows(schema(1000), row) == blocks.BLOCK_BYTES // 1000
    assert blocks.block_rows(schema(2000), row) >= blocks.FEWEST_BLOCK_ROWS


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.uint32])
def test_packed_codes_are_read_back(dtype: type[np.unsignedinteger[Any]]) -> None:
    array = np.arange(250, dtype=dtype)
    back = blocks.unpack(blocks.pack(array))
    assert back.dtype == array.dtype
    assert (back == array).all()


@pytest.mark.parametrize("data", [b"", b"HTC1", b"XXXX" + bytes(20), blocks.pack(np.zeros(9))[:-3]])
def test_other_bytes_are_not_a_block(data: bytes) -> None:
    with pytest.raises(blocks.BlockError):
        blocks.unpack(data)


def test_a_table_in_another_encoding_names_the_encoding_that_reads_it(office: Office) -> None:
    fields = [{**SCHEMA["fields"][0]}, {"name": "sexo", "type": "string"}]
    fields[1]["constraints"] = {"enum": ["niño", "niña"]}
    content = "shift,sexo\n1,niño\n2,niña\n".encode("latin-1")
    made = office.uploaded(content, schema={"fields": fields})
    assert made["state"] == "rejected"
    problem = office.custodian.report(made["id"])["problems"][0]
    assert problem["message"] == r'"ni\xf1o" is not utf-8 text'
    assert '"encoding" (in cp1252 the cell is "niño")' in problem["remedy"]
    fields[1]["other"] = "niña"
    kept = office.uploaded(content, schema={"fields": fields})
    assert kept["state"] == "ready"
    notes = office.custodian.report(kept["id"])["file"]["notes"]
    assert notes == ["sexo: 2 cells are not utf-8 text; declare the `encoding`"]


@pytest.mark.parametrize(
    ("table", "changes", "said"),
    [
        ("shift,pay\n", {}, "The table has no rows."),
        (
            "driver,shift,pay\n,3,Cash\n,4,Card\n",
            {"schema": ENTITY_SCHEMA, "unit": ENTITY},
            "Every row lacks its id",
        ),
    ],
    ids=["a header alone", "no ids"],
)
def test_a_table_of_no_rows_is_not_ready(
    office: Office, table: str, changes: dict[str, Any], said: str
) -> None:
    made = office.uploaded(table, **changes)
    assert made["state"] == "rejected"
    (problem,) = office.custodian.report(made["id"])["problems"]
    assert problem["message"].startswith(said)

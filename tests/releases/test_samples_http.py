"""Further samples: free, repeatable, downloadable, dropped and made again."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from release_world import World, colours, world
from sqlalchemy import select

from app.database import now
from app.jobs.fit import _Admitted
from app.jobs.sample import _request
from app.releases import samples
from app.releases.models import JournalRow, ReleaseRow
from app.storage.blobs import BlobStore
from app.storage.models import ChunkRow


@pytest.fixture
def release(service: World) -> str:
    dataset = service.add_dataset()
    service.custodian.release(dataset, rows=40)
    return service.run_fit(colours(1000))


def ask(service: World, release: str, **body: object) -> str:
    answer = service.custodian.post(f"/v1/releases/{release}/samples", body)
    assert answer.status_code == 202, answer.text
    assert answer.headers["location"] == f"/v1/samples/{answer.json()['id']}"
    return str(answer.json()["id"])


def data(service: World, sample: str, **query: object) -> str:
    answer = service.custodian.get(f"/v1/samples/{sample}/data", params=query)
    assert answer.status_code == 200, answer.text
    return str(answer.text)


def test_the_same_seed_gives_the_same_rows(service: World, release: str) -> None:
    made = []
    for seed in (7, 7, 8):
        sample = ask(service, release, rows=25, seed=seed)
        assert service.run_sample() == sample
        made.append(data(service, sample))
    assert made[0] == made[1] != made[2]
    assert len(made[0].splitlines()) == 26


def test_samples_are_free(service: World, release: str) -> None:
    dataset = service.custodian.get(f"/v1/releases/{release}").json()["dataset_id"]
    before = service.custodian.release(dataset, guarantee={"epsilon": 100}).json()["spent"]
    ask(service, release, rows=25)
    service.run_sample()
    assert service.custodian.release(dataset, guarantee={"epsilon": 100}).json()["spent"] == before


@pytest.mark.parametrize("exact", [3, 1000, None])
def test_a_sample_of_default_size_is_bounded_by_public_facts_alone(
    service: World, exact: int | None
) -> None:
    """The exact number of rows must not reach the process that makes rows: cut at it, a sample
    would tell it."""
    dataset = service.add_dataset(rows=exact)
    service.custodian.release(dataset)
    release = service.run_fit(colours(1000))
    ask(service, release)
    later = _request(service.claim())
    fit: Any = SimpleNamespace(
        database=service.database, settings=service.settings, subject_id=release
    )
    first = _Admitted.read(fit).first_sample(later.schema, later.unit, later.model)
    assert (first.rows, first.most_rows) == (later.rows, later.most_rows) == (None, 100_000)


def test_data_are_not_there_before_the_job_is_done(service: World, release: str) -> None:
    sample = ask(service, release, rows=25)
    answer = service.custodian.get(f"/v1/samples/{sample}/data")
    assert answer.status_code == 409
    assert answer.headers["retry-after"]
    assert answer.json()["type"] == "/problems/not-ready"


def test_a_failed_sample_says_so(service: World, release: str) -> None:
    sample = ask(service, release, rows=25)
    with service.database.write() as session:
        samples.failed(session, sample)
    answer = service.custodian.get(f"/v1/samples/{sample}/data")
    assert answer.status_code == 409
    assert "could not be made" in answer.json()["detail"]
    assert "halftone verify" in answer.json()["detail"]


def damage_chunks(service: World, collection: str) -> None:
    with service.database.write() as session:
        for chunk in session.scalars(select(ChunkRow).filter_by(collection=collection)):
            chunk.data = chunk.data[:-1] + bytes([chunk.data[-1] ^ 1])


def refused_as_damaged(service: World, path: str) -> str:
    refused = service.custodian.get(path)
    assert (refused.status_code, refused.json()["type"]) == (409, "/problems/conflict")
    assert "damaged" in refused.json()["detail"]
    return str(refused.json()["detail"])


@pytest.mark.parametrize("form", ["csv", "parquet", "jsonl"])
@pytest.mark.parametrize("kind", ["rows", "counts"])
def test_a_damaged_sample_is_told_of_and_can_be_made_again(
    service: World, release: str, kind: str, form: str
) -> None:
    body = {"rows": 25, "seed": 7} if kind == "rows" else {"kind": kind}
    sample = ask(service, release, **body)
    service.run_sample()
    path = f"/v1/samples/{sample}/data?format={form}"
    whole = service.custodian.get(path)
    damage_chunks(service, sample)
    assert "same seed" in refused_as_damaged(service, path)
    assert service.custodian.request("DELETE", f"/v1/samples/{sample}").status_code == 204
    again = ask(service, release, **body)
    service.run_sample()
    assert service.custodian.get(f"/v1/samples/{again}/data?format={form}").content == whole.content


def test_a_sample_whose_last_chunk_is_damaged_is_refused_before_it_begins(
    service: World, release: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.storage.blobs.PIECE_BYTES", 64)
    sample = ask(service, release, rows=25)
    service.run_sample()
    with service.database.write() as session:
        chunks = select(ChunkRow).filter_by(collection=sample).order_by(ChunkRow.sequence)
        *others, last = session.scalars(chunks)
        assert others
        last.data = b"x" * last.size_bytes
    refused_as_damaged(service, f"/v1/samples/{sample}/data")


def test_damaged_answers_are_told_of(service: World, release: str) -> None:
    with service.database.write() as session:
        for entry in session.scalars(select(JournalRow).filter_by(release_id=release)):
            entry.answer = entry.answer[:-1]
    for form in ("json", "csv", "parquet"):
        refused_as_damaged(service, f"/v1/releases/{release}/measurements?format={form}")


def test_counts_are_the_histogram_itself(service: World, release: str) -> None:
    sample = ask(service, release, kind="counts")
    service.run_sample()
    lines = data(service, sample).splitlines()
    assert lines[0] == "colour,size,count"
    assert len(lines) == 1 + 4 * 6
    assert service.custodian.get(f"/v1/samples/{sample}").json()["rows"] == 24


def test_counts_are_refused_where_a_synthesizer_makes_none(service: World) -> None:
    service.custodian.release(service.add_dataset(), synthesizer="independent", params={})
    release = service.run_fit(colours(300))
    answer = service.custodian.post(f"/v1/releases/{release}/samples", {"kind": "counts"})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == "/kind"


def test_formulas_are_neutralised_on_request(service: World, release: str) -> None:
    sample = ask(service, release, rows=200, seed=1)
    service.run_sample()
    plain, safe = data(service, sample), data(service, sample, escape_formulas="true")
    assert "\n=green," in plain
    assert "\n=green," not in safe
    assert safe.replace("'=green", "=green") == plain


def test_conditional_requests_and_head(service: World, release: str) -> None:
    sample = ask(service, release, rows=20)
    service.run_sample()
    path = f"/v1/samples/{sample}/data"
    full = service.custodian.get(path)
    tag = full.headers["etag"]
    assert full.headers["content-disposition"] == f'attachment; filename="{sample}.csv"'
    unchanged = service.custodian.get(path, headers={"If-None-Match": f'"x", {tag}'})
    assert (unchanged.status_code, unchanged.content) == (304, b"")
    parquet = service.custodian.get(path, params={"format": "parquet"})
    assert parquet.headers["etag"] != tag
    head = service.custodian.request("HEAD", path, params={"format": "parquet"})
    assert head.content == b""
    for name in ("etag", "content-type", "content-disposition", "content-length"):
        assert head.headers[name] == parquet.headers[name]
    assert int(head.headers["content-length"]) == len(parquet.content)


def test_a_deleted_sample_is_gone_with_its_bytes(service: World, release: str) -> None:
    sample = ask(service, release, rows=20)
    service.run_sample()
    assert service.custodian.request("DELETE", f"/v1/samples/{sample}").status_code == 204
    assert service.custodian.get(f"/v1/samples/{sample}").status_code == 404
    assert BlobStore(service.database).size(sample) == 0
    listed = service.custodian.get(f"/v1/releases/{release}/samples").json()["items"]
    assert [item["rows"] for item in listed] == [40]


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"rows": 10**9}, "/rows"),
        ({"rows": -1}, "/rows"),
        ({"seed": 2**63}, "/seed"),
        ({"kind": "counts", "rows": 5}, "/rows"),
        ({"kind": "other"}, "/kind"),
    ],
)
def test_a_malformed_request_names_its_field(
    service: World, release: str, body: dict[str, object], pointer: str
) -> None:
    answer = service.custodian.post(f"/v1/releases/{release}/samples", body)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == pointer


def test_dropped_rows_are_made_again_from_the_seed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with world(tmp_path, monkeypatch, sample_ttl_s=60) as service:
        dataset = service.add_dataset()
        service.custodian.release(dataset, rows=40)
        release = service.run_fit(colours(1000))
        sample = service.custodian.get(f"/v1/releases/{release}").json()["samples"][0]["id"]
        before = service.custodian.get(f"/v1/samples/{sample}/data")
        later = now() + timedelta(seconds=61)
        monkeypatch.setattr("app.releases.samples.now", lambda: later)
        with service.database.write() as session:
            dropped = samples.drop_expired(session, service.settings)
        assert dropped == [sample]
        BlobStore(service.database).delete(sample)
        monkeypatch.undo()
        assert service.custodian.get(f"/v1/samples/{sample}").json()["stored"] is False
        for _ in range(2):
            waiting = service.custodian.get(f"/v1/samples/{sample}/data")
            assert (waiting.status_code, waiting.headers["retry-after"]) == (409, "2")
        assert service.run_sample() == sample
        after = service.custodian.get(f"/v1/samples/{sample}/data")
        assert after.content == before.content
        assert after.headers["etag"] == before.headers["etag"]


def test_rows_that_went_missing_are_made_again(service: World, release: str) -> None:
    sample = service.custodian.get(f"/v1/releases/{release}").json()["samples"][0]["id"]
    before = data(service, sample)
    BlobStore(service.database).delete(sample)
    assert service.custodian.get(f"/v1/samples/{sample}/data").status_code == 409
    assert service.run_sample() == sample
    assert data(service, sample) == before


def test_a_full_store_takes_no_more_samples(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with world(tmp_path, monkeypatch, max_stored_bytes=100) as service:
        dataset = service.add_dataset()
        service.custodian.release(dataset, rows=40)
        release = service.run_fit(colours(1000))
        answer = service.custodian.post(f"/v1/releases/{release}/samples", {"rows": 5})
        assert answer.status_code == 409
        assert "Delete samples" in answer.json()["detail"]


def test_more_rows_than_memory_holds_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with world(tmp_path, monkeypatch, job_memory_bytes=700 * 2**20) as service:
        service.custodian.release(service.add_dataset(), rows=40)
        samples_of = f"/v1/releases/{service.run_fit(colours(1000))}/samples"
        answer = service.custodian.post(samples_of, {"rows": 10_000_000})
        assert answer.status_code == 422
        assert answer.json()["errors"][0]["pointer"] == "/rows"
        assert service.custodian.post(samples_of, {"rows": 100_000}).status_code == 202


FITS_ONE_COLUMN = 600_000
"""Rows that 600 MiB hold in one column, but not in three."""


@pytest.mark.parametrize(
    ("synthesizer", "params", "status"),
    [
        ("independent", {}, 422),
        ("independent", {"columns": ["colour", "size", "day"]}, 422),
        ("independent", {"columns": ["colour"]}, 202),
        ("linked_histograms", {"groups": [{"columns": ["colour"]}]}, 202),
        ("of_a_third_party", {"columns": 3}, 202),
    ],
)
def test_rows_that_no_memory_would_hold_are_refused(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    synthesizer: str,
    params: dict[str, object],
    status: int,
) -> None:
    with world(tmp_path, monkeypatch, job_memory_bytes=600 * 2**20) as small:
        small.custodian.release(small.add_dataset(), rows=40)
        release = small.run_fit(colours(1000))
        with small.database.write() as session:
            row = session.get_one(ReleaseRow, release)
            row.synthesizer, row.params = synthesizer, params
        answer = small.custodian.post(f"/v1/releases/{release}/samples", {"rows": FITS_ONE_COLUMN})
    assert answer.status_code == status, answer.text
    if status == 422:
        assert [fault["pointer"] for fault in answer.json()["errors"]] == ["/rows"]

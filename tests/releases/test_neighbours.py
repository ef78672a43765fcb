"""P3: all that others than the custodian see of two neighbouring datasets is the same bytes.

The kernel's answers are the one thing that may differ. So both worlds run the whole service
on real, different rows, with each answer replaced by one made from its question alone; then
every status, header and body must agree, up to ids of equal length and times.
"""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from release_world import COLOURS, World, wanted, world

from app.engine.privacy.kernel import Kernel
from app.engine.privacy.queries import Scored
from app.engine.privacy.questions import Counted, Selected
from app.engine.privacy.source import CodeSource
from app.sandbox.child import ChildHost

SEED = 4_000_000_000_000_000
UNIT = {"kind": "entity", "column": "id", "max_rows": 2}

PUBLISHED = (
    "",
    "/events",
    "/measurements",
    "/measurements?format=csv",
    "/certificate",
    "/statement",
    "/samples",
)
SHARED_WITH = ("grantee", "stranger")
BOOKS = (
    "",
    "/schema",
    "/budget",
    "/ledger",
    "/ledger/verification",
    "/ledger/export",
    "/ledger/statement",
    "/ledger/statement?format=json",
)

CHOICES = {
    "target": "colour",
    "regression": {"outcome": "size", "predictors": ["colour"]},
    "subgroups": ["colour"],
}
EXACT: list[int] = []
"""Real rows of each report, in the order made: the custodian's."""

Answer = tuple[int, tuple[tuple[str, str], ...], bytes]


class PublicAnswers(Kernel):
    """A kernel that does its work on the rows and then tells something else."""

    def answer(self, admitted: Any) -> Any:
        answer = super().answer(admitted)
        if isinstance(answer, Counted):
            return Counted(
                tuple(
                    replace(each, values=np.full_like(each.values, 5 + each.values.size))
                    for each in answer.measurements
                )
            )
        if isinstance(answer, Scored):
            return replace(answer, values=np.ones_like(answer.values))
        assert isinstance(answer, Selected)
        return replace(answer, winners=tuple(range(len(answer.winners))))


class FailsOnData(Kernel):
    """A kernel whose failure tells of the rows."""

    def __init__(self, source: CodeSource, *rest: Any, **options: Any) -> None:
        super().__init__(source, *rest, **options)
        self._told = sum(len(chunk["size"]) for chunk in source.chunks(["size"]))

    def answer(self, admitted: Any) -> Any:
        super().answer(admitted)
        raise RuntimeError(f"there are {self._told} rows")


def people(without: str | None) -> bytes:
    """A table of 60 people, one of whom may be missing with all rows."""
    rng = np.random.default_rng(5)
    lines = ["id,colour,size,day"]
    for person in range(60):
        for _ in range(int(rng.integers(1, 5))):
            day = f"2024-01-{int(rng.integers(1, 32)):02d}"
            row = f"p{person},{['red', '=green'][int(rng.integers(2))]},{rng.integers(5)},{day}"
            if f"p{person}" != without:
                lines.append(row)
    return ("\n".join(lines) + "\n").encode()


def upload(service: World, table: bytes, host: ChildHost) -> str:
    spec = {
        "name": "colours",
        "visibility": "private",
        "schema": COLOURS,
        "unit": UNIT,
        "max_total_rows": 1000,
        "budget": {"epsilon": 5, "delta": "0.00001"},
    }
    made = service.custodian.post("/v1/datasets", spec)
    assert made.status_code in (201, 202), made.text
    dataset = str(made.json()["id"])
    sent = service.custodian.request(
        "PUT",
        f"/v1/datasets/{dataset}/data",
        content=table,
        headers={"Content-Type": "text/csv"},
    )
    assert sent.status_code in (201, 202), sent.text
    service.work(host)
    state = service.custodian.get(f"/v1/datasets/{dataset}").json()["state"]
    assert state == "ready", service.custodian.get(f"/v1/datasets/{dataset}/ingest-report").text
    return dataset


class Reader:
    """Asks as one person, or without a key, and keeps what came back."""

    def __init__(self, service: World, who: str | None) -> None:
        self._client = service.http if who is None else service.client(who)
        self.seen: list[Answer] = []

    def ask(self, method: str, path: str, body: Any = None, **options: Any) -> Any:
        answer = self._client.request(method, path, json=body, **options)
        headers = tuple((name, _plain(value)) for name, value in answer.headers.items())
        self.seen.append((answer.status_code, headers, _plain(answer.content)))
        return answer

    def ask_publication(self, path: str) -> Any:
        """Without the size of its archive and tags, in which ids are packed or hashed."""
        answer = self._client.request("GET", path)
        apart = ("etag", "content-length")
        headers = tuple(
            (name, _plain(value)) for name, value in answer.headers.items() if name not in apart
        )
        body = re.sub(rb"\d+ B\b|\b\d+ bytes|\"\d+\"", b"size", _plain(answer.content))
        body = re.sub(rb'("bundle_bytes": ?)\d+', rb"\1size", body)
        self.seen.append((answer.status_code, headers, body))
        return answer

    def ask_bundle(self, path: str) -> None:
        """Each file of a bundle apart: packed, ids of equal length have bytes of other numbers."""
        answer = self._client.get(path)
        assert answer.status_code == 200, answer.text
        # Its tag is made of the ids, and so is its length, where it states one.
        names = tuple(
            (name, _plain(value))
            for name, value in answer.headers.items()
            if name not in ("etag", "content-length")
        )
        with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
            for name in archive.namelist():
                self.seen.append(
                    (200, (*names, ("file", _plain(name))), _plain(archive.read(name)))
                )


def _plain(seen: Any) -> Any:
    """Ids and hashes of equal length, and times, made equal."""
    if isinstance(seen, str):
        return _plain(seen.encode()).decode()
    seen = re.sub(rb"\b([a-z]{2})([_-])[a-z2-9]{20}\b", rb"\1\2********************", seen)
    seen = re.sub(rb"\b[0-9a-f]{64}\b", b"#" * 64, seen)
    seen = re.sub(rb'"salt": ?"[0-9a-f]{32}"', b'"salt":"*"', seen)
    # Of the service's own key, over ids and times.
    seen = re.sub(rb'"(public_key|value)": ?"[A-Za-z0-9+/]{42,86}=+"', rb'"\1":"*"', seen)
    seen = re.sub(rb"of the \d+ bytes of the archive", b"of the archive", seen)
    return re.sub(rb"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d{6}Z)?", b"time", seen)


def tour(service: World, dataset: str, host: ChildHost, fail: Callable[[], None]) -> list[Answer]:
    """Everything an analyst can do with a dataset, and others with what is shared with them."""
    ana, others = Reader(service, "ana"), [Reader(service, who) for who in SHARED_WITH]
    stranger = Reader(service, None)
    for part in (
        "",
        "/schema",
        "/budget",
        "/ledger",
        "/ledger/verification",
        "/ingest-report",
        "/grants",
    ):
        ana.ask("GET", f"/v1/datasets/{dataset}{part}")
    ana.ask("GET", "/v1/datasets")
    releases = f"/v1/datasets/{dataset}/releases"
    for body in (
        wanted(rows=30),
        wanted(synthesizer="independent", params={}),
        wanted(synthesizer="mst", params={}, guarantee={"epsilon": "0.5", "delta": "0.000001"}),
        wanted(params={"columns": ["colour", "colour"]}),
        wanted(guarantee={"epsilon": 50}),
    ):
        ana.ask("POST", f"{releases}/preflight", body)
        answer = ana.ask("POST", releases, body)
        if answer.status_code != 202:
            continue
        service.work(host)
        release = answer.json()["id"]
        for part in PUBLISHED:
            ana.ask("GET", f"/v1/releases/{release}{part}")
        sample = ana.ask("POST", f"/v1/releases/{release}/samples", {"rows": 9, "seed": 3}).json()
        service.work(host)
        ana.ask("GET", f"/v1/samples/{sample['id']}")
        report_beside(service, release, ana, host)
        for form in ("csv", "jsonl", "parquet"):
            ana.ask("GET", f"/v1/samples/{sample['id']}/data?format={form}")
        ana.ask_bundle(f"/v1/releases/{release}/bundle")
        evaluation(service, release, ana, host)
        ana.ask_bundle(f"/v1/releases/{release}/bundle?samples={sample['id']}&budget=true")
        share(service, release, ana, others)
        if body.get("rows"):
            sample_shared(service, release, others, host)
            publish(service, release, stranger)
    fail()
    failing = ana.ask("POST", releases, wanted(guarantee={"epsilon": "0.1"})).json()["id"]
    service.work(host)
    for part in (
        "",
        "/events",
        "/measurements",
        "/certificate",
        "/statement",
        "/samples",
        "/cancel",
    ):
        ana.ask("POST" if part == "/cancel" else "GET", f"/v1/releases/{failing}{part}")
    ana.ask("GET", "/v1/releases")
    ana.ask("GET", f"/v1/datasets/{dataset}/ledger")
    auditor = Reader(service, "auditor")
    for part in BOOKS:
        auditor.ask("GET", f"/v1/datasets/{dataset}{part}")
    auditor.ask("GET", f"/v1/releases/{release}/certificate")
    auditor.ask("GET", f"/v1/releases/{failing}/certificate")
    auditor.ask("GET", "/v1/audit")
    return [answer for reader in (ana, *others, stranger, auditor) for answer in reader.seen]


def share(service: World, release: str, ana: Reader, others: Sequence[Reader]) -> None:
    """What those read with whom the custodian shares a release, and its requester meanwhile."""
    at, body = f"/v1/releases/{release}", {"visibility": "public"}
    ana.ask("PUT", f"{at}/visibility", body)
    assert service.custodian.request("PUT", f"{at}/visibility", json=body).status_code == 200
    ana.ask("GET", at)
    for other in others:
        for part in (*PUBLISHED, "/report"):
            other.ask("GET", f"{at}{part}")
        other.ask("PUT", f"{at}/visibility", body)
        other.ask("GET", "/v1/releases")


def sample_shared(service: World, release: str, others: Sequence[Reader], host: ChildHost) -> None:
    at = f"/v1/releases/{release}"
    for other in others:
        sample = other.ask("POST", f"{at}/samples", {"rows": 5, "seed": 4}).json()["id"]
        service.work(host)
        other.ask("GET", f"/v1/samples/{sample}")
        other.ask("GET", f"/v1/samples/{sample}/data")
        other.ask("DELETE", f"/v1/samples/{sample}")
    others[-1].ask("GET", f"{at}/report?format=html")
    others[-1].ask_bundle(f"{at}/bundle")


def evaluation(service: World, release: str, ana: Reader, host: ChildHost) -> None:
    """What the analyst reads of distances that are bought."""
    body = {"guarantee": {"epsilon": "0.1"}}
    asked = ana.ask("POST", f"/v1/releases/{release}/evaluations", body)
    assert asked.status_code == 202, asked.text
    service.work(host)
    at = f"/v1/releases/{asked.json()['id']}"
    for part in ("", "/evaluation", *PUBLISHED):
        ana.ask("GET", f"{at}{part}")
    assert ana.ask("GET", f"{at}/evaluation").status_code == 200


def publish(service: World, release: str, stranger: Reader) -> None:
    """What a stranger without a key reads of a publication, before and after it is withdrawn."""
    citation = {
        "release": release,
        "title": "Colours, synthetic",
        "abstract": "Synthetic colours.",
        "license": "CC0-1.0",
        "creators": [{"name": "An office"}],
    }
    made = service.custodian.post("/v1/publications", citation)
    assert made.status_code == 201, made.text
    at = f"/v1/publications/{made.json()['id']}"
    for form in ("json", "jsonld", "html"):
        stranger.ask_publication(f"/v1/publications?q=colours&format={form}")
        stranger.ask_publication(f"{at}?format={form}")
    stranger.ask_bundle(f"{at}/bundle")
    for file in made.json()["files"]:
        if file["name"].startswith("data/"):
            stranger.ask_publication(file["path"])
    stranger.ask("GET", "/v1/keys/signing")
    gone = service.custodian.request("DELETE", at, json={"reason": "A test."})
    assert gone.status_code == 204
    stranger.ask("GET", at)


def report_beside(service: World, release: str, ana: Reader, host: ChildHost) -> None:
    """What the analyst reads while the custodian compares the release with the real rows."""
    at = f"/v1/releases/{release}/report"
    ana.ask("GET", at)
    ana.ask("POST", at, CHOICES)
    assert service.custodian.post(at, CHOICES).status_code == 202
    ana.ask("GET", at)
    service.work(host)
    ana.ask("GET", at)
    ana.ask("GET", f"{at}?format=html")
    exact = service.custodian.get(at).json()["exact"]
    assert exact["evaluation"]["real_rows"]["matches"]
    EXACT.append(exact["rows"]["real"])


def test_nobody_but_the_custodian_can_tell_neighbours_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, details = [], []
    EXACT.clear()
    monkeypatch.setattr("app.releases.samples.new_seed", lambda: SEED)
    for name, table in (("all", people(None)), ("but one", people("p17"))):
        with world(tmp_path / name, monkeypatch, public_catalogue=True) as service:
            host = ChildHost(service.settings)
            for who in ("ana", *SHARED_WITH):
                service.add_analyst(who)
            dataset = upload(service, table, host)
            service.grant(dataset, "ana", show_budget=True)
            service.grant(dataset, "grantee")
            service.add_person("auditor", "auditor")
            service.grant(dataset, "auditor", role="auditor", show_budget=True)
            monkeypatch.setattr("app.jobs.fit.Kernel", PublicAnswers)

            def fail() -> None:
                monkeypatch.setattr("app.jobs.fit.Kernel", FailsOnData)

            seen.append(tour(service, dataset, host, fail))
            failed = service.custodian.get("/v1/releases", params={"state": "failed"}).json()
            (release,) = failed["items"]
            details.append(release["private_detail"])
    for first, second in zip(*seen, strict=True):
        assert first == second
    half = len(EXACT) // 2
    assert all(one != other for one, other in zip(EXACT[:half], EXACT[half:], strict=True))
    assert all(re.search(r"there are \d+ rows", detail) for detail in details)
    assert details[0] != details[1]
    statuses = [status for status, _, _ in seen[0]]
    assert {200, 202, 403, 409, 410, 422} <= set(statuses)
    assert sum(b'"state":"succeeded"' in body for _, _, body in seen[0]) >= 6
    assert any(b'"state":"failed"' in body for _, _, body in seen[0])
    assert any(b'"sampling_error"' in body for _, _, body in seen[0])

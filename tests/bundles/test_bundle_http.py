"""Bundles over HTTP: who gets which, the same bytes each time, and what they say of the ledger."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from halftone_client.verification import BundleFault, Verified, verify
from release_world import COLOURS, World, colours, world

from app.engine.privacy.loss import Accountant
from app.ledger import repository as ledgers
from app.queue import jobs
from app.releases import samples
from app.releases.models import ReleaseRow, SampleRow
from app.signing import keys
from app.signing.keys import SigningKey
from app.storage.blobs import BlobStore
from app.storage.encryption import Keyring

UNIT = {"kind": "entity", "column": "id", "max_rows": 3}


@dataclass
class Case:
    service: World
    dataset: str
    release: str

    @property
    def path(self) -> str:
        return f"/v1/releases/{self.release}/bundle"

    def key(self) -> SigningKey:
        with self.service.database.write() as session:
            return keys.current(session, Keyring(self.service.settings))

    def bundle(self, who: str = "custodian", **query: Any) -> bytes:
        answer = self.service.client(who).get(self.path, params=query)
        assert answer.status_code == 200, answer.text
        content: bytes = answer.content
        return content

    def verified(self, data: bytes, folder: Path) -> Verified:
        file = folder / "bundle.zip"
        file.write_bytes(data)
        key = self.key()
        return verify(file, {key.id: key.public})


def documents(data: bytes) -> Mapping[str, Any]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {
            name: json.loads(archive.read(name))
            for name in archive.namelist()
            if name.endswith(".json")
        }


def names(data: bytes) -> list[str]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return archive.namelist()


def released(service: World, **dataset: Any) -> Case:
    """A release of an analyst on a dataset whose ledger goes on afterwards."""
    made = service.add_dataset(**dataset)
    service.grant(made, "ana")
    service.grant(made, "bea", show_budget=True)
    asked = service.client("ana").release(made, rows=40)
    assert asked.status_code == 202, asked.text
    entities = 30 if "unit" in dataset else None
    service.run_fit(colours(200, entities=entities))
    later = service.custodian.release(made, guarantee={"epsilon": "0.5"})
    assert later.status_code == 202
    # It is charged and stays queued: its table is nowhere.
    with service.database.write() as session:
        jobs.cancel(session, later.json()["id"])
    return Case(service, made, asked.json()["id"])


@pytest.fixture
def case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Case]:
    with world(tmp_path, monkeypatch) as service:
        for who in ("ana", "bea", "eve"):
            service.add_analyst(who)
        yield released(service)


def test_the_bundle_is_whole_and_the_same_for_everyone_who_sees_the_release(
    case: Case, tmp_path: Path
) -> None:
    first = case.bundle()
    assert case.verified(first, tmp_path).release_id == case.release
    assert case.bundle("ana") == first
    assert case.service.client("eve").get(case.path).status_code == 404
    assert [name.split(".")[-1] for name in names(first)[:2]] == ["csv", "parquet"]
    assert set(names(first)[2:]) >= {
        "dictionary.json",
        "measurements.json",
        "report.html",
        "certificate.json",
        "ledger-proof.json",
        "datapackage.json",
        "croissant.json",
        "datacite.json",
        "README.md",
        "LICENSE.txt",
        "SHA256SUMS",
        "SHA256SUMS.sig",
    }


@pytest.mark.parametrize("accountant", list(Accountant))
def test_bundles_of_entities_and_of_both_accountants_are_whole(
    accountant: Accountant, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with world(tmp_path, monkeypatch) as service:
        for who in ("ana", "bea"):
            service.add_analyst(who)
        case = released(service, schema=COLOURS, unit=UNIT, accountant=accountant)
        for totals in (False, True):
            case.verified(case.bundle(budget=totals), tmp_path)


def test_its_tag_stands_for_its_bytes(case: Case) -> None:
    first = case.service.custodian.get(case.path)
    tag = first.headers["ETag"]
    head = case.service.custodian.request("HEAD", case.path)
    assert (head.headers["ETag"], head.content) == (tag, b"")
    same = case.service.custodian.get(case.path, headers={"If-None-Match": tag})
    assert (same.status_code, same.content) == (304, b"")
    with case.service.database.write() as session:
        keys.rotate(session, Keyring(case.service.settings))
    other = case.service.custodian.get(case.path)
    assert other.headers["ETag"] != tag
    assert other.content != first.content


def test_a_bundle_of_before_stays_good_under_the_retired_key(case: Case, tmp_path: Path) -> None:
    old, data = case.key(), case.bundle()
    with case.service.database.write() as session:
        keys.rotate(session, Keyring(case.service.settings))
    file = tmp_path / "bundle.zip"
    file.write_bytes(data)
    listed = case.service.http.get("/v1/keys/signing").json()["keys"]
    assert [each["state"] for each in listed] == ["current", "retired"]
    assert verify(file, {old.id: old.public}).key_id == listed[1]["id"]
    new = case.key()
    with pytest.raises(BundleFault, match="none of the given keys"):
        verify(file, {new.id: new.public})
    assert case.verified(case.bundle(), tmp_path).key_id == new.id


def test_totals_are_shown_on_demand_to_those_who_see_them(case: Case, tmp_path: Path) -> None:
    plain = documents(case.bundle())
    assert plain["certificate.json"]["position"] is None
    assert not plain["ledger-proof.json"]["totals_shown"]
    assert "spent_primary" not in str(plain["ledger-proof.json"])
    assert "salt" not in str(plain["ledger-proof.json"])
    # As the release itself does not tell who requested it.
    assert not {"principal_id", "grant_id"} & set(plain["ledger-proof.json"]["entries"][0])
    # The opening of the account has no salt: its hash would let its caps be tried out.
    assert plain["ledger-proof.json"]["hashes"][0] is None

    data = case.bundle(budget=True)
    case.verified(data, tmp_path)
    shown = documents(data)
    assert shown["certificate.json"]["position"] == {
        "spent_after": {"epsilon": "1", "delta": "0"},
        "cap": {"epsilon": "10", "delta": "0.000001"},
    }
    with case.service.database.read() as session:
        account = session.get_one(ReleaseRow, case.release).account_id
        chain = [link.hash for link in ledgers.links(session, account)]
    # Up to the moment of its success; what was charged afterwards is not part of it.
    assert shown["ledger-proof.json"]["hashes"] == chain[:2]
    assert case.service.client("ana").get(case.path, params={"budget": True}).status_code == 403


def test_the_certificate_names_what_it_is_of_and_is_that_of_the_bundle(case: Case) -> None:
    at = f"/v1/releases/{case.release}/certificate"
    shown = case.service.custodian.get(at).json()
    assert shown == documents(case.bundle())["certificate.json"]
    assert shown["dataset"]["name"] == "colours"
    before = case.bundle()
    renamed = case.service.custodian.request(
        "PATCH", f"/v1/datasets/{case.dataset}", json={"name": "other"}
    )
    assert renamed.status_code == 200
    assert case.service.custodian.get(at).json() == shown
    assert case.bundle() == before
    assert case.service.custodian.get(at, params={"budget": True}).json()["position"]
    assert case.service.client("ana").get(at, params={"budget": True}).status_code == 403


def test_a_release_of_an_earlier_version_has_a_bundle_of_what_is_known(
    case: Case, tmp_path: Path
) -> None:
    with case.service.database.write() as session:
        row = session.get_one(ReleaseRow, case.release)
        row.certificate = {k: v for k, v in (row.certificate or {}).items() if k != "dataset"}
        row.ledger_head = None
    data = case.bundle(budget=True)
    assert case.verified(data, tmp_path).dataset_name == "colours"
    assert len(documents(data)["ledger-proof.json"]["hashes"]) == 2


def test_it_holds_the_samples_that_are_named(case: Case, tmp_path: Path) -> None:
    ana = case.service.client("ana")
    more = ana.post(f"/v1/releases/{case.release}/samples", {"rows": 7, "seed": 1}).json()["id"]
    counts = ana.post(f"/v1/releases/{case.release}/samples", {"kind": "counts"}).json()["id"]
    unmade = ana.get(case.path, params={"samples": more})
    assert unmade.status_code == 422
    assert unmade.json()["errors"][0]["pointer"] == "/query/samples"
    while case.service.run_sample() != counts:
        pass
    data = case.bundle("ana", samples=f"{more},{counts}")
    case.verified(data, tmp_path)
    assert {name for name in names(data) if name.startswith("data/")} == {
        f"data/{each}.{form}" for each in (more, counts) for form in ("csv", "parquet")
    }
    assert [each["id"] for each in documents(data)["certificate.json"]["samples"]] == [more, counts]
    for wrong in ("", "sm_none", ",".join(f"sm_{place}" for place in range(30))):
        assert ana.get(case.path, params={"samples": wrong}).status_code == 422, wrong


def test_dropped_rows_are_made_again_and_give_the_same_bundle(case: Case) -> None:
    before, first = case.bundle(), samples.first_id(case.release)
    with case.service.database.write() as session:
        session.get_one(SampleRow, first).dropped = True
    BlobStore(case.service.database).delete(first)
    asked = case.service.custodian.get(case.path)
    assert (asked.status_code, "Retry-After" in asked.headers) == (409, True)
    assert case.service.run_sample() == first
    assert case.bundle() == before


def test_damaged_rows_are_refused_before_the_first_byte(case: Case) -> None:
    first = samples.first_id(case.release)
    with case.service.database.raw_writer() as raw:
        raw.execute(
            "UPDATE chunks SET data = zeroblob(length(data)) WHERE collection = ?", (first,)
        )
    assert case.service.custodian.get(case.path).status_code == 409


def test_what_published_nothing_has_no_bundle(case: Case) -> None:
    queued = case.service.custodian.get("/v1/releases", params={"state": "queued"}).json()["items"]
    at = f"/v1/releases/{queued[0]['id']}/bundle"
    assert case.service.custodian.get(at).status_code == 409
    gone = case.service.custodian.request(
        "DELETE", f"/v1/datasets/{case.dataset}", params={"releases": True}
    )
    assert gone.status_code == 200, gone.text
    assert case.service.custodian.get(case.path).status_code == 409

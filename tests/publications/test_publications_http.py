"""Publications over HTTP: who publishes, what a stranger reads, how one is withdrawn."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from release_world import World, colours, world

from app.erasure import finish_interrupted
from app.publications import archive
from app.publications.models import PublicationRow
from app.routers.paging import LARGEST_LIMIT
from app.signing import keys as signing_keys
from app.storage.encryption import Keyring
from app.storage.models import ChunkRow

CITATION: dict[str, Any] = {
    "title": "Trips in the city, synthetic",
    "abstract": "Synthetic trips.\n\nThey keep how shifts and fares go together.",
    "license": "cc-by-4.0",
    "creators": [{"name": "Statistikbüro Zürich"}],
    "contact": "data@city.example",
    "keywords": ["taxi", "mobility"],
    "temporal": {"start": "2029-01-01", "end": "2029-12-31"},
    "spatial": "Zürich",
}


def made_release(service: World) -> str:
    dataset = service.add_dataset()
    answer = service.custodian.release(dataset)
    assert answer.status_code == 202, answer.text
    service.run_fit(colours(500))
    return str(answer.json()["id"])


def publish(service: World, release: str | None = None, **changes: Any) -> dict[str, Any]:
    body = {"release": release or made_release(service), **CITATION, **changes}
    answer = service.custodian.post("/v1/publications", body)
    assert answer.status_code == 201, answer.text
    assert answer.headers["Location"] == f"/v1/publications/{answer.json()['id']}"
    shown: dict[str, Any] = answer.json()
    return shown


def test_a_stranger_finds_and_reads_what_a_custodian_published(service: World) -> None:
    made = publish(service)
    assert made["version"] == 1
    assert made["license"] == "CC-BY-4.0", "as SPDX spells it"
    (listed,) = service.http.get("/v1/publications").json()["items"]
    assert listed == made
    answer = service.http.get(f"/v1/publications/{made['id']}")
    assert answer.json() == made
    tag = {"If-None-Match": answer.headers["ETag"]}
    unchanged = service.http.get(f"/v1/publications/{made['id']}", headers=tag)
    assert (unchanged.status_code, unchanged.content) == (304, b"")
    head = service.http.head(f"/v1/publications/{made['id']}")
    assert (head.status_code, head.headers["ETag"]) == (200, answer.headers["ETag"])
    assert service.http.head("/v1/publications").status_code == 200
    shown = service.custodian.get(f"/v1/releases/{made['release']}").json()
    assert shown["visibility"] == "public"


def test_without_the_operators_leave_strangers_are_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with world(tmp_path, monkeypatch) as closed:
        made = publish(closed)
        for path in ("", f"/{made['id']}"):
            assert closed.http.get(f"/v1/publications{path}").status_code == 401
            assert (
                closed.add_analyst(f"ana{path[-1:]}").get(f"/v1/publications{path}").status_code
                == 200
            )


def test_a_wrong_key_is_refused_also_where_none_is_needed(service: World) -> None:
    answer = service.http.get(
        "/v1/publications", headers={"Authorization": "Bearer hk_" + "x" * 40}
    )
    assert answer.status_code == 401


@pytest.mark.parametrize(
    ("query", "found"),
    [("trips", True), ("TAXI zürich", True), ("taxi berlin", False), ("100%", False), ("_", False)],
)
def test_every_word_of_a_search_occurs_in_what_it_finds(
    service: World, query: str, found: bool
) -> None:
    publish(service)
    items = service.http.get("/v1/publications", params={"q": query}).json()["items"]
    assert bool(items) is found


def test_a_newer_version_supersedes_and_both_can_be_read(service: World) -> None:
    release = made_release(service)
    first = publish(service, release)
    second = publish(service, release, supersedes=first["id"], title="Trips, corrected")
    assert (second["version"], second["series"]) == (2, first["id"])
    assert second["supersedes"] == first["id"]
    newest = service.http.get("/v1/publications").json()["items"]
    assert [each["id"] for each in newest] == [second["id"]]
    every = service.http.get("/v1/publications", params={"series": first["id"]}).json()["items"]
    assert [each["version"] for each in every] == [2, 1]
    old = service.http.get(f"/v1/publications/{first['id']}").json()
    assert old["superseded_by"] == second["id"]
    stale = service.custodian.post(
        "/v1/publications", {"release": release, **CITATION, "supersedes": first["id"]}
    )
    assert stale.status_code == 422
    assert stale.json()["errors"][0]["pointer"] == "/supersedes"


def test_a_withdrawn_publication_leaves_a_tombstone(service: World) -> None:
    made = publish(service)
    path = f"/v1/publications/{made['id']}"
    for _ in range(2):
        answer = service.custodian.request("DELETE", path, json={"reason": "Fares were in cents."})
        assert answer.status_code == 204
    gone = service.http.get(path)
    assert gone.status_code == 410
    told = gone.json()
    assert told["type"] == "/problems/gone"
    assert (told["publication_title"], told["reason"]) == (
        CITATION["title"],
        "Fares were in cents.",
    )
    assert told["published_at"] == made["published_at"] < told["withdrawn_at"]
    page = service.http.get(path, headers={"Accept": "text/html"})
    assert (page.status_code, page.headers["Content-Type"]) == (410, "text/html; charset=utf-8")
    assert "Fares were in cents." in page.text
    assert service.http.get("/v1/publications").json()["items"] == []
    assert service.http.get(f"{path}/bundle").status_code == 410
    next_one = publish(service, made["release"], supersedes=made["id"])
    assert next_one["version"] == 2
    assert service.http.get(path).json()["superseded_by"] == next_one["id"]


def test_what_is_published_can_be_neither_hidden_nor_deleted_in_parts(service: World) -> None:
    made = publish(service)
    (sample,) = made["samples"]
    assert service.custodian.request("DELETE", f"/v1/samples/{sample}").status_code == 409
    hide = f"/v1/releases/{made['release']}/visibility"
    answer = service.custodian.request("PUT", hide, json={"visibility": "requester"})
    assert answer.status_code == 409


def test_the_audit_log_has_a_publication_and_the_visibility_that_it_gives(service: World) -> None:
    release = made_release(service)
    dataset = service.custodian.get(f"/v1/releases/{release}").json()["dataset_id"]
    auditor = service.add_person("otto", "auditor")
    service.grant(dataset, "otto", role="auditor", show_budget=True)
    publish(service, release)
    entries = auditor.get("/v1/audit").json()["items"]
    assert [entry["action"] for entry in entries] == ["publication.created", "release.visibility"]
    assert entries[1]["detail"]["to"] == "public"


def test_erasing_the_dataset_with_its_releases_withdraws_what_was_published(
    service: World,
) -> None:
    made = publish(service)
    dataset = service.custodian.get(f"/v1/releases/{made['release']}").json()["dataset_id"]
    assert service.custodian.request("DELETE", f"/v1/datasets/{dataset}").status_code == 200
    assert service.http.get(f"/v1/publications/{made['id']}").status_code == 200
    answer = service.custodian.request("DELETE", f"/v1/datasets/{dataset}?releases=true")
    assert answer.status_code == 200
    assert service.http.get(f"/v1/publications/{made['id']}").status_code == 410


def test_only_the_custodian_publishes_and_withdraws(service: World) -> None:
    release = made_release(service)
    ana = service.add_analyst("ana")
    body = {"release": release, **CITATION}
    assert ana.post("/v1/publications", body).status_code == 403
    made = publish(service, release)
    path = f"/v1/publications/{made['id']}"
    assert ana.request("DELETE", path, json={"reason": "No."}).status_code == 403
    assert service.http.request("DELETE", path, json={"reason": "No."}).status_code == 401


def test_publishing_again_under_one_key_gives_the_first_answer(service: World) -> None:
    body = {"release": made_release(service), **CITATION}
    key = {"Idempotency-Key": "once"}
    first = service.custodian.post("/v1/publications", body, headers=key)
    again = service.custodian.post("/v1/publications", body, headers=key)
    assert again.headers["Idempotent-Replayed"] == "true"
    assert again.json() == first.json()


@pytest.mark.parametrize(
    ("changes", "pointer"),
    [
        ({"license": "my own"}, "/license"),
        ({"title": " "}, "/title"),
        ({"title": "a\u0000b"}, "/title"),
        ({"creators": []}, "/creators"),
        ({"creators": [{"name": "Ada", "orcid": "1234"}]}, "/creators/0/orcid"),
        ({"creators": [{"name": "A", "orcid": "0000-0000-0000-000\u0663"}]}, "/creators/0/orcid"),
        ({"title": "turned \u202e round"}, "/title"),
        ({"contact": "call me"}, "/contact"),
        ({"temporal": {"start": "2030-01-01", "end": "2029-01-01"}}, "/temporal"),
        ({"temporal": {}}, "/temporal"),
        ({"samples": ["sm_aaaaaaaaaaaaaaaaaaaa"]}, "/samples/0"),
        ({"supersedes": "pb_aaaaaaaaaaaaaaaaaaaa"}, "/supersedes"),
        ({"release": "rl_aaaaaaaaaaaaaaaaaaaa"}, "/release"),
        ({"doi": "10.1/2"}, "/doi"),
    ],
)
def test_what_cannot_be_cited_is_refused_at_its_field(
    service: World, changes: dict[str, Any], pointer: str
) -> None:
    body = {"release": made_release(service), **CITATION, **changes}
    answer = service.custodian.post("/v1/publications", body)
    assert answer.status_code == 422, answer.text
    assert answer.json()["errors"][0]["pointer"] == pointer


def test_the_largest_page_of_a_full_catalogue_is_answered(service: World) -> None:
    made = publish(service)
    with service.database.write() as session:
        row = session.get_one(PublicationRow, made["id"])
        facts = {
            column.key: getattr(row, column.key) for column in PublicationRow.__table__.columns
        }
        for number in range(LARGEST_LIMIT):
            name = f"pb_{number:020d}"
            session.add(PublicationRow(**{**facts, "id": name, "series_id": name}))
    page = service.http.get("/v1/publications", params={"limit": LARGEST_LIMIT})
    assert page.status_code == 200, page.text
    assert len(page.json()["items"]) == LARGEST_LIMIT


def test_texts_as_people_write_them_are_taken(service: World) -> None:
    shown = publish(
        service,
        title="Donn\u00e9es\u202f: \u00ab\u00a0taxis\u00a0\u00bb",
        abstract="One.\r\n\r\nTwo.",
    )
    assert shown["abstract"] == "One.\n\nTwo."
    publish(
        service,
        shown["release"],
        title="\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645 \U0001f468\u200d\U0001f469",
    )


def test_an_unfinished_release_is_not_published(service: World) -> None:
    release = service.custodian.release(service.add_dataset()).json()["id"]
    answer = service.custodian.post("/v1/publications", {"release": release, **CITATION})
    assert (answer.status_code, answer.json()["type"]) == (409, "/problems/not-ready")


def test_an_address_that_asks_too_often_is_told_to_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with world(tmp_path, monkeypatch, public_catalogue=True, anonymous_requests=3) as made:
        answers = [made.http.get("/v1/publications").status_code for _ in range(4)]
        assert answers == [200, 200, 200, 429]
        assert int(made.http.get("/v1/publications").headers["Retry-After"]) > 0
        assert made.custodian.get("/v1/publications").status_code == 200


def test_a_stranger_downloads_the_archive_and_its_files_whole_or_in_part(service: World) -> None:
    made = publish(service)
    whole = service.http.get(made["bundle"])
    assert hashlib.sha256(whole.content).hexdigest() == made["bundle_sha256"]
    assert len(whole.content) == made["bundle_bytes"] == int(whole.headers["Content-Length"])
    with zipfile.ZipFile(io.BytesIO(whole.content)) as archive:
        assert [file["name"] for file in made["files"]] == archive.namelist()
        for file in made["files"]:
            answer = service.http.get(file["path"])
            assert answer.content == archive.read(file["name"])
            assert hashlib.sha256(answer.content).hexdigest() == file["sha256"]
            assert len(answer.content) == file["size_bytes"]
            assert answer.headers["Content-Type"] == file["media_type"]
            tag = answer.headers["ETag"]
            again = service.http.get(file["path"], headers={"If-None-Match": tag})
            assert again.status_code == 304
            part = service.http.get(file["path"], headers={"Range": "bytes=3-9", "If-Range": tag})
            assert (part.status_code, part.content) == (206, answer.content[3:10])
            assert part.headers["Content-Range"] == f"bytes 3-9/{file['size_bytes']}"
    tail = service.http.get(made["bundle"], headers={"Range": "bytes=-100"})
    assert (tail.status_code, tail.content) == (206, whole.content[-100:])
    beyond = service.http.get(made["bundle"], headers={"Range": f"bytes={2**40}-"})
    assert beyond.status_code == 416
    head = service.http.head(made["bundle"])
    assert (head.content, head.headers["ETag"]) == (b"", whole.headers["ETag"])
    assert service.http.get(f"/v1/publications/{made['id']}/files/../x").status_code == 404


def test_what_is_published_stays_the_same_when_the_signing_key_is_rotated(service: World) -> None:
    made = publish(service)
    before = service.http.get(made["bundle"]).content
    keyring = Keyring(service.settings)
    with service.database.write() as session:
        signing_keys.rotate(session, keyring)
    assert service.http.get(made["bundle"]).content == before


def test_a_publication_that_could_not_be_made_leaves_nothing(
    service: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = made_release(service)

    def broken(*_: Any) -> Any:
        raise RuntimeError("no archive")

    with monkeypatch.context() as patch:
        patch.setattr("app.publications.service._completed", broken)
        answer = service.custodian.post("/v1/publications", {"release": release, **CITATION})
    assert answer.status_code == 500
    with service.database.read() as session:
        assert session.query(PublicationRow).count() == 0
        assert not session.query(ChunkRow).filter(ChunkRow.collection.like("pb_%")).count()
    assert service.custodian.get(f"/v1/releases/{release}").json()["visibility"] == "requester"
    publish(service, release)


def test_what_a_stopped_process_left_of_a_publication_is_deleted_later(
    service: World,
) -> None:
    made = publish(service)
    lost = publish(service, made["release"], supersedes=made["id"])
    with service.database.write() as session:
        row = session.get_one(PublicationRow, lost["id"])
        row.state, row.created_at = "publishing", row.created_at - timedelta(hours=2)
    assert service.http.get(f"/v1/publications/{lost['id']}").status_code == 404
    finish_interrupted(service.database, service.settings)
    with service.database.read() as session:
        held = {row[0] for row in session.query(ChunkRow.collection).distinct()}
    assert made["id"] in held
    assert lost["id"] not in held
    assert publish(service, made["release"], supersedes=made["id"])["version"] == 2


def test_a_sample_that_is_deleted_meanwhile_is_not_published(
    service: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = made_release(service)
    (sample,) = service.custodian.get(f"/v1/releases/{release}").json()["samples"]
    listed = archive.listed

    def late(*archived: Any) -> Any:
        service.custodian.request("DELETE", f"/v1/samples/{sample['id']}")
        return listed(*archived)

    monkeypatch.setattr(archive, "listed", late)
    answer = service.custodian.post("/v1/publications", {"release": release, **CITATION})
    assert answer.status_code == 409
    assert service.http.get("/v1/publications").json()["items"] == []


def test_one_that_is_being_made_cannot_be_withdrawn(service: World) -> None:
    made = publish(service)
    with service.database.write() as session:
        session.get_one(PublicationRow, made["id"]).state = "publishing"
    path = f"/v1/publications/{made['id']}"
    answer = service.custodian.request("DELETE", path, json={"reason": "Too early."})
    assert answer.status_code == 404
    with service.database.read() as session:
        assert session.query(ChunkRow).filter_by(collection=made["id"]).count()


def test_one_that_is_withdrawn_while_it_is_opened_is_gone(
    service: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = publish(service)
    path = f"/v1/publications/{made['id']}"
    opened = archive.opened

    def late(*place: Any) -> Any:
        service.custodian.request("DELETE", path, json={"reason": "Wrong."})
        return opened(*place)

    monkeypatch.setattr(archive, "opened", late)
    assert service.http.get(f"{path}/bundle").status_code == 410


def test_a_page_holds_what_was_stated_and_runs_nothing(service: World) -> None:
    hostile = "<script>alert(1)</script> & </title>"
    made = publish(service, title=hostile, keywords=["</script><b>"])
    page = service.http.get(f"/v1/publications/{made['id']}", headers={"Accept": "text/html"})
    assert page.headers["Content-Type"].startswith("text/html")
    assert "script-src" not in page.headers["Content-Security-Policy"]
    assert "default-src 'none'" in page.headers["Content-Security-Policy"]
    assert "<script>alert" not in page.text
    assert page.text.count("<script") == page.text.count("</script>") == 1
    block = page.text.split('<script type="application/ld+json">')[1].split("</script>")[0]
    found = json.loads(block)
    assert (found["@type"], found["name"]) == ("Dataset", hostile)
    listed = service.http.get("/v1/publications?format=html")
    assert "&lt;script&gt;alert(1)" in listed.text

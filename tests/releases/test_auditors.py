"""Auditors: the books of a dataset and everything about them, and no data."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from release_world import Client, World, colours, wanted, world

from app.engine.privacy.loss import Accountant
from app.ledger import snapshot
from app.ledger.export import export_lines, verify_export
from app.ledger.models import GrantRow, LedgerRow
from app.routers.data import gathered
from app.security.models import PrincipalRow


@dataclass
class Audited:
    """A dataset with a release of its analyst and one that was given back, and its auditor."""

    service: World
    dataset: str
    release: str
    sample: str

    @property
    def at(self) -> str:
        return f"/v1/datasets/{self.dataset}"

    def by(self, who: str) -> Client:
        return self.service.client(who)


def audited(service: World, accountant: Accountant = Accountant.BASIC) -> Audited:
    dataset = service.add_dataset(accountant=accountant)
    service.add_analyst("ana")
    service.add_person("otto", "auditor")
    service.add_person("lent", "auditor")
    service.add_person("operator", "admin")
    service.grant(dataset, "ana")
    service.grant(dataset, "otto", role="auditor", show_budget=True)
    service.client("ana").release(dataset, rows=20)
    release = service.run_fit(colours(200))
    waiting = service.custodian.release(dataset, guarantee={"epsilon": "0.5"}).json()["id"]
    assert service.custodian.post(f"/v1/releases/{waiting}/cancel").json()["refunded"]
    (sample,) = service.custodian.get(f"/v1/releases/{release}").json()["samples"]
    return Audited(service, dataset, release, sample["id"])


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Audited]:
    with (
        pytest.MonkeyPatch.context() as patch,
        world(tmp_path_factory.mktemp("audited"), patch) as service,
    ):
        yield audited(service)


BOOKS = ("/ledger", "/ledger/verification", "/ledger/export", "/ledger/statement", "/budget")


def test_an_auditor_reads_the_books_and_no_data(case: Audited) -> None:
    release, sample = f"/v1/releases/{case.release}", f"/v1/samples/{case.sample}"
    matrix: dict[tuple[str, str], int] = {
        ("GET", case.at): 200,
        ("GET", f"{case.at}/schema"): 200,
        **{("GET", case.at + part): 200 for part in BOOKS},
        ("HEAD", f"{case.at}/ledger/export"): 200,
        ("GET", f"{release}/certificate"): 200,
        ("GET", "/v1/audit"): 200,
        ("GET", f"{case.at}/ingest-report"): 403,
        ("GET", f"{case.at}/grants"): 403,
        ("DELETE", case.at): 403,
        ("PATCH", case.at): 403,
        ("POST", f"{case.at}/releases"): 403,
        ("POST", f"{case.at}/releases/preflight"): 403,
        **{
            ("GET", release + part): 404
            for part in (
                "", "/measurements", "/report", "/statement", "/samples", "/events",
            )
        },
        ("POST", f"{release}/samples"): 404,
        ("POST", f"{release}/cancel"): 404,
        ("PUT", f"{release}/visibility"): 404,
        ("GET", sample): 404,
        ("GET", f"{sample}/data"): 404,
        ("DELETE", sample): 404,
    }  # fmt: skip
    bodies: dict[str, Any] = {
        "/releases": wanted(),
        "/releases/preflight": wanted(),
        "/visibility": {"visibility": "public"},
        "/samples": {"rows": 3},
        "/cancel": None,
    }

    def status(who: str, method: str, path: str) -> int:
        body = next((sent for end, sent in bodies.items() if path.endswith(end)), {"name": "x"})
        sends = {} if method in ("GET", "HEAD", "DELETE") else {"json": body}
        return int(case.by(who).request(method, path, **sends).status_code)

    assert {asked: status("otto", *asked) for asked in matrix} == matrix
    assert case.by("otto").get("/v1/releases").json()["items"] == []
    assert [seen["role"] for seen in case.by("otto").get("/v1/datasets").json()["items"]] == [
        "auditor"
    ]
    # The role alone opens nothing, nor does being an admin.
    for who in ("lent", "operator"):
        others = {asked: status(who, *asked) for asked in matrix if asked[1] != "/v1/audit"}
        assert set(others.values()) == {404}


@pytest.mark.parametrize("who", ["ana", "custodian"])
def test_analysts_read_neither_export_nor_statement_and_custodians_both(
    case: Audited, who: str
) -> None:
    for part in ("/ledger/export", "/ledger/statement"):
        status = case.by(who).get(case.at + part).status_code
        assert status == (200 if who == "custodian" else 403)


def test_an_auditor_reads_of_the_account_what_the_custodian_reads(case: Audited) -> None:
    for part in (*BOOKS[:3], "/budget"):
        assert (
            case.by("otto").get(case.at + part).text
            == case.by("custodian").get(case.at + part).text
        )
    seen = case.by("otto").get(case.at).json()
    assert (seen["role"], seen["custodian"]) == ("auditor", None)
    shared = case.by("custodian").get(f"/v1/releases/{case.release}/certificate").json()
    assert case.by("otto").get(f"/v1/releases/{case.release}/certificate").json() == shared


def test_the_export_is_that_of_the_command_and_verifies(
    case: Audited, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot, "_ENTRIES_AT_ONCE", 2)
    answer = case.by("otto").get(f"{case.at}/ledger/export")
    lines = answer.text.splitlines()
    with case.service.database.read() as session:
        account = json.loads(lines[0])["account"]["id"]
        assert lines == list(export_lines(session, account))
    (found,) = verify_export(lines)
    assert (found.ok, found.entries) == (True, 4)
    assert answer.headers["content-type"].startswith("application/jsonl")
    known = {"If-None-Match": answer.headers["etag"]}
    again = case.by("otto").get(f"{case.at}/ledger/export", headers=known)
    assert (again.status_code, again.content) == (304, b"")
    head = case.by("otto").request("HEAD", f"{case.at}/ledger/export")
    assert (head.headers["etag"], head.content) == (answer.headers["etag"], b"")


def test_an_auditor_prints_the_statement(case: Audited) -> None:
    """Over HTTP alone: what was given, every step of it, what remains, and that it adds up."""
    auditor = case.by("otto")
    (dataset,) = auditor.get("/v1/datasets").json()["items"]
    at = f"/v1/datasets/{dataset['id']}/ledger/statement"
    stated = auditor.get(f"{at}?format=json").json()
    assert stated["opening"] == {"epsilon": "10", "delta": "0.000001"}
    assert [line["kind"] for line in stated["entries"]] == ["opened", "charge", "charge", "refund"]
    assert [line["spent_after"]["epsilon"] for line in stated["entries"]] == ["0", "1", "1.5", "1"]
    assert stated["entries"][1]["principal_id"] == case.service.principal_id("ana")
    assert stated["entries"][1]["release_id"] == case.release
    assert stated["entries"][1]["guarantee"] == {"epsilon": "1"}
    assert (stated["charges"]["entries"], stated["charges"]["amount"]["epsilon"]) == (2, "1.5")
    assert stated["refunds"] == {"entries": 1, "amount": {"epsilon": "0.5", "delta": "0"}}
    assert stated["budget"]["remaining"]["epsilon"] == "9"
    assert stated["verification"]["ok"]

    answer = auditor.get(at)
    page = answer.text
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert not re.search(r"<script|<img|<link|https?://|url\(", page)
    shown = html.unescape(re.sub(r"<[^>]+>", " ", page))
    for text in (
        "Opening budget epsilon 10 and delta 0.000001",
        f"Release {case.release} charged for epsilon 1, made by histogram.",
        "Charge of release",
        "epsilon 9 and delta 0.000001",
        "Each of the 4 entries follows",
        stated["verification"]["head_hash"],
    ):
        assert text in re.sub(r"\s+", " ", shown), text
    assert not re.search(r"\b(ana|otto|admin)\b", shown)


def test_the_statement_tells_rho_beside_epsilon_and_escapes_what_people_wrote(
    service: World,
) -> None:
    case = audited(service, Accountant.ZCDP)
    custodian = case.by("custodian")
    tag = custodian.get(f"{case.at}/budget").headers["ETag"]
    change = {"epsilon": "20", "reason": "<script>alert(1)</script> & more"}
    changed = custodian.request("PUT", f"{case.at}/budget", json=change, headers={"If-Match": tag})
    assert changed.status_code == 200
    custodian.request("PATCH", case.at, json={"name": "<b>bold</b>"})
    page = case.by("otto").get(f"{case.at}/ledger/statement").text
    assert "<script>" not in page
    assert "<b>bold" not in page
    assert "Reason: &lt;script&gt;alert(1)&lt;/script&gt; &amp; more" in page
    assert "The budget was changed after it was declared." in page
    assert re.search(r"Remains</th><td>rho [\d.]+ \(epsilon [\d.]+ at delta 0.000001\)", page)


def test_a_ledger_that_does_not_add_up_is_stated_and_one_that_cannot_be_read_refused(
    service: World,
) -> None:
    case = audited(service)
    with service.database.write() as session:
        row = session.query(LedgerRow).filter_by(release_id=case.release, kind="charge").one()
        row.principal_id = "pr_somebody"
        account = row.account_id
    page = case.by("otto").get(f"{case.at}/ledger/statement").text
    assert "No. What does not add up:" in page
    assert "entry 2 was changed" in page
    with service.database.write() as session:
        session.connection().exec_driver_sql(
            "UPDATE ledger SET detail = '[1]' WHERE account_id = ? AND sequence = 2", (account,)
        )
    for part in ("export", "statement"):
        answer = case.by("otto").get(f"{case.at}/ledger/{part}")
        assert answer.status_code == 409
        assert "Entry 2" in answer.json()["detail"]


def test_a_custodian_grants_audits_and_takes_them_back(service: World) -> None:
    case = audited(service)
    custodian, at = case.by("custodian"), f"{case.at}/grants"
    lent, ana = service.principal_id("lent"), service.principal_id("ana")

    def refused(path: str, method: str, body: dict[str, Any]) -> str:
        answer = custodian.request(method, path, json=body)
        assert answer.status_code == 422, answer.text
        return str(answer.json()["errors"][0]["pointer"])

    body = {"principal_id": lent, "role": "auditor"}
    assert refused(at, "POST", {**body, "role": "analyst"}) == "/principal_id"
    assert refused(at, "POST", {**body, "principal_id": ana}) == "/principal_id"
    assert refused(at, "POST", {**body, "allowance": {"epsilon": 1}}) == "/allowance"
    assert refused(at, "POST", {**body, "show_budget": False}) == "/show_budget"
    made = custodian.post(at, body).json()
    assert (made["role"], made["allowance"], made["show_budget"]) == ("auditor", None, True)
    assert made["within_account"] == {"epsilon": "0", "delta": "0"}
    assert refused(f"{at}/{made['id']}", "PATCH", {"allowance": {"epsilon": 1}}) == "/allowance"
    assert custodian.request("PUT", f"{at}/{made['id']}", json={}).json()["show_budget"]
    assert case.by("lent").get(case.at).json()["role"] == "auditor"
    assert custodian.request("DELETE", f"{at}/{made['id']}").status_code == 204
    for path in (case.at, f"/v1/releases/{case.release}/certificate"):
        assert case.by("lent").get(path).status_code == 404
    assert case.by("lent").get("/v1/audit").json()["items"] == []


def test_a_grant_in_another_role_takes_the_first_ones_rights(service: World) -> None:
    """An analyst who becomes the auditor keeps own releases, and can spend nothing more."""
    case = audited(service)
    with service.database.write() as session:
        session.get_one(PrincipalRow, service.principal_id("ana")).is_auditor = True
        grant = session.query(GrantRow).filter_by(principal_id=service.principal_id("ana")).one().id
    custodian, at = case.by("custodian"), f"{case.at}/grants"
    body = {"principal_id": service.principal_id("ana"), "role": "auditor"}
    assert custodian.post(at, body).status_code == 409
    custodian.request("DELETE", f"{at}/{grant}")
    assert custodian.post(at, body).json()["id"] == grant
    assert case.by("ana").release(case.dataset).status_code == 403
    assert case.by("ana").get(f"/v1/releases/{case.release}").status_code == 200
    assert case.by("ana").get(f"{case.at}/ledger/statement").status_code == 200
    assert case.by("otto").get(f"{case.at}/ledger/verification").json()["ok"]


def test_the_audit_log_of_an_auditor_is_that_of_the_datasets_granted(service: World) -> None:
    case = audited(service)
    other = service.add_dataset()
    custodian, auditor = case.by("custodian"), case.by("otto")
    for dataset in (case.dataset, other):
        custodian.post(
            f"/v1/datasets/{dataset}/grants",
            {"principal_id": service.principal_id("lent"), "role": "auditor"},
        )
    custodian.request(
        "PUT", f"/v1/releases/{case.release}/visibility", json={"visibility": "grantees"}
    )
    custodian.post(f"/v1/releases/{case.release}/report")
    entries = auditor.get("/v1/audit").json()["items"]
    assert [(entry["action"], entry["subject"]) for entry in entries] == [
        ("release.visibility", case.dataset),
        ("grant.created", case.dataset),
    ]
    assert entries[1]["detail"]["role"] == "auditor"


def test_pieces_are_gathered_and_none_is_lost() -> None:
    pieces = [b"x" * size for size in (3, 4, 1, 9, 2)]
    gathered_pieces = list(gathered(iter(pieces), 5))
    assert b"".join(gathered_pieces) == b"".join(pieces)
    assert [len(piece) for piece in gathered_pieces] == [7, 10, 2]

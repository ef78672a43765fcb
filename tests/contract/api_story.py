"""One use of the whole service, told over HTTP: every operation once and more.

The contract tests seed a server with it. What it records are the examples of the API page:

    PYTHONPATH=tests python tests/contract/api_story.py app/routers/examples.json
"""

from __future__ import annotations

import contextlib
import json
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from serving import ADMIN_KEY, LiveServer, serving

SETTINGS = {"HALFTONE_WORKERS": "1", "HALFTONE_DRAIN_S": "0", "HALFTONE_AUTH_FAILURES": "1000000"}
PAYMENTS = ("Cash", "Credit Card")
FORM_NAME = "taxi.csv"
SHOWN_KEY = "hk_" + "x" * 43
_PATIENCE_S = 90
_TEXTS = (
    "text/csv", "text/html", "text/markdown", "application/jsonl", "text/plain",
    "text/event-stream",
)  # fmt: skip

DICTIONARY: dict[str, Any] = {
    "fields": [
        {"name": "taxi_id", "type": "string", "role": "entity"},
        {"name": "shift", "type": "integer", "constraints": {"minimum": 0, "maximum": 3}},
        {
            "name": "payment_type",
            "type": "string",
            "constraints": {"enum": list(PAYMENTS)},
            "other": "Other",
        },
        {
            "name": "fare",
            "type": "number",
            "constraints": {"minimum": 0, "maximum": 100, "required": False},
            "bins": 20,
            "special": [0],
        },
    ],
    "missingValues": [""],
    "constraints": [{"kind": "forbidden", "when": {"shift": [0], "payment_type": ["Other"]}}],
}
UNIT = {"kind": "entity", "column": "taxi_id", "max_rows": 5}
SPEC: dict[str, Any] = {
    "name": "taxi",
    "visibility": "private",
    "schema": DICTIONARY,
    "unit": UNIT,
    "max_total_rows": 1_000_000,
    "budget": {"epsilon": 10, "delta": 1e-6},
    "accountant": "zcdp",
    "delta_for_approximate": 0,
}
WIDE_BUDGET = {"epsilon": 100_000, "delta": 0.5}


def table(seed: int, taxis: int = 300) -> bytes:
    """A CSV of made-up trips; another seed gives other content."""
    draw = random.Random(seed)
    lines = ["taxi_id,shift,payment_type,fare"]
    for taxi in range(taxis):
        for _ in range(draw.randint(1, 6)):
            paid = draw.choice([*PAYMENTS, "Mobile"])
            fare = draw.choice(["0", "", f"{draw.uniform(3, 60):.2f}"])
            lines.append(f"T{taxi:04d},{draw.randint(0, 3)},{paid},{fare}")
    return ("\n".join(lines) + "\n").encode()


@dataclass
class Recorder:
    """Asks, insists on the status, and keeps the first exchange of each kind."""

    http: httpx.Client
    found: dict[str, dict[str, Any]] = field(default_factory=dict)

    def ask(
        self,
        operation: str,
        method: str,
        path: str,
        *,
        status: int = 200,
        key: str = ADMIN_KEY,
        headers: dict[str, str] | None = None,
        **sent: Any,
    ) -> httpx.Response:
        answer = self.http.request(
            method, path, headers={"Authorization": f"Bearer {key}", **(headers or {})}, **sent
        )
        if answer.status_code != status:
            raise AssertionError(f"{operation}: {answer.status_code} {answer.text[:2000]}")
        kept = self.found.setdefault(operation, {"request": None, "responses": {}})
        if "json" in sent:
            kept["request"] = kept["request"] or sent["json"]
        kind, body = _shown(answer)
        if kind:
            kept["responses"].setdefault(str(status), {}).setdefault(kind, body)
        return answer

    def wait(
        self, operation: str, path: str, done: Callable[[dict[str, Any]], bool]
    ) -> dict[str, Any]:
        """Read until it is done; only that last answer is kept."""
        deadline = time.monotonic() + _PATIENCE_S
        while time.monotonic() < deadline:
            answer = self.http.get(path, headers={"Authorization": f"Bearer {ADMIN_KEY}"})
            shown: dict[str, Any] = answer.raise_for_status().json()
            if done(shown):
                self.ask(operation, "GET", path)
                return shown
            time.sleep(0.1)
        raise AssertionError(f"{path} did not end: {shown}")


def _shown(answer: httpx.Response) -> tuple[str, Any]:
    kind = answer.headers.get("content-type", "").split(";")[0] if answer.content else ""
    if kind.endswith("json"):
        return kind, _without_secret(answer.json())
    if kind in _TEXTS:
        return kind, "".join(answer.text.splitlines(keepends=True)[:8])
    return "", None


def _without_secret(body: Any) -> Any:
    if isinstance(body, dict) and body.get("key", "") and str(body["key"]).startswith("hk_"):
        return {**body, "prefix": SHOWN_KEY[:11], "key": SHOWN_KEY}
    return body


@dataclass(frozen=True, slots=True)
class Story:
    """What was made: ids that later requests can name."""

    admin: str
    analyst: str
    key: str
    dataset: str
    playground: str
    public: str
    spare: str
    release: str
    evaluation: str
    cancelled: str
    sample: str
    grant: str
    publication: str


class Teller:
    """Tells the story in chapters; each leaves what the next needs."""

    def __init__(self, recorder: Recorder) -> None:
        self.ask, self.wait = recorder.ask, recorder.wait

    def tell(self) -> Story:
        admin = self.ask("get_me", "GET", "/v1/me").json()["id"]
        analyst, key, secret = self.people(admin)
        dataset = self.declare()
        playground = self.upload()
        known = {"name": "city", "visibility": "public", "schema": DICTIONARY, "unit": UNIT}
        public = self.dataset(known, table(3))
        spare = self.dataset({**SPEC, "name": "spare", "budget": WIDE_BUDGET}, None)
        grant = self.grants(dataset, analyst)
        release = self.release(dataset, secret)
        sample = self.samples(release)
        self.report(release)
        evaluation = self.evaluate(release)
        publication = self.publish(release)
        cancelled = self.cancel(dataset)
        self.books(dataset)
        self.rest()
        return Story(
            admin, analyst, key, dataset, playground, public, spare,
            release, evaluation, cancelled, sample, grant, publication,
        )  # fmt: skip

    def people(self, admin: str) -> tuple[str, str, str]:
        form = {"name": "Ada", "roles": ["analyst"]}
        ada = self.ask("create_principal", "POST", "/v1/principals", status=201, json=form).json()
        at = f"/v1/principals/{ada['id']}"
        self.ask("list_principals", "GET", "/v1/principals")
        self.ask("get_principal", "GET", at)
        self.ask("change_principal", "PATCH", at, json={"name": "Ada L."})
        label = {"label": "notebook", "expires_in_days": 90}
        made = self.ask("create_key", "POST", f"{at}/keys", status=201, json=label).json()
        more = self.ask("create_key", "POST", f"{at}/keys", status=201, json={}).json()
        self.ask("list_keys", "GET", f"{at}/keys")
        self.ask("get_key", "GET", f"{at}/keys/{made['id']}")
        self.ask("revoke_key", "DELETE", f"{at}/keys/{more['id']}", status=204)
        assert admin != ada["id"]
        return ada["id"], made["id"], made["key"]

    def declare(self) -> str:
        """Declared first, uploaded afterwards."""
        made = self.ask("create_dataset", "POST", "/v1/datasets", status=201, json=SPEC).json()
        at = f"/v1/datasets/{made['id']}"
        headers = {"Content-Type": "text/csv", "Prefer": "wait=60"}
        self.ask("upload_data", "PUT", f"{at}/data", headers=headers, content=table(1))
        self.ask("list_datasets", "GET", "/v1/datasets")
        self.ask("get_dataset", "GET", at)
        self.ask("rename_dataset", "PATCH", at, json={"name": "taxi trips"})
        self.ask("get_dictionary", "GET", f"{at}/schema")
        self.ask("get_ingest_report", "GET", f"{at}/ingest-report")
        return str(made["id"])

    def upload(self) -> str:
        """Declared and uploaded in one form; the budget is wide, to be played with."""
        spec = {**SPEC, "name": "playground", "budget": WIDE_BUDGET, "accountant": "basic"}
        form = {
            "spec": (None, json.dumps(spec), "application/json"),
            "file": (FORM_NAME, table(2), "text/csv"),
        }
        made = self.ask("create_dataset", "POST", "/v1/datasets", status=202, files=form).json()
        self._until_ready(made["id"])
        return str(made["id"])

    def dataset(self, spec: dict[str, Any], data: bytes | None) -> str:
        made = self.ask("create_dataset", "POST", "/v1/datasets", status=201, json=spec).json()
        if data is not None:
            at = f"/v1/datasets/{made['id']}/data"
            headers = {"Content-Type": "text/csv"}
            self.ask("upload_data", "PUT", at, status=202, headers=headers, content=data)
            self._until_ready(made["id"])
        return str(made["id"])

    def _until_ready(self, dataset: str) -> None:
        at = f"/v1/datasets/{dataset}"
        seen = self.wait("get_dataset", at, lambda shown: shown["state"] != "ingesting")
        assert seen["state"] == "ready", seen

    def grants(self, dataset: str, analyst: str) -> str:
        at = f"/v1/datasets/{dataset}/grants"
        form = {"principal_id": analyst, "allowance": {"rho": "0.5"}, "show_budget": True}
        grant = self.ask("create_grant", "POST", at, status=201, json=form).json()["id"]
        self.ask("list_grants", "GET", at)
        self.ask("get_grant", "GET", f"{at}/{grant}")
        terms = {"allowance": {"rho": "1"}}
        self.ask("change_grant", "PATCH", f"{at}/{grant}", json=terms)
        both = {**terms, "show_budget": True}
        self.ask("replace_grant", "PUT", f"{at}/{grant}", json=both)
        self.ask("revoke_grant", "DELETE", f"{at}/{grant}", status=204)
        self.ask("create_grant", "POST", at, status=201, json={**form, **both})
        return str(grant)

    def release(self, dataset: str, analyst_key: str) -> str:
        at = f"/v1/datasets/{dataset}/releases"
        form = {
            "synthesizer": "histogram",
            "params": {"columns": ["shift", "payment_type"]},
            "guarantee": {"epsilon": "1", "delta": "0.000001"},
            "rows": 1000,
        }
        self.ask("preflight_release", "POST", f"{at}/preflight", key=analyst_key, json=form)
        headers = {"Idempotency-Key": "first-release"}
        made = self.ask(
            "request_release", "POST", at, status=202, key=analyst_key, headers=headers, json=form
        ).json()
        large = {**form, "guarantee": {"epsilon": "10", "delta": "0.000001"}}
        self.ask("request_release", "POST", at, status=409, json=large)
        here = f"/v1/releases/{made['id']}"
        self._until_succeeded("get_release", here)
        self.ask("list_releases", "GET", "/v1/releases")
        self.ask("follow_release", "GET", f"{here}/events")
        for form_name in ("json", "csv", "parquet"):
            self.ask("get_measurements", "GET", f"{here}/measurements?format={form_name}")
        self.ask("get_certificate", "GET", f"{here}/certificate")
        self.ask("get_bundle", "GET", f"{here}/bundle")
        self.ask("get_statement", "GET", f"{here}/statement")
        shared, wish = f"{here}/visibility", {"visibility": "grantees"}
        self.ask("set_visibility", "PUT", shared, status=202, key=analyst_key, json=wish)
        self.ask("set_visibility", "PUT", shared, json=wish)
        return str(made["id"])

    def _until_succeeded(self, operation: str, at: str) -> None:
        ended = ("succeeded", "failed", "cancelled")
        seen = self.wait(operation, at, lambda shown: shown["state"] in ended)
        assert seen["state"] == "succeeded", seen

    def samples(self, release: str) -> str:
        at = f"/v1/releases/{release}/samples"
        form = {"rows": 5000, "seed": 7}
        made = self.ask("request_sample", "POST", at, status=202, json=form).json()["id"]
        self._until_succeeded("get_sample", f"/v1/samples/{made}")
        self.ask("list_samples", "GET", at)
        for form_name in ("csv", "parquet", "jsonl"):
            self.ask("download_sample", "GET", f"/v1/samples/{made}/data?format={form_name}")
        other = self.ask("request_sample", "POST", at, status=202, json={}).json()["id"]
        self._until_succeeded("get_sample", f"/v1/samples/{other}")
        self.ask("delete_sample", "DELETE", f"/v1/samples/{other}", status=204)
        return str(made)

    def report(self, release: str) -> None:
        at = f"/v1/releases/{release}/report"
        headers = {"Idempotency-Key": "first-report"}
        self.ask("request_report", "POST", at, status=202, headers=headers)
        self._until_succeeded("get_report", at)
        self.ask("delete_report", "DELETE", at, status=204)
        chosen = {
            "target": "payment_type",
            "regression": {"outcome": "shift", "predictors": ["payment_type"]},
            "subgroups": ["shift"],
        }
        self.ask("request_report", "POST", at, status=202, json=chosen)
        self._until_succeeded("get_report", at)

    def evaluate(self, release: str) -> str:
        form = {"guarantee": {"epsilon": "0.5", "delta": "0.000001"}}
        at = f"/v1/releases/{release}/evaluations"
        made = self.ask("request_evaluation", "POST", at, status=202, json=form).json()["id"]
        large = {"guarantee": {"epsilon": "10", "delta": "0.000001"}}
        self.ask("request_evaluation", "POST", at, status=409, json=large)
        self._until_succeeded("get_release", f"/v1/releases/{made}")
        self.ask("get_evaluation", "GET", f"/v1/releases/{made}/evaluation")
        return str(made)

    def publish(self, release: str) -> str:
        """The first is withdrawn; the second stays."""
        form = {
            "release": release,
            "title": "Taxi trips in the city centre, synthetic, 2029",
            "abstract": "Synthetic trips. They keep how shifts, payment and fares go together.",
            "license": "CC-BY-4.0",
            "creators": [{"name": "City statistics office"}],
            "keywords": ["taxi", "mobility"],
        }
        first = self.ask("create_publication", "POST", "/v1/publications", status=201, json=form)
        at = f"/v1/publications/{first.json()['id']}"
        for form_name in ("json", "jsonld", "html"):
            self.ask("list_publications", "GET", f"/v1/publications?format={form_name}")
            self.ask("get_publication", "GET", f"{at}?format={form_name}")
        self.ask("get_publication_bundle", "GET", f"{at}/bundle")
        self.ask("get_publication_file", "GET", f"{at}/files/README.md")
        reason = {"reason": "Column `fare` was published in cents."}
        self.ask("withdraw_publication", "DELETE", at, status=204, json=reason)
        again = self.ask("create_publication", "POST", "/v1/publications", status=201, json=form)
        return str(again.json()["id"])

    def cancel(self, dataset: str) -> str:
        """The last of three has not been claimed yet: it is cancelled and refunded."""
        at = f"/v1/datasets/{dataset}/releases"
        form = {"synthesizer": "mst", "guarantee": {"epsilon": "0.1"}, "rows": 1000}
        made = [
            self.ask("request_release", "POST", at, status=202, json=form).json()["id"]
            for _ in range(3)
        ]
        self.ask("cancel_release", "POST", f"/v1/releases/{made[-1]}/cancel")
        return str(made[-1])

    def books(self, dataset: str) -> None:
        at = f"/v1/datasets/{dataset}"
        tag = self.ask("get_budget", "GET", f"{at}/budget").headers["ETag"]
        change = {"epsilon": "20", "delta": "0.000001", "reason": "A second survey wave."}
        self.ask("set_budget", "PUT", f"{at}/budget", headers={"If-Match": tag}, json=change)
        self.ask("list_ledger", "GET", f"{at}/ledger")
        self.ask("verify_ledger", "GET", f"{at}/ledger/verification")
        self.ask("export_ledger", "GET", f"{at}/ledger/export")
        for form in ("html", "json"):
            self.ask("get_account_statement", "GET", f"{at}/ledger/statement?format={form}")

    def rest(self) -> None:
        self.ask("list_synthesizers", "GET", "/v1/synthesizers")
        self.ask("get_synthesizer", "GET", "/v1/synthesizers/independent")
        self.ask(
            "propose_dictionary",
            "POST",
            "/v1/dictionaries/proposals",
            headers={"Content-Type": "text/csv"},
            content=b"shift,payment_type\n0,Cash\n1,Cash\n2,Credit Card\n",
        )
        doomed = self.dataset({**SPEC, "name": "doomed"}, None)
        self.ask("erase_dataset", "DELETE", f"/v1/datasets/{doomed}")
        self.ask("list_audit", "GET", "/v1/audit?limit=5")
        self.ask("list_signing_keys", "GET", "/v1/keys/signing")
        self.ask("get_health", "GET", "/healthz")
        self.ask("get_readiness", "GET", "/readyz")
        self.ask("get_metrics", "GET", "/metrics")
        self.ask("get_problem_type", "GET", "/problems/budget-exceeded")


def told(folder: Path) -> tuple[Story, Recorder]:
    """Tell the story to a server on a new store, which then ends."""
    with serving(folder, SETTINGS) as live, httpx.Client(base_url=live.url, timeout=90) as http:
        recorder = Recorder(http)
        return Teller(recorder).tell(), recorder


@contextlib.contextmanager
def without_workers(folder: Path) -> Iterator[LiveServer]:
    """A server on a store that was told the story; what it is asked to run stays queued."""
    with serving(folder, {**SETTINGS, "HALFTONE_WORKERS": "0"}) as live:
        yield live


def main(target: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        _, recorder = told(Path(folder))
    text = json.dumps(recorder.found, indent=1, ensure_ascii=False)
    Path(target).write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])

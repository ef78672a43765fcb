"""A store with people and a dataset, its HTTP application, and a worker in this process."""

from __future__ import annotations

import contextlib
import hashlib
import socket
import threading
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import fresh_store
import numpy as np
from bookkeeping import store_no_rows
from pydantic import SecretStr

from app.database import Database, new_id, now
from app.datasets.models import DatasetRow
from app.engine.catalog import registry
from app.engine.privacy.kernel import Kernel
from app.engine.privacy.loss import Accountant, PrivacyLoss
from app.engine.privacy.session import RemoteSession, SessionServer
from app.engine.privacy.source import ArraySource
from app.engine.schema import PrivacyUnit, Schema
from app.engine.table import generator
from app.jobs.executors import executors
from app.jobs.fit import _Admitted
from app.jobs.shutdown import Shutdown
from app.jobs.subjects import OUTCOMES
from app.jobs.worker import Worker
from app.ledger import accounts
from app.ledger.models import GrantRow
from app.main import create_app
from app.queue import jobs
from app.queue.context import JobContext
from app.releases import rendering, repository, samples, service
from app.releases.journal import StoredJournal
from app.sandbox.child import ChildHost
from app.security.bootstrap import ensure_admin
from app.security.keys import digest_of, new_key, prefix_of
from app.security.models import ApiKeyRow, PrincipalRow
from app.settings import Settings
from app.storage.blobs import BlobStore

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it would rather have an httpx that is not yet out
    from starlette.testclient import TestClient

CUSTODIAN_KEY = "hk_" + "c" * 40

COLOURS: dict[str, Any] = {
    "fields": [
        {"name": "id", "type": "string", "role": "entity"},
        {"name": "colour", "type": "string", "constraints": {"enum": ["red", "=green", "b,lue"]}},
        {"name": "size", "type": "integer", "constraints": {"minimum": 0, "maximum": 4}},
        {
            "name": "day",
            "type": "date",
            "constraints": {"minimum": "2024-01-01", "maximum": "2024-01-31"},
        },
    ],
    "missingValues": ["NA"],
}
BY_ROW: dict[str, Any] = {"fields": COLOURS["fields"][1:], "missingValues": ["NA"]}


@dataclass
class World:
    """The application on a store in `folder`; `as_*` are HTTP clients of its people."""

    settings: Settings
    database: Database
    http: TestClient
    keys: dict[str, str] = field(default_factory=dict)

    def client(self, who: str) -> Client:
        return Client(self.http, self.keys[who])

    @property
    def custodian(self) -> Client:
        return self.client("custodian")

    def add_analyst(self, name: str) -> Client:
        return self.add_person(name, "analyst")

    def add_person(self, name: str, *roles: str) -> Client:
        key = new_key()
        with self.database.write() as session:
            person = PrincipalRow(
                id=new_id("pr"),
                name=name,
                is_admin="admin" in roles,
                is_custodian="custodian" in roles,
                is_analyst="analyst" in roles,
                is_auditor="auditor" in roles,
                state="active",
                created_at=now(),
            )
            session.add(person)
            session.flush()
            session.add(
                ApiKeyRow(
                    id=new_id("ky"),
                    principal_id=person.id,
                    label=name,
                    prefix=prefix_of(key),
                    digest=digest_of(key),
                    created_at=now(),
                )
            )
        self.keys[name] = key
        return self.client(name)

    def principal_id(self, who: str) -> str:
        with self.database.read() as session:
            named = session.query(PrincipalRow).filter_by(
                name="admin" if who == "custodian" else who
            )
            return named.one().id

    def grant(
        self,
        dataset_id: str,
        who: str,
        *,
        role: str = "analyst",
        show_budget: bool = False,
        epsilon: int | None = None,
        delta: int | None = None,
    ) -> str:
        with self.database.write() as session:
            grant = GrantRow(
                id=new_id("gr"),
                dataset_id=dataset_id,
                principal_id=self.principal_id(who),
                role=role,
                show_budget=show_budget,
                cap_primary=epsilon,
                cap_delta=delta,
                spent_primary=0,
                spent_delta=0,
                state="active",
                created_at=now(),
            )
            session.add(grant)
        return grant.id

    def add_dataset(
        self,
        *,
        schema: Mapping[str, Any] = BY_ROW,
        unit: Mapping[str, Any] | None = None,
        epsilon: str = "10",
        delta: str = "0.000001",
        delta_for_approximate: str = "0",
        accountant: Accountant = Accountant.BASIC,
        state: str = "ready",
        rows: int | None = 1000,
        report: dict[str, Any] | None = None,
    ) -> str:
        """A private dataset whose data are said to be there (a test hands the rows to `run`)."""
        dataset_id, owner = new_id("ds"), self.principal_id("custodian")
        with self.database.write() as session:
            account = accounts.open_account(
                session,
                owner_id=owner,
                dataset_id=dataset_id,
                unit_kind="row" if unit is None else "entity",
                budget_epsilon=Decimal(epsilon),
                budget_delta=Decimal(delta),
                accountant=accountant,
                delta_for_approximate=Decimal(delta_for_approximate),
            )
            session.add(
                DatasetRow(
                    id=dataset_id,
                    owner_id=owner,
                    account_id=account.id,
                    name="colours",
                    visibility="private",
                    state=state,
                    closed=False,
                    schema=dict(schema),
                    unit=dict(unit or {"kind": "row"}),
                    max_total_rows=100_000,
                    file_options={},
                    created_at=now(),
                    ready_at=now() if state == "ready" else None,
                    rows=rows,
                    ingest_report=report,
                )
            )
            store_no_rows(session, dataset_id)
        return dataset_id

    def claim(self) -> JobContext:
        """Take the next job as a worker does."""
        with self.database.write() as session:
            claim = jobs.claim(session, "worker-1", 60)
        assert claim is not None
        return JobContext(self.database, self.settings, claim, service.progressed)

    def work(self, host: ChildHost) -> None:
        """Do every job that waits with the service's own executors."""
        worker = Worker(self.database, self.settings, executors(host), OUTCOMES, Shutdown(0))
        while (claim := worker.next_claim()) is not None:
            worker.run(claim)

    def run_fit(self, source: ArraySource) -> str:
        """Do the next fit job over a pipe, as a worker does; the release's id."""
        context = self.claim()
        release_id = context.subject_id
        with context.fenced() as session:
            service.started(session, release_id)
            release = repository.release(session, release_id)
        loss = PrivacyLoss(release.loss_kind, release.loss_amount, release.loss_delta)  # type: ignore[arg-type]
        synthesizer = registry.builtin(release.synthesizer)
        params = synthesizer.Params.model_validate(release.params)
        ours, theirs = socket.socketpair()

        def child() -> None:
            session = RemoteSession(theirs)
            model = synthesizer.fit(session, params, None, release.seed, session.progress)
            session.finish(model.dump())

        with ours, theirs:
            thread = threading.Thread(target=child)
            server: Any = SessionServer(
                ours, Kernel(source, loss), StoredJournal(context), context.progress
            )
            thread.start()
            model = server.run()
            thread.join()
        BlobStore(self.database).write(release_id, "model", [model], unit=context.fenced)
        made = self._store(
            context,
            release,
            samples.first_id(release_id),
            release.rows,
            samples.first_seed(release),
        )
        certificate = _Admitted.read(context).certificate(source.unit, StoredJournal(context))
        with context.fenced() as session:
            context.flush(session)
            service.succeeded(session, release_id, certificate=certificate.to_wire(), sample=made)
            jobs.finish(session, context.claim, "succeeded")
        return release_id

    def run_sample(self) -> str:
        """Do the next sample job; the sample's id."""
        context = self.claim()
        with context.fenced() as session:
            samples.started(session, context.subject_id)
            sample = repository.sample(session, context.subject_id)
            release = repository.release(session, sample.release_id)
        made = self._store(context, release, sample.id, sample.rows, sample.seed, sample.kind)
        with context.fenced() as session:
            samples.succeeded(session, sample.id, made)
            jobs.finish(session, context.claim, "succeeded")
        return sample.id

    def _store(
        self,
        context: JobContext,
        release: Any,
        sample_id: str,
        rows: int | None,
        seed: int,
        kind: str = "rows",
    ) -> samples.Made:
        with self.database.read() as session:
            dataset = session.get_one(DatasetRow, release.dataset_id)
        schema, unit = Schema.parse(dataset.schema), PrivacyUnit.parse(dataset.unit)
        data = BlobStore(self.database).read_all(release.id, "model")
        model: Any = registry.builtin(release.synthesizer).load(schema, unit, data)
        if kind == "counts":
            counts = model.counts()
            pieces, made_rows = rendering.write_counts(counts, schema), counts.values.size
        else:
            table = model.sample(rows, generator(seed))
            pieces, made_rows = rendering.write_rows([table], schema, unit), table.rows
        parquet = b"".join(pieces)
        BlobStore(self.database).write(sample_id, "parquet", [parquet], unit=context.fenced)
        return samples.Made(made_rows, len(parquet), hashlib.sha256(parquet).hexdigest())


@dataclass
class Client:
    """Requests as one person."""

    http: TestClient
    key: str

    def request(self, method: str, path: str, **options: Any) -> Any:
        headers = {"Authorization": f"Bearer {self.key}", **options.pop("headers", {})}
        return self.http.request(method, path, headers=headers, **options)

    def get(self, path: str, **options: Any) -> Any:
        return self.request("GET", path, **options)

    def post(self, path: str, body: Any = None, **options: Any) -> Any:
        return self.request("POST", path, json=body, **options)

    def release(self, dataset_id: str, **changes: Any) -> Any:
        return self.post(f"/v1/datasets/{dataset_id}/releases", wanted(**changes))


def wanted(**changes: Any) -> dict[str, Any]:
    """The body of a small release, with changes."""
    return {
        "synthesizer": "histogram",
        "params": {"columns": ["colour", "size"]},
        "guarantee": {"epsilon": "1"},
        **changes,
    }


def colours(rows: int, seed: int = 0, *, entities: int | None = None) -> ArraySource:
    """Rows of `BY_ROW`, or of `COLOURS` for a number of entities."""
    rng = np.random.default_rng(seed)
    wire = BY_ROW if entities is None else COLOURS
    schema = Schema.parse(wire)
    unit = PrivacyUnit("row") if entities is None else PrivacyUnit("entity", "id", 3)
    codes = {column.name: rng.integers(0, column.codes, rows) for column in schema.columns}
    owners = None if entities is None else rng.integers(0, entities, rows)
    return ArraySource(schema, unit, codes, owners)


@contextlib.contextmanager
def world(folder: Path, monkeypatch: Any, **settings: Any) -> Iterator[World]:
    """A fresh store."""
    monkeypatch.setattr("app.migrate.to_head", fresh_store.to_head)
    chosen = Settings(data=folder, admin_key=SecretStr(CUSTODIAN_KEY), workers=0, **settings)
    app = create_app(chosen)
    with TestClient(app, raise_server_exceptions=False) as http:
        database: Database = app.state.database
        ensure_admin(database, chosen)
        yield World(chosen, database, http, {"custodian": CUSTODIAN_KEY})

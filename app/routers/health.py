"""Liveness, readiness, metrics: nothing in them depends on private rows."""

from __future__ import annotations

import shutil
from typing import Annotated, Protocol

from fastapi import APIRouter, Depends, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Gauge, generate_latest
from pydantic import BaseModel, Field

from app.database import MOVED_AWAY
from app.datasets.master_key import require_same_key
from app.ledger.verification import unbalanced_accounts
from app.problems import StorageFull, Unavailable
from app.queue import jobs
from app.routers.dependencies import DatabaseDep, ReadSession, SettingsDep
from app.routers.description import refusing
from app.routers.docs import VERSION
from app.routers.wire import ExactRoute
from app.storage.blobs import CHUNK_BYTES
from app.storage.encryption import Keyring

# Two of the largest chunks: with less, an upload or a release is about to fail.
LEAST_ROOM_BYTES = 2 * CHUNK_BYTES


class Supervised(Protocol):
    """How the chores are doing that run beside the server."""

    def in_trouble(self) -> list[str]: ...
    def failures(self) -> dict[str, int]: ...


async def get_supervised(request: Request) -> Supervised | None:
    supervised: Supervised | None = request.app.state.supervised
    return supervised


SupervisedDep = Annotated[Supervised | None, Depends(get_supervised)]

router = APIRouter(tags=["health"], route_class=ExactRoute)

# Succeeded and failed are one phase, because a failure may depend on private rows.
_PHASES = {"queued": "queued", "running": "running", "cancelling": "running"}


class Health(BaseModel):
    """The process answers."""

    state: str = Field(description="Always `ok`.", examples=["ok"])
    version: str = Field(description="Version of the service.", examples=["0.1.0"])


class Readiness(BaseModel):
    """The store can be read and its ledgers add up."""

    state: str = Field(
        description="Always `ready`; otherwise the status is 503 or 507.", examples=["ready"]
    )
    version: str = Field(description="Version of the service.", examples=["0.1.0"])
    sqlite: str = Field(description="Version of the SQLite library.", examples=["3.40.1"])
    checkpoints: str = Field(
        description="How the write-ahead log is checkpointed.", examples=["one writer held off"]
    )


@router.get("/healthz", operation_id="get_health", summary="Is the process alive?")
def health() -> Health:
    """Responds as long as the process runs; the store is not read."""
    return Health(state="ok", version=VERSION)


@router.get(
    "/readyz",
    operation_id="get_readiness",
    summary="Can the service take requests?",
    responses=refusing(503, 507),
)
def ready(
    database: DatabaseDep, session: ReadSession, settings: SettingsDep, supervised: SupervisedDep
) -> Readiness:
    """Reads the store: 503 if that fails, if its file was moved away, if it is sealed under another
    master key, if a ledger does not add up, or if a chore of this server keeps failing; 507 if the
    disk is full."""
    if not database.is_in_place():
        raise Unavailable(MOVED_AWAY, retry_after_s=60)
    require_same_key(session, Keyring(settings))
    if shutil.disk_usage(database.path.parent).free < LEAST_ROOM_BYTES:
        raise StorageFull
    trouble = [] if supervised is None else supervised.in_trouble()
    if trouble:
        raise Unavailable(
            f"Maintenance keeps failing: {', '.join(trouble)}. The log of the server says why.",
            retry_after_s=60,
        )
    if unbalanced_accounts(session):
        raise Unavailable(
            "A ledger does not add up: run `halftone verify` on the server.", retry_after_s=60
        )
    return Readiness(
        state="ready",
        version=VERSION,
        sqlite=database.sqlite_version(),
        checkpoints="one connection, with every writer held off",
    )


@router.get(
    "/metrics",
    operation_id="get_metrics",
    summary="Metrics in Prometheus's text form",
    response_class=Response,
    responses={
        200: {"content": {"text/plain": {"schema": {"type": "string"}}}},
        **refusing(503),
    },
)
def metrics(session: ReadSession, supervised: SupervisedDep) -> Response:
    """Jobs by kind and phase, from the store, so that every server process gives the same figures;
    and how the chores of this process are doing.

    How a job ended, and the size of anything, may depend on private rows: neither is shown.
    """
    registry = CollectorRegistry()
    gauge = Gauge("halftone_jobs", "Jobs by kind and phase.", ["kind", "phase"], registry=registry)
    for kind, state, number in jobs.tally(session):
        gauge.labels(kind, _PHASES.get(state, "ended")).inc(number)
    if supervised is not None:
        _add_chores(registry, supervised)
    return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)


def _add_chores(registry: CollectorRegistry, supervised: Supervised) -> None:
    failed = Gauge(
        "halftone_chore_failures",
        "How often each chore of this process has failed since its start.",
        ["chore"],
        registry=registry,
    )
    failing = Gauge(
        "halftone_chore_in_trouble",
        "1 for a chore that keeps failing.",
        ["chore"],
        registry=registry,
    )
    trouble = supervised.in_trouble()
    for name, number in supervised.failures().items():
        failed.labels(name).set(number)
        failing.labels(name).set(name in trouble)

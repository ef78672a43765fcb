"""`create_app()`: wiring and lifespan, nothing else."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager

import anyio
from fastapi import FastAPI

from app import migrate
from app.database import Database
from app.datasets.master_key import require_master_key
from app.erasure import finish_interrupted
from app.integrity.sealing import prepare_secrets
from app.ledger.marks import Marks
from app.problems import Unavailable
from app.releases.catalogue import Catalogue
from app.releases.refusals import HiddenRefusals
from app.routers import (
    bodies,
    bundles,
    datasets,
    description,
    docs,
    errors,
    grants,
    health,
    keys,
    ledger,
    principals,
    publications,
    releases,
    reports,
    samples,
    synthesizers,
)
from app.routers.anonymous import AnonymousFirst, AnonymousReaders
from app.routers.health import Supervised
from app.routers.writing import WriteQueue
from app.security.authentication import FailureLimit
from app.security.bootstrap import announce_admin
from app.settings import Settings, get_settings
from app.signing import keys as signing_keys
from app.storage.encryption import Keyring

# What runs in parallel to the application, from its start to its end, and tells how it is.
Companion = Callable[[Settings], AbstractContextManager[Supervised | None]]

log = logging.getLogger("halftone.server")


def __getattr__(name: str) -> FastAPI:
    """`uvicorn app.main:app` serves with workers, as `halftone serve` does."""
    if name != "app":
        raise AttributeError(name)
    from app.supervision import supervision

    return create_app(companion=supervision)


def nothing_beside(_: Settings) -> AbstractContextManager[None]:
    """No companion: workers and maintenance run elsewhere, or not at all."""
    return contextlib.nullcontext()


def create_app(settings: Settings | None = None, companion: Companion = nothing_beside) -> FastAPI:
    """The HTTP application on the store of the settings; `companion` may run its workers."""
    settings = settings or get_settings()
    app = FastAPI(
        title="Halftone",
        version=docs.VERSION,
        summary=description.SUMMARY,
        description=description.DESCRIPTION,
        root_path=settings.root_path,
        docs_url=None,
        redoc_url=None,
        openapi_url="/openapi.json",
        # A redirect would make clients send keys and uploads twice.
        redirect_slashes=False,
        lifespan=_lifespan,
    )
    app.state.settings = settings
    app.state.companion = companion
    app.state.supervised = None
    app.state.keyring = Keyring(settings)
    app.state.catalogue = Catalogue(settings)
    app.state.refusals = HiddenRefusals()
    app.state.anonymous = AnonymousReaders(settings)
    app.state.failures = FailureLimit(settings.auth_failures, settings.auth_window_s)
    errors.install(app)
    app.add_middleware(AnonymousFirst, readers=app.state.anonymous)
    app.add_middleware(bodies.BoundedBodies, settings=settings)
    for module in (
        datasets,
        ledger,
        releases,
        samples,
        bundles,
        reports,
        publications,
        synthesizers,
        grants,
        principals,
        keys,
        health,
        docs,
    ):
        # As they are: `include_router` would have each application, at its first requests, build
        # anew what every route of the router has had since its import.
        app.router.routes.extend(module.router.routes)
    docs.install(app)
    return app


@contextlib.asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    settings: Settings = app.state.settings
    await anyio.to_thread.run_sync(migrate.to_head, settings.url)
    database = Database(settings.url, busy_timeout_s=settings.busy_timeout_s)
    app.state.database = database
    # Before a key is announced or an account is touched.
    await anyio.to_thread.run_sync(require_master_key, database, settings)
    app.state.writes = WriteQueue(database)
    app.state.request_key = await anyio.to_thread.run_sync(
        prepare_secrets, database, app.state.keyring
    )
    marks = await anyio.to_thread.run_sync(Marks.of, database, app.state.keyring)
    marks.follow(database)
    await anyio.to_thread.run_sync(signing_keys.prepare, database, app.state.keyring)
    await anyio.to_thread.run_sync(announce_admin, database, settings)
    # Before the first request: an erasure that was interrupted must be complete.
    await anyio.to_thread.run_sync(_finish_erasures, database, settings)
    try:
        async with _companion(app), releases.event_feed(app):
            yield
    finally:
        database.close()


def _finish_erasures(database: Database, settings: Settings) -> None:
    try:
        finish_interrupted(database, settings)
    except Unavailable as error:
        # A service on a full disk must start, so that something can be erased.
        log.warning("an erasure will be finished later: %s", error.title)


@contextlib.asynccontextmanager
async def _companion(app: FastAPI) -> AsyncIterator[None]:
    companion = app.state.companion(app.state.settings)
    app.state.supervised = await anyio.to_thread.run_sync(companion.__enter__)
    try:
        yield
    finally:
        await anyio.to_thread.run_sync(companion.__exit__, None, None, None)

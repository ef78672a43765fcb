"""`halftone serve`: the HTTP server, its workers and the store's maintenance, in one command."""

from __future__ import annotations

import contextlib
import ipaddress
import logging
import signal
import socket
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import uvicorn

from app import migrate
from app.bounded_http import BoundedHttp
from app.database import Database
from app.datasets.master_key import require_master_key
from app.main import create_app
from app.security.bootstrap import preset_key
from app.settings import Settings
from app.storage.encryption import Keyring
from app.supervision import Supervision, supervision

log = logging.getLogger("halftone.server")


class AddressTaken(OSError):
    """The server cannot listen at the address of its settings."""


def serve(settings: Settings) -> None:
    """Migrate, start workers, and serve until SIGTERM or SIGINT.

    Raises `BadAdminKey`, `BadMasterKey` or `AddressTaken` before the store is touched, and
    `WrongMasterKey` before it is used.
    On a stop, no new work is started; running jobs have `drain_s` to end, and the rest are queued
    again for the next start.
    """
    logging.basicConfig(level=settings.log_level, format="%(levelname)s %(name)s: %(message)s")
    # Bad keys and a taken port are reported before the store is touched.
    preset_key(settings)
    Keyring(settings)
    with _listen(settings) as listener:
        migrate.to_head(settings.url)
        with contextlib.closing(Database(settings.url)) as database:
            require_master_key(database, settings)
        with supervision(settings) as beside:
            configuration = _configuration(settings, beside)
            server = _Server(configuration, listener, on_stop=beside.pool.stop_claiming)
            with _signals_after(server):
                server.run(sockets=[listener])


def _listen(settings: Settings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        return socket.create_server((settings.host, settings.port), family=family, backlog=2048)
    except OSError as error:
        where = f"{settings.host} port {settings.port}"
        raise AddressTaken(f"cannot listen on {where}: {error.strerror}") from error


def _configuration(settings: Settings, beside: Supervision) -> uvicorn.Config:
    return uvicorn.Config(
        create_app(settings, companion=lambda _: contextlib.nullcontext(beside)),
        http=BoundedHttp,
        # No route speaks WebSocket; its handshake would have limits of its own.
        ws="none",
        proxy_headers=bool(settings.trusted_proxies),
        forwarded_allow_ips=list(settings.trusted_proxies),
        server_header=False,
        log_level=settings.log_level.lower(),
        timeout_graceful_shutdown=max(1, round(settings.drain_s)),
    )


class _Server(uvicorn.Server):
    """Prints its address when it listens, and stops the workers first when it is stopped."""

    def __init__(
        self, config: uvicorn.Config, listener: socket.socket, on_stop: Callable[[], None]
    ) -> None:
        super().__init__(config)
        self._listener = listener
        self._on_stop = on_stop

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            host, port = self._listener.getsockname()[:2]
            _warn_without_tls(host)
            shown = f"[{host}]" if ":" in host else host
            print(f"Halftone is ready at http://{shown}:{port}", flush=True)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._on_stop()
        super().handle_exit(sig, frame)


def _warn_without_tls(host: str) -> None:
    if not ipaddress.ip_address(host).is_loopback:
        log.warning(
            "listening on %s without TLS: keys and data can be read in transit."
            " Put a proxy with TLS in front.",
            host,
        )


@contextlib.contextmanager
def _signals_after(server: _Server) -> Iterator[None]:
    """Ignore the signal that uvicorn raises again after its end; it has already been obeyed."""
    previous: dict[signal.Signals, Any] = {}
    for number in (signal.SIGTERM, signal.SIGINT):
        # uvicorn restores these handlers at its end and raises the signal again; the default
        # handlers would kill the process.
        previous[number] = signal.signal(number, server.handle_exit)
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)

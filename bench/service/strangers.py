"""What the bodies of strangers cost: memory of the server, and how long it holds them.

    .venv/bin/python -m bench.service.strangers

Many connections without a key each declare a body, send nearly all of it and then nothing. Shown
are the growth of the server's memory above one warm request, while all connections are there, and
how many of them the service has answered with 401 and closed.
"""

from __future__ import annotations

import argparse
import selectors
import socket
import tempfile
import time
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import psutil

from bench.service.running import serving

CONNECTIONS = 200
BODY_BYTES = 999_000
HEAD = (
    b"POST /v1/principals HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\n"
    b"Content-Length: %d\r\n\r\n" % BODY_BYTES
)
WATCHED_S = 8.0


def measure(connections: int) -> dict[str, float]:
    with (
        tempfile.TemporaryDirectory() as folder,
        serving(Path(folder), workers=0) as (url, process),
    ):
        httpx.get(f"{url}/readyz").raise_for_status()
        server = psutil.Process(process.pid)
        before = server.memory_info().rss
        address = urlsplit(url)
        opened = [
            socket.create_connection((address.hostname, address.port)) for _ in range(connections)
        ]
        begun, most, answered, closed, last_s = time.monotonic(), before, 0, 0, 0.0
        with selectors.DefaultSelector() as selector:
            for each in opened:
                each.setblocking(False)
                selector.register(
                    each, selectors.EVENT_READ | selectors.EVENT_WRITE, [HEAD + b"{" * BODY_BYTES]
                )
            while time.monotonic() < begun + WATCHED_S and selector.get_map():
                for key, events in selector.select(0.1):
                    assert isinstance(key.fileobj, socket.socket)
                    each, rest = key.fileobj, key.data
                    try:
                        if events & selectors.EVENT_READ:
                            said = each.recv(65536)
                            answered += said.startswith(b"HTTP/1.1 401 ")
                            if not said:
                                raise ConnectionError
                        # The last byte never comes.
                        if events & selectors.EVENT_WRITE and len(rest[0]) > 1:
                            rest[0] = rest[0][each.send(rest[0][:-1]) :]
                        if len(rest[0]) == 1:
                            selector.modify(each, selectors.EVENT_READ, rest)
                    except OSError:
                        closed, last_s = closed + 1, time.monotonic() - begun
                        selector.unregister(each)
                most = max(most, server.memory_info().rss)
        for each in opened:
            each.close()
    return {
        "connections": connections,
        "grown by, MB": (most - before) / 1e6,
        "answered 401": answered,
        "closed": closed,
        "last closed after, s": last_s,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.service.strangers",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--connections", type=int, default=CONNECTIONS)
    arguments = parser.parse_args()
    for name, value in measure(arguments.connections).items():
        print(f"{name}: {value:.1f}" if isinstance(value, float) else f"{name}: {value}")


if __name__ == "__main__":
    main()

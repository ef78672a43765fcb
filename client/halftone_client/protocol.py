"""The protocol without the waiting: flows yield what to do next and are handed what came of it.

A flow is a generator of steps (`Exchange`, `Pause`). The blocking and the asyncio client each
drive the same flows, so that what is sent, retried, and raised is written once.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, BinaryIO, TypeVar
from urllib.parse import quote

import httpx

from halftone_client import wire
from halftone_client.errors import ServiceUnreachable, refusal, retry_after_s
from halftone_client.sources import FileStream, Source, length_of

T = TypeVar("T")
Write = Callable[[bytes], Any]
Sink = Callable[[], AbstractContextManager[Write]]


@dataclass(frozen=True, slots=True)
class Exchange:
    """Send the request; the answer is its response, read in full or written to `write`."""

    request: httpx.Request
    write: Write | None = None


@dataclass(frozen=True, slots=True)
class Pause:
    """Let this much time pass."""

    seconds: float


Flow = Generator[Exchange | Pause, Any, T]


@dataclass(frozen=True, slots=True)
class Body:
    """What a call sends: JSON, a table, or (multipart, the spec before the file) both."""

    json: Any = None
    source: Source | None = None

    @contextmanager
    def request(
        self, method: str, url: str, params: Mapping[str, Any], headers: Mapping[str, str]
    ) -> Iterator[httpx.Request]:
        """The request, its table opened for as long as the block lasts."""
        if self.source is None:
            content = None if self.json is None else wire.encode(self.json)
            sent = dict(headers) if content is None else {**headers, "Content-Type": _JSON}
            yield httpx.Request(method, url, params=params, headers=sent, content=content)
            return
        with self.source.open() as file:
            if self.json is None:
                request = httpx.Request(
                    method, url, params=params, headers={**headers, **_raw(self.source, file)}
                )
                request.stream = FileStream(file)
            else:
                parts: dict[str, tuple[str | None, BinaryIO | bytes, str]] = {
                    "spec": (None, wire.encode(self.json), _JSON),
                    "file": (self.source.name, file, self.source.content_type),
                }
                request = httpx.Request(method, url, params=params, headers=headers, files=parts)
            yield request

    @property
    def repeatable(self) -> bool:
        return self.source is None or self.source.repeatable


_JSON = "application/json"


def _raw(source: Source, file: BinaryIO) -> dict[str, str]:
    length = length_of(file)
    framing = (
        {"Transfer-Encoding": "chunked"} if length is None else {"Content-Length": str(length)}
    )
    return {"Content-Type": source.content_type, **framing}


@dataclass(frozen=True, slots=True)
class Call:
    """One operation of the service.

    `makes` sends an idempotency key, the same on every attempt. `repeatable` says that a
    second attempt does no harm when nobody knows what became of the first.
    """

    method: str
    path: str
    body: Body = Body()
    params: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    makes: bool = False
    repeatable: bool = True
    sink: Sink | None = None


@dataclass(frozen=True, slots=True)
class Retry:
    """How often and how patiently a call is tried again."""

    attempts: int = 5
    first_pause_s: float = 0.5
    longest_pause_s: float = 30.0

    def pause_s(self, attempt: int, asked_s: float | None) -> float:
        """Seconds to wait after attempt `attempt` (from 1).

        As long as the service says, otherwise doubled each time, with jitter.
        """
        if asked_s is not None:
            return asked_s
        backoff = min(self.first_pause_s * 2 ** (attempt - 1), self.longest_pause_s)
        return float(backoff * random.uniform(0.5, 1.0))


@dataclass(frozen=True, slots=True, repr=False)
class Service:
    """Where the service is and how to call it. The key stays out of its `repr`."""

    base_url: str
    key: str | None
    retry: Retry

    def call(self, call: Call) -> Flow[httpx.Response]:
        """The successful response, after as many attempts as are safe and useful.

        Raises a `RequestRefused` for any other answer, `ServiceUnreachable` for none.
        """
        headers = self._headers(call)
        attempt = 0
        may_have_arrived = False
        while True:
            attempt += 1
            is_last = attempt >= self.retry.attempts
            try:
                response = yield from self._attempt(call, headers)
            except httpx.TransportError as error:
                if is_last or not _may_repeat(call, error):
                    raise ServiceUnreachable(f"{self.base_url} did not answer: {error}") from error
                may_have_arrived = may_have_arrived or not _never_sent(error)
                yield Pause(self.retry.pause_s(attempt, None))
                continue
            if response.is_success:
                return response
            if may_have_arrived and call.method == "DELETE" and response.status_code == 404:
                return response
            asked_s = retry_after_s(response)
            if is_last or not self._is_worth_repeating(call, response.status_code, asked_s):
                raise refusal(response)
            yield Pause(self.retry.pause_s(attempt, asked_s))

    def _attempt(self, call: Call, headers: Mapping[str, str]) -> Flow[httpx.Response]:
        url = self.base_url + call.path
        params = {name: value for name, value in call.params.items() if value is not None}
        opened_sink = nullcontext() if call.sink is None else call.sink()
        with call.body.request(call.method, url, params, headers) as request, opened_sink as write:
            response: httpx.Response = yield Exchange(request, write)
            return response

    def _headers(self, call: Call) -> dict[str, str]:
        headers = {"Accept": "*/*", **call.headers}
        if self.key is not None:
            headers["Authorization"] = f"Bearer {self.key}"
        if call.makes:
            headers["Idempotency-Key"] = str(uuid.uuid4())
        return headers

    def _is_worth_repeating(self, call: Call, status: int, asked_s: float | None) -> bool:
        if not call.body.repeatable or (asked_s or 0.0) > self.retry.longest_pause_s:
            return False
        if status in {429, 503}:
            return True
        return status in {502, 504} and call.repeatable

    def get(self, path: str, **params: Any) -> Flow[Any]:
        """The decoded body of a GET."""
        return wire.decode((yield from self.call(Call("GET", path, params=params))))

    def post(self, path: str, body: Any, *, makes: bool) -> Flow[Any]:
        """The decoded body of a POST."""
        call = Call("POST", path, Body(json=body), makes=makes)
        return wire.decode((yield from self.call(call)))

    def delete(self, path: str, **params: Any) -> Flow[None]:
        yield from self.call(Call("DELETE", path, params=params))

    def items(self, path: str, **params: Any) -> Flow[list[Any]]:
        """Every item of a list, page after page."""
        found: list[Any] = []
        cursor = None
        while True:
            page = yield from self.get(path, limit=200, cursor=cursor, **params)
            found += page["items"]
            cursor = page["next"]
            if cursor is None:
                return found


def path_to(*parts: str) -> str:
    """`/v1/...` of path segments, each quoted, so that no id can leave its place."""
    return "/v1/" + "/".join(quote(part, safe="") for part in parts)


def _may_repeat(call: Call, error: httpx.TransportError) -> bool:
    """A request that never left may always go again; another only if repeating does no harm."""
    if not call.body.repeatable:
        return False
    is_lasting = isinstance(error, httpx.UnsupportedProtocol)
    return not is_lasting and (_never_sent(error) or call.repeatable)


def _never_sent(error: httpx.TransportError) -> bool:
    return isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout)

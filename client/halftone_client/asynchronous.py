"""`AsyncHalftone`: the client for asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

import httpx

from halftone_client import flows
from halftone_client.protocol import Exchange, Flow, Pause, Retry, Service

P = ParamSpec("P")
T = TypeVar("T")


def _awaited(
    flow: Callable[Concatenate[Service, P], Flow[T]],
) -> Callable[Concatenate[AsyncHalftone, P], Coroutine[Any, Any, T]]:
    """The flow as a coroutine method."""

    @wraps(flow)
    async def method(client: AsyncHalftone, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await client._drive(flow(client._service, *args, **kwargs))

    return method


class AsyncHalftone:
    """A service at `base_url`, spoken to with an API key: `Halftone` with every method awaited.

    Close it with `aclose`, or use it as an asynchronous context manager.
    """

    def __init__(
        self,
        base_url: str,
        key: str | None = None,
        *,
        timeout_s: float = 60.0,
        retry: Retry | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._service = Service(base_url.rstrip("/"), key, retry or Retry())
        self._http = httpx.AsyncClient(timeout=timeout_s, transport=transport)

    datasets = _awaited(flows.datasets.datasets)
    dataset = _awaited(flows.datasets.dataset)
    create_dataset = _awaited(flows.datasets.create_dataset)
    upload = _awaited(flows.datasets.upload)
    put_data = _awaited(flows.datasets.put_data)
    rename_dataset = _awaited(flows.datasets.rename_dataset)
    delete_dataset = _awaited(flows.datasets.delete_dataset)
    schema = _awaited(flows.datasets.schema)
    budget = _awaited(flows.datasets.budget)
    set_budget = _awaited(flows.datasets.set_budget)
    ledger = _awaited(flows.datasets.ledger)
    verify_ledger = _awaited(flows.datasets.verify_ledger)
    export_ledger = _awaited(flows.datasets.export_ledger)
    account_statement = _awaited(flows.datasets.account_statement)
    save_account_statement = _awaited(flows.datasets.save_account_statement)
    ingest_report = _awaited(flows.datasets.ingest_report)
    propose_dictionary = _awaited(flows.datasets.propose_dictionary)
    import_dictionary = _awaited(flows.datasets.import_dictionary)

    synthesizers = _awaited(flows.releases.synthesizers)
    synthesizer = _awaited(flows.releases.synthesizer)
    preflight = _awaited(flows.releases.preflight)
    release = _awaited(flows.releases.release)
    releases = _awaited(flows.releases.releases)
    get_release = _awaited(flows.releases.get_release)
    cancel = _awaited(flows.releases.cancel)
    set_visibility = _awaited(flows.releases.set_visibility)
    sample = _awaited(flows.releases.sample)
    samples = _awaited(flows.releases.samples)
    get_sample = _awaited(flows.releases.get_sample)
    delete_sample = _awaited(flows.releases.delete_sample)
    download = _awaited(flows.releases.download)
    save = _awaited(flows.releases.save)
    measurements = _awaited(flows.releases.measurements)
    certificate = _awaited(flows.releases.certificate)
    save_bundle = _awaited(flows.releases.save_bundle)
    signing_keys = _awaited(flows.releases.signing_keys)
    statement = _awaited(flows.releases.statement)
    evaluate = _awaited(flows.releases.evaluate)
    evaluation = _awaited(flows.releases.evaluation)

    report = _awaited(flows.reports.report)
    report_page = _awaited(flows.reports.report_page)
    make_report = _awaited(flows.reports.make_report)
    delete_report = _awaited(flows.reports.delete_report)

    publish = _awaited(flows.publications.publish)
    publications = _awaited(flows.publications.publications)
    publication = _awaited(flows.publications.publication)
    save_publication = _awaited(flows.publications.save_publication)
    withdraw = _awaited(flows.publications.withdraw)

    wait = _awaited(flows.waiting.wait)

    me = _awaited(flows.people.me)
    principals = _awaited(flows.people.principals)
    create_principal = _awaited(flows.people.create_principal)
    change_principal = _awaited(flows.people.change_principal)
    keys = _awaited(flows.people.keys)
    create_key = _awaited(flows.people.create_key)
    revoke_key = _awaited(flows.people.revoke_key)
    grants = _awaited(flows.people.grants)
    grant = _awaited(flows.people.grant)
    change_grant = _awaited(flows.people.change_grant)
    revoke_grant = _awaited(flows.people.revoke_grant)
    audit = _awaited(flows.people.audit)

    async def aclose(self) -> None:
        """Close the connections. The client can't be used afterwards."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def _drive(self, flow: Flow[T]) -> T:
        """Do what the flow asks for, step by step, until it returns."""
        try:
            step = next(flow)
            while True:
                try:
                    answer = await self._do(step)
                except httpx.TransportError as error:
                    step = flow.throw(error)
                else:
                    step = flow.send(answer)
        except StopIteration as end:
            result: T = end.value
            return result
        finally:
            flow.close()

    async def _do(self, step: Exchange | Pause) -> httpx.Response | None:
        if isinstance(step, Pause):
            await asyncio.sleep(step.seconds)
            return None
        response = await self._http.send(step.request, stream=True)
        try:
            if step.write is None or not response.is_success:
                await response.aread()
            else:
                async for chunk in response.aiter_bytes():
                    step.write(chunk)
        finally:
            await response.aclose()
        return response

"""`Halftone`: the client for scripts and notebooks."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import wraps
from types import TracebackType
from typing import Concatenate, ParamSpec, Self, TypeVar

import httpx

from halftone_client import flows
from halftone_client.protocol import Exchange, Flow, Pause, Retry, Service

P = ParamSpec("P")
T = TypeVar("T")


def _blocking(
    flow: Callable[Concatenate[Service, P], Flow[T]],
) -> Callable[Concatenate[Halftone, P], T]:
    """The flow as a method that returns when it is through."""

    @wraps(flow)
    def method(client: Halftone, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return client._drive(flow(client._service, *args, **kwargs))

    return method


class Halftone:
    """A service at `base_url`, spoken to with an API key; without one,
    only what is published can be read.

    Every method blocks until its answer is there. What makes something is safe to repeat and
    is repeated when the connection breaks. One client may be shared by threads. Close it, or
    use it as a context manager.
    """

    def __init__(
        self,
        base_url: str,
        key: str | None = None,
        *,
        timeout_s: float = 60.0,
        retry: Retry | None = None,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self._service = Service(base_url.rstrip("/"), key, retry or Retry())
        self._http = httpx.Client(timeout=timeout_s, transport=transport)

    datasets = _blocking(flows.datasets.datasets)
    dataset = _blocking(flows.datasets.dataset)
    create_dataset = _blocking(flows.datasets.create_dataset)
    upload = _blocking(flows.datasets.upload)
    put_data = _blocking(flows.datasets.put_data)
    rename_dataset = _blocking(flows.datasets.rename_dataset)
    delete_dataset = _blocking(flows.datasets.delete_dataset)
    schema = _blocking(flows.datasets.schema)
    budget = _blocking(flows.datasets.budget)
    set_budget = _blocking(flows.datasets.set_budget)
    ledger = _blocking(flows.datasets.ledger)
    verify_ledger = _blocking(flows.datasets.verify_ledger)
    export_ledger = _blocking(flows.datasets.export_ledger)
    account_statement = _blocking(flows.datasets.account_statement)
    save_account_statement = _blocking(flows.datasets.save_account_statement)
    ingest_report = _blocking(flows.datasets.ingest_report)
    propose_dictionary = _blocking(flows.datasets.propose_dictionary)
    import_dictionary = _blocking(flows.datasets.import_dictionary)

    synthesizers = _blocking(flows.releases.synthesizers)
    synthesizer = _blocking(flows.releases.synthesizer)
    preflight = _blocking(flows.releases.preflight)
    release = _blocking(flows.releases.release)
    releases = _blocking(flows.releases.releases)
    get_release = _blocking(flows.releases.get_release)
    cancel = _blocking(flows.releases.cancel)
    set_visibility = _blocking(flows.releases.set_visibility)
    sample = _blocking(flows.releases.sample)
    samples = _blocking(flows.releases.samples)
    get_sample = _blocking(flows.releases.get_sample)
    delete_sample = _blocking(flows.releases.delete_sample)
    download = _blocking(flows.releases.download)
    save = _blocking(flows.releases.save)
    measurements = _blocking(flows.releases.measurements)
    certificate = _blocking(flows.releases.certificate)
    save_bundle = _blocking(flows.releases.save_bundle)
    signing_keys = _blocking(flows.releases.signing_keys)
    statement = _blocking(flows.releases.statement)
    evaluate = _blocking(flows.releases.evaluate)
    evaluation = _blocking(flows.releases.evaluation)

    report = _blocking(flows.reports.report)
    report_page = _blocking(flows.reports.report_page)
    make_report = _blocking(flows.reports.make_report)
    delete_report = _blocking(flows.reports.delete_report)

    publish = _blocking(flows.publications.publish)
    publications = _blocking(flows.publications.publications)
    publication = _blocking(flows.publications.publication)
    save_publication = _blocking(flows.publications.save_publication)
    withdraw = _blocking(flows.publications.withdraw)

    wait = _blocking(flows.waiting.wait)

    me = _blocking(flows.people.me)
    principals = _blocking(flows.people.principals)
    create_principal = _blocking(flows.people.create_principal)
    change_principal = _blocking(flows.people.change_principal)
    keys = _blocking(flows.people.keys)
    create_key = _blocking(flows.people.create_key)
    revoke_key = _blocking(flows.people.revoke_key)
    grants = _blocking(flows.people.grants)
    grant = _blocking(flows.people.grant)
    change_grant = _blocking(flows.people.change_grant)
    revoke_grant = _blocking(flows.people.revoke_grant)
    audit = _blocking(flows.people.audit)

    def close(self) -> None:
        """Close the connections. The client can't be used afterwards."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _drive(self, flow: Flow[T]) -> T:
        """Do what the flow asks for, step by step, until it returns."""
        try:
            step = next(flow)
            while True:
                try:
                    answer = self._do(step)
                except httpx.TransportError as error:
                    step = flow.throw(error)
                else:
                    step = flow.send(answer)
        except StopIteration as end:
            result: T = end.value
            return result
        finally:
            flow.close()

    def _do(self, step: Exchange | Pause) -> httpx.Response | None:
        if isinstance(step, Pause):
            time.sleep(step.seconds)
            return None
        response = self._http.send(step.request, stream=True)
        try:
            if step.write is None or not response.is_success:
                response.read()
            else:
                for chunk in response.iter_bytes():
                    step.write(chunk)
        finally:
            response.close()
        return response

"""Datasets: upload, budget, ledger."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from halftone_client import wire
from halftone_client.flows import files, waiting
from halftone_client.progress import Report
from halftone_client.protocol import Body, Call, Flow, Service, path_to
from halftone_client.records import Dataset, Record, id_of
from halftone_client.sources import Uploadable, source_of

DatasetRef = str | Mapping[str, Any]


def datasets(service: Service) -> Flow[list[Dataset]]:
    """All datasets you may see."""
    found = yield from service.items(path_to("datasets"))
    return [Dataset(item) for item in found]


def dataset(service: Service, dataset: DatasetRef) -> Flow[Dataset]:
    """One dataset as it is now."""
    return Dataset((yield from service.get(path_to("datasets", id_of(dataset)))))


def create_dataset(service: Service, spec: Mapping[str, Any]) -> Flow[Dataset]:
    """A dataset without its table yet, in state `awaiting_data`; `put_data` brings the table."""
    body = wire.with_amounts_as_text(spec)
    return Dataset((yield from service.post(path_to("datasets"), body, makes=True)))


def upload(
    service: Service,
    spec: Mapping[str, Any],
    table: Uploadable,
    *,
    format: str | None = None,
    wait: bool = True,
    timeout_s: float | None = None,
    progress: bool | Report = True,
) -> Flow[Dataset]:
    """Make a dataset of `table`: a path, bytes, an open binary file, or a DataFrame (sent as CSV).

    `spec` holds name, schema, unit, budget and the rest of the wire form. An interrupted upload
    is repeated safely, unless `table` is a stream that can't be rewound. Raises
    `UploadRejected` when the table does not follow its dictionary, with rows and columns.
    """
    body = Body(json=wire.with_amounts_as_text(spec), source=source_of(table, format))
    made = yield from service.call(Call("POST", path_to("datasets"), body, makes=True))
    uploaded = Dataset(wire.decode(made))
    if not wait:
        return uploaded
    return (yield from waiting.wait(service, uploaded, timeout_s=timeout_s, progress=progress))


def put_data(
    service: Service,
    dataset: DatasetRef,
    table: Uploadable,
    *,
    format: str | None = None,
    wait: bool = True,
    timeout_s: float | None = None,
    progress: bool | Report = True,
) -> Flow[Dataset]:
    """Bring the table of a dataset that awaits it; see `upload`.

    When the connection breaks midway nobody knows whether the table arrived, so this is not
    repeated by itself: look at the dataset's state.
    """
    source = source_of(table, format)
    path = path_to("datasets", id_of(dataset), "data")
    call = Call("PUT", path, Body(source=source), {"format": source.format}, repeatable=False)
    stored = Dataset(wire.decode((yield from service.call(call))))
    if not wait:
        return stored
    return (yield from waiting.wait(service, stored, timeout_s=timeout_s, progress=progress))


def rename_dataset(service: Service, dataset: DatasetRef, name: str) -> Flow[Dataset]:
    """Give the dataset another name."""
    call = Call("PATCH", path_to("datasets", id_of(dataset)), Body(json={"name": name}))
    return Dataset(wire.decode((yield from service.call(call))))


def delete_dataset(service: Service, dataset: DatasetRef, *, releases: bool = False) -> Flow[None]:
    """Erase the private table for good, and with `releases` all that was published from it.

    Its account, ledger and charges stay.
    """
    path = path_to("datasets", id_of(dataset))
    yield from service.delete(path, releases="true" if releases else None)


def schema(service: Service, dataset: DatasetRef) -> Flow[Record]:
    """The data dictionary."""
    return Record((yield from service.get(path_to("datasets", id_of(dataset), "schema"))))


def budget(service: Service, dataset: DatasetRef) -> Flow[Record]:
    """Total, spent and remaining, in the account's own terms; amounts are exact text."""
    return Record((yield from service.get(path_to("datasets", id_of(dataset), "budget"))))


def set_budget(
    service: Service,
    dataset: DatasetRef,
    *,
    reason: str,
    epsilon: wire.Amount,
    delta: wire.Amount | None = None,
    delta_for_approximate: wire.Amount | None = None,
) -> Flow[Record]:
    """Set the total to absolute values (custodian); what is left out stays as it is.


    Recorded in the ledger with its reason. Raises `Conflict` if somebody changed or spent the
    budget at the same moment: look again, then decide.
    """
    path = path_to("datasets", id_of(dataset), "budget")
    total = {"epsilon": epsilon, "delta": delta, "delta_for_approximate": delta_for_approximate}
    present = yield from service.call(Call("GET", path))
    call = Call(
        "PUT",
        path,
        Body(json={**wire.amounts(total), "reason": reason}),
        headers={"If-Match": present.headers["ETag"]},
        repeatable=False,
    )
    return Record(wire.decode((yield from service.call(call))))


def ledger(service: Service, dataset: DatasetRef) -> Flow[list[Record]]:
    """The charges you may see, oldest first."""
    found = yield from service.items(path_to("datasets", id_of(dataset), "ledger"))
    return [Record(item) for item in found]


def verify_ledger(service: Service, dataset: DatasetRef) -> Flow[Record]:
    """Whether the ledger's chain of hashes holds and its sum equals what counts as spent."""
    path = path_to("datasets", id_of(dataset), "ledger", "verification")
    return Record((yield from service.get(path)))


def export_ledger(
    service: Service, dataset: DatasetRef, path: str | os.PathLike[str]
) -> Flow[Path]:
    """Write the whole ledger to a file that can be verified by itself (custodian, auditors)."""
    call = Call("GET", path_to("datasets", id_of(dataset), "ledger", "export"))
    return (yield from files.written(service, call, path))


def account_statement(service: Service, dataset: DatasetRef) -> Flow[Record]:
    """Every entry of the account in words, with totals and verification (custodian, auditors)."""
    path = path_to("datasets", id_of(dataset), "ledger", "statement")
    return Record((yield from service.get(path, format="json")))


def save_account_statement(
    service: Service, dataset: DatasetRef, path: str | os.PathLike[str]
) -> Flow[Path]:
    """Write the statement of the account as one HTML page to print (custodian, auditors)."""
    call = Call("GET", path_to("datasets", id_of(dataset), "ledger", "statement"))
    return (yield from files.written(service, call, path))


def ingest_report(service: Service, dataset: DatasetRef) -> Flow[Record]:
    """What happened to the rows, for the custodian alone: not private, do not publish."""
    return Record((yield from service.get(path_to("datasets", id_of(dataset), "ingest-report"))))


def propose_dictionary(
    service: Service, table: Uploadable, *, format: str | None = None
) -> Flow[Record]:
    """A dictionary read off the table: private until you confirm each column as public."""
    source = source_of(table, format)
    path = path_to("dictionaries", "proposals")
    call = Call("POST", path, Body(source=source), {"format": source.format})
    return Record(wire.decode((yield from service.call(call))))


def import_dictionary(
    service: Service, document: Any, origin: Literal["nist", "nist-dictionary", "private-pgm"]
) -> Flow[Record]:
    """A dictionary from NIST's parameters.json (`nist`) or data_dictionary.json, or Private-PGM's
    domain.json."""
    path = path_to("dictionaries", "proposals")
    call = Call("POST", path, Body(json=document), {"from": origin})
    return Record(wire.decode((yield from service.call(call))))

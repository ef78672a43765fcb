"""Releases, their samples and what is published with them."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import httpx
import pandas as pd

from halftone_client import wire
from halftone_client.errors import Conflict
from halftone_client.flows import files, waiting
from halftone_client.flows.datasets import DatasetRef
from halftone_client.progress import Report
from halftone_client.protocol import Body, Call, Flow, Pause, Service, Sink, path_to
from halftone_client.records import Preflight, Record, Release, Sample, id_of

ReleaseRef = str | Release
SampleRef = str | Sample

# What the service writes says what is text, while pandas takes `NA` for null and 01 for 1. CSV does
# not say whether 01 is text, so that it is read as a number there.
_READERS: Mapping[str, Callable[[io.BytesIO], Any]] = {
    "csv": lambda file: pd.read_csv(file, keep_default_na=False, na_values=[""]),
    "parquet": pd.read_parquet,
    "jsonl": lambda file: pd.DataFrame([json.loads(line) for line in file]),
}


def synthesizers(service: Service) -> Flow[list[Record]]:
    """Every synthesizer the service offers."""
    found = yield from service.items(path_to("synthesizers"))
    return [Record(item) for item in found]


def synthesizer(service: Service, name: str) -> Flow[Record]:
    """One synthesizer with the form of its params (JSON Schema)."""
    return Record((yield from service.get(path_to("synthesizers", name))))


def preflight(
    service: Service,
    dataset: DatasetRef,
    synthesizer: str,
    guarantee: Mapping[str, wire.Amount],
    *,
    rows: int | None = None,
    params: Mapping[str, Any] | None = None,
    public_dataset: DatasetRef | None = None,
) -> Flow[Preflight]:
    """What the release would cost and need, and whether it fits. Charges nothing."""
    body = _request(synthesizer, guarantee, rows, params, public_dataset)
    path = path_to("datasets", id_of(dataset), "releases", "preflight")
    return Preflight((yield from service.post(path, body, makes=False)))


def release(
    service: Service,
    dataset: DatasetRef,
    synthesizer: str,
    guarantee: Mapping[str, wire.Amount],
    *,
    rows: int | None = None,
    params: Mapping[str, Any] | None = None,
    public_dataset: DatasetRef | None = None,
    wait: bool = True,
    timeout_s: float | None = None,
    progress: bool | Report = True,
) -> Flow[Release]:
    """Run a synthesizer under a guarantee, `{"epsilon": 1, "delta": 1e-6}` or `{"rho": ...}`.

    With "auto" the service picks one from public facts; `preflight` says which and why. The
    charge stands once this is accepted, however the run ends; an interrupted request is repeated
    without a second charge. `rows=None` makes as many rows as the noisy count says.
    Raises `BudgetExceeded` when it does not fit.
    """
    body = _request(synthesizer, guarantee, rows, params, public_dataset)
    path = path_to("datasets", id_of(dataset), "releases")
    accepted = Release((yield from service.post(path, body, makes=True)))
    if not wait:
        return accepted
    return (yield from waiting.wait(service, accepted, timeout_s=timeout_s, progress=progress))


def releases(
    service: Service, dataset: DatasetRef | None = None, *, state: str | None = None
) -> Flow[list[Release]]:
    """Your releases, those shared with you, and as a custodian all of your datasets; newest first.

    Those of one dataset, or in one state, if named.
    """
    wanted = None if dataset is None else id_of(dataset)
    found = yield from service.items(path_to("releases"), dataset=wanted, state=state)
    return [Release(item) for item in found]


def get_release(service: Service, release: ReleaseRef) -> Flow[Release]:
    """One release as it is now."""
    return Release((yield from service.get(path_to("releases", id_of(release)))))


def cancel(service: Service, release: ReleaseRef) -> Flow[Release]:
    """Stop a release; `["refunded"]` says whether the charge was given back."""
    path = path_to("releases", id_of(release), "cancel")
    return Release((yield from service.post(path, None, makes=False)))


def set_visibility(
    service: Service,
    release: ReleaseRef,
    visibility: Literal["requester", "grantees", "public"],
) -> Flow[Release]:
    """Share a release with all analysts of its dataset, or with everyone on the service.

    The dataset's custodian decides. If you requested the release, this asks the custodian: what
    you want is in `["visibility_requested"]`.
    """
    path = path_to("releases", id_of(release), "visibility")
    call = Call("PUT", path, Body(json={"visibility": visibility}))
    return Release(wire.decode((yield from service.call(call))))


def sample(
    service: Service,
    release: ReleaseRef,
    rows: int | None = None,
    *,
    seed: int | None = None,
    kind: Literal["rows", "counts"] = "rows",
    wait: bool = True,
    timeout_s: float | None = None,
    progress: bool | Report = True,
) -> Flow[Sample]:
    """Draw another synthetic table from what was measured; free of charge, repeatable by `seed`.

    The kind "counts" is the post-processed histogram itself, of synthesizers that make one.
    """
    asked = {"kind": kind, "rows": rows, "seed": seed}
    body = {name: value for name, value in asked.items() if value is not None}
    path = path_to("releases", id_of(release), "samples")
    accepted = Sample((yield from service.post(path, body, makes=True)))
    if not wait:
        return accepted
    return (yield from waiting.wait(service, accepted, timeout_s=timeout_s, progress=progress))


def samples(service: Service, release: ReleaseRef) -> Flow[list[Sample]]:
    """All samples of a release."""
    found = yield from service.items(path_to("releases", id_of(release), "samples"))
    return [Sample(item) for item in found]


def get_sample(service: Service, sample: SampleRef) -> Flow[Sample]:
    """One sample as it is now."""
    return Sample((yield from service.get(path_to("samples", id_of(sample)))))


def delete_sample(service: Service, sample: SampleRef) -> Flow[None]:
    """Drop a sample's rows; the release can draw others."""
    yield from service.delete(path_to("samples", id_of(sample)))


def download(
    service: Service, sample: SampleRef | Release, format: str | None = None
) -> Flow[pd.DataFrame]:
    """The synthetic rows; of a release, those of its first sample.

    `format` is csv, parquet or jsonl: parquet, if pyarrow is installed, otherwise jsonl. Both keep
    text as text; from csv, text such as 01 comes as a number.
    """
    chosen = format or ("parquet" if find_spec("pyarrow") else "jsonl")
    if chosen not in _READERS:
        raise ValueError(f"format {chosen!r} is none of {', '.join(_READERS)}")
    response = yield from _data(service, sample, chosen)
    frame: pd.DataFrame = _READERS[chosen](io.BytesIO(response.content))
    return frame


def save(
    service: Service,
    sample: SampleRef | Release,
    path: str | os.PathLike[str],
    format: str | None = None,
) -> Flow[Path]:
    """Write the synthetic rows to a file, in bounded memory; never leaves half a file at `path`.

    The format is read off the name (.csv, .parquet, .jsonl) unless given.
    """
    target = Path(path)
    chosen = format or target.suffix.removeprefix(".").lower()
    if chosen not in _READERS:
        raise ValueError(f"format {chosen!r} is none of {', '.join(_READERS)}")
    with files.whole_file(target) as sink:
        yield from _data(service, sample, chosen, sink)
    return target


def measurements(service: Service, release: ReleaseRef) -> Flow[Record]:
    """The published noisy answers with their errors and costs."""
    return Record((yield from service.get(path_to("releases", id_of(release), "measurements"))))


def certificate(service: Service, release: ReleaseRef) -> Flow[Record]:
    """What is guaranteed, to whom, by which mechanisms."""
    return Record((yield from service.get(path_to("releases", id_of(release), "certificate"))))


def statement(service: Service, release: ReleaseRef) -> Flow[Record]:
    """How good the release is: distances of columns and pairs, means, quantiles, correlations."""
    return Record((yield from service.get(path_to("releases", id_of(release), "statement"))))


def evaluate(
    service: Service,
    release: ReleaseRef,
    guarantee: Mapping[str, wire.Amount],
    *,
    pairs: Sequence[Sequence[str]] | None = None,
    wait: bool = True,
    timeout_s: float | None = None,
    progress: bool | Report = True,
) -> Flow[Release]:
    """Have the kernel measure how far the release is from the private table; this is charged.

    All columns and the `pairs` named, or all pairs. The evaluation is a release of the same rows;
    `evaluation` gives its distances. Raises `BudgetExceeded` when it does not fit.
    """
    body: dict[str, Any] = {"guarantee": wire.amounts(guarantee)}
    if pairs is not None:
        body["pairs"] = [list(pair) for pair in pairs]
    path = path_to("releases", id_of(release), "evaluations")
    accepted = Release((yield from service.post(path, body, makes=True)))
    if not wait:
        return accepted
    return (yield from waiting.wait(service, accepted, timeout_s=timeout_s, progress=progress))


def evaluation(service: Service, release: ReleaseRef) -> Flow[Record]:
    """The noisy distances that an evaluation measured, with their errors."""
    return Record((yield from service.get(path_to("releases", id_of(release), "evaluation"))))


def save_bundle(
    service: Service,
    release: ReleaseRef,
    path: str | os.PathLike[str],
    samples: Sequence[SampleRef] | None = None,
) -> Flow[Path]:
    """Write everything the release published to a zip file; never leaves half a file at `path`.

    It holds the first sample, or those that `samples` names. `halftone-client verify` checks it.
    """
    named = None if samples is None else ",".join(id_of(sample) for sample in samples)
    where = path_to("releases", id_of(release), "bundle")
    return (yield from files.written(service, Call("GET", where, params={"samples": named}), path))


def signing_keys(service: Service) -> Flow[list[Record]]:
    """The public halves of the keys that sign bundles and certificates, the current one first."""
    found = yield from service.get(path_to("keys", "signing"))
    return [Record(key) for key in found["keys"]]


def _request(
    synthesizer: str,
    guarantee: Mapping[str, wire.Amount],
    rows: int | None,
    params: Mapping[str, Any] | None,
    public_dataset: DatasetRef | None,
) -> dict[str, Any]:
    body: dict[str, Any] = {
        "synthesizer": synthesizer,
        "params": dict(params or {}),
        "guarantee": wire.amounts(guarantee),
    }
    if rows is not None:
        body["rows"] = rows
    if public_dataset is not None:
        body["public_dataset"] = id_of(public_dataset)
    return body


def _data(
    service: Service, sample: SampleRef | Release, format: str, sink: Sink | None = None
) -> Flow[httpx.Response]:
    """The rows, waited for where the service is making them (again, after their time)."""
    chosen = sample.samples[0] if isinstance(sample, Release) else sample
    path = path_to("samples", id_of(chosen), "data")
    call = Call("GET", path, params={"format": format}, sink=sink)
    while True:
        try:
            return (yield from service.call(call))
        except Conflict as error:
            if error.retry_after is None:
                raise
            yield Pause(error.retry_after)

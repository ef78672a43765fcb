"""Runs the requests, and keeps their models and rows."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from golden_requests import Request
from golden_session import Record, RecordingSession, seeded_noise
from golden_tables import private_source, public_table
from numpy.typing import NDArray

from app.engine.catalog import registry
from app.engine.schema import Schema
from app.engine.table import Table, generator

MODELS = Path(__file__).with_name("models")
SAMPLE_SEED = 11
SAMPLE_ROWS = 400


def quiet(fraction: float, stage: str) -> None:
    assert 0 <= fraction <= 1
    assert stage


@dataclass(frozen=True)
class Run:
    """What a run asked, and the model that it handed in."""

    record: Record
    model: bytes
    sample: dict[str, NDArray[Any]]


def run(request: Request) -> Run:
    """Fits the request's model on the real kernel with seeded noise."""
    synthesizer = registry.builtin(request.method)
    schema, unit = request.schema, request.unit
    params = synthesizer.Params.model_validate(request.form)
    public = public_table(schema, unit) if request.public else None
    with seeded_noise(request.seed) as noise:
        session = RecordingSession(private_source(schema, unit), request.loss, noise)
        model = synthesizer.fit(session, params, public, request.seed, quiet)
    drawn = model.sample(None, generator(SAMPLE_SEED))
    record = {
        "questions": session.records,
        "left": [session.remaining.amount, session.remaining.delta],
        "found": session.found,
        "rows": drawn.rows,
        "entities": None if drawn.entity is None else int(drawn.entity.max()) + 1,
        "columns": {name: str(codes.dtype) for name, codes in drawn.codes.items()},
    }
    return Run(record, model.dump(), arrays_of(model.sample(SAMPLE_ROWS, generator(SAMPLE_SEED))))


def arrays_of(table: Table) -> dict[str, NDArray[Any]]:
    arrays: dict[str, NDArray[Any]] = dict(table.codes)
    return arrays if table.entity is None else {**arrays, " entity": table.entity}


def load_and_sample(request: Request, found: dict[str, list[str]]) -> dict[str, NDArray[Any]]:
    """Rows of the stored model, read as a service of today reads it."""
    schema: Schema = request.schema
    for column, texts in found.items():
        schema = schema.with_values(column, tuple(texts))
    data = (MODELS / f"{request.name}.model").read_bytes()
    model = registry.builtin(request.method).load(schema, request.unit, data)
    return arrays_of(model.sample(SAMPLE_ROWS, generator(SAMPLE_SEED)))


def stored_sample(request: Request) -> dict[str, NDArray[Any]]:
    with np.load(MODELS / f"{request.name}.rows.npz") as held:
        return {name: held[name] for name in held.files}


def write_model(request: Request, made: Run) -> None:
    MODELS.mkdir(exist_ok=True)
    (MODELS / f"{request.name}.model").write_bytes(made.model)
    packed = io.BytesIO()
    np.savez_compressed(packed, **{name: _narrow(held) for name, held in made.sample.items()})
    (MODELS / f"{request.name}.rows.npz").write_bytes(packed.getvalue())


def _narrow(codes: NDArray[Any]) -> NDArray[Any]:
    return codes.astype(np.uint16)

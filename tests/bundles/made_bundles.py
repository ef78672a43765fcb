"""Bundles without a store: of codes that a test or a stored model gives."""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from app.bundles.bundle import Bundle
from app.bundles.citation import Citation, Licence
from app.bundles.contents import Contents
from app.engine.method import CountsTable
from app.engine.schema import PrivacyUnit, Schema
from app.engine.table import Table
from app.releases import rendering
from app.releases.downloads import StoredSample
from app.signing.canonical import sha256_of, signed
from app.signing.keys import SigningKey

KEY = SigningKey.of(bytes(range(32)))
SAMPLE = "sm_" + "2" * 20
RELEASE = "rl_" + "2" * 20
LICENCE = Licence("CC-BY-4.0")


def bundle_of(
    schema: Schema, unit: PrivacyUnit, table: Table | CountsTable, **changes: Any
) -> Bundle:
    """A bundle of one table, whose certificate says what the metadata need."""
    if isinstance(table, CountsTable):
        kind, rows = "counts", table.values.size
        parquet = b"".join(rendering.write_counts(table, schema))
    else:
        kind, rows = "rows", table.rows
        parquet = b"".join(rendering.write_rows([table], schema, unit))
    sha256 = hashlib.sha256(parquet).hexdigest()
    sample = StoredSample(
        id=SAMPLE,
        kind=kind,
        content_sha256=sha256,
        size_bytes=len(parquet),
        schema=schema,
        file=io.BytesIO(parquet),
    )
    contents = Contents(
        release_id=RELEASE,
        certificate=signed(certificate(schema, unit, rows, sha256), KEY),
        dictionary=schema.to_wire(),
        schema=schema,
        rows={SAMPLE: rows},
        records=[],
        statement=None,
        report=None,
        proof=proof(),
        citation=Citation(
            title="Made-up people",
            abstract="Synthetic rows.",
            issued="2030-01-31T12:00:00.000000Z",
            creators=({"name": "Ada Lovelace"},),
            licence=LICENCE,
            keywords=("people",),
            temporal="2020/2021",
            spatial="Utrecht",
            **changes,
        ),
    )
    return Bundle(contents, [sample], KEY)


def certificate(schema: Schema, unit: PrivacyUnit, rows: int, sha256: str) -> dict[str, Any]:
    """A certificate of one pure mechanism on a `basic` account."""
    loss = {"epsilon": "1"}
    return {
        "format": "halftone-certificate-1",
        "release": {"id": RELEASE, "requested_at": "x", "made_at": "2030-01-31T12:00:00.000000Z"},
        "dataset": {
            "id": "ds_" + "2" * 20,
            "name": "people",
            "dictionary_sha256": sha256_of(schema.to_wire()),
        },
        "samples": [{"id": SAMPLE, "kind": "rows", "rows": rows, "parquet_sha256": sha256}],
        "in_words": "It protects one row.",
        "unit": unit.to_wire(),
        "guarantee": loss,
        "accountant": "basic",
        "charge": {**loss, "delta": "0"},
        "session": {"allowed": loss, "spent": loss},
        "mechanisms": [{"loss": loss, "scale": 1.5}],
        "synthesizer": {"name": "independent", "version": "1", "params": {}},
        "assurance": "enforced",
        "ledger_row_hash": "1" * 64,
        "versions": {"halftone": "0.1.0"},
    }


def proof() -> dict[str, Any]:
    """The proof of that charge, without totals."""
    entry = {
        "account_id": "ac_1",
        "sequence": 2,
        "kind": "charge",
        "dataset_id": "ds_" + "2" * 20,
        "release_id": RELEASE,
        "primary": 10**12,
        "delta": 0,
        "detail": {},
        "at": "2030-01-31T11:00:00.000000Z",
    }
    return {
        "format": "halftone-ledger-proof-1",
        "account_id": "ac_1",
        "accountant": "basic",
        "totals_shown": False,
        "hashes": [None, "1" * 64],
        "entries": [entry],
    }


def written(bundle: Bundle) -> bytes:
    return b"".join(bundle.pieces())


def unpacked(data: bytes, folder: Path) -> Path:
    """The folder, with the files of the bundle in it."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        archive.extractall(folder)
    return folder


def files_of(data: bytes) -> Mapping[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}

"""Every column of the store is known: it says nothing of private rows, or says it under a key."""

from __future__ import annotations

import pytest

from app.tables import metadata

# About amounts, people and what was asked for: no value is made from private rows.
APART = {
    "accounts",
    "grants",
    "ledger",
    "principals",
    "api_keys",
    "audit",
    "comparisons",
    "publications",
}
# What a release publishes, or is about to: the kernel's answers, and what was made from them.
OUTPUTS = {"releases", "journal", "events", "samples"}
# Declared, chosen by the service, or a state or time: when a job ran, and whether it succeeded, may
# depend on rows, and is no secret of the store's file.
OPEN = {
    "datasets": {
        "id", "owner_id", "account_id", "name", "visibility", "state", "schema", "unit",
        "max_total_rows", "file_options", "new_population", "created_at", "ready_at", "erased_at",
    },
    "jobs": {
        "id", "kind", "subject_id", "dataset_id", "state", "claims", "losses", "fence", "worker",
        "beats", "lease_s", "memory_bytes", "time_limit_s", "progress", "stage", "created_at",
        "started_at", "finished_at",
    },
    "chunks": {"collection", "part", "sequence"},
    "reports": {
        "id", "release_id", "dataset_id", "state", "choices", "created_at", "finished_at",
    },
    "idempotency": {
        "principal_id", "operation", "key", "status", "resource_id", "created_at",
    },
    "secrets": {"name"},
    "signing_keys": {"id", "public", "created_at", "retired_at"},
    "collections": {"id", "owner_id"},
    "stored": {"owner_id"},
    "stored_parts": {"collection", "part", "chunks"},
}  # fmt: skip
GUARDED = {
    "datasets": {
        "closed": "the custodian's, of datasets that nobody else may use",
        "rows": "of private tables only where they are not encrypted",
        "content_hmac": "under the store's content key",
        "ingest_report": "sealed under the dataset's key",
        "staged": "the place of an upload and its media type",
        "wrapped_key": "under the master key",
    },
    "jobs": {"private_detail": "sealed under the dataset's key"},
    "chunks": {
        "size_bytes": "rounded up where they are sealed",
        "sha256": "of the sealed bytes",
        "data": "sealed under the dataset's key",
    },
    "reports": {},
    "collections": {},
    "stored": {"size_bytes": "a sum of sizes that are rounded up where they are sealed"},
    "stored_parts": {
        "size_bytes": "rounded up where they are sealed",
        "sha256": "of the sealed bytes",
    },
    "idempotency": {"body_hash": "under the store's request key"},
    "secrets": {"value": "under the master key"},
    "signing_keys": {},
}


def test_every_table_is_known() -> None:
    assert set(metadata.tables) == APART | OUTPUTS | set(OPEN)


@pytest.mark.parametrize("table", OPEN)
def test_every_column_is_known(table: str) -> None:
    assert set(metadata.tables[table].columns.keys()) == OPEN[table] | set(GUARDED[table])

"""How the API page describes uploads, whose bodies the routes read without FastAPI."""

from __future__ import annotations

from typing import Any

from app.datasets.schemas import SPEC_EXAMPLE, DatasetIn
from app.releases.openapi import inlined

_FILE = {
    "type": "string",
    "format": "binary",
    "description": "The table: CSV, TSV, Parquet or JSON Lines; gzip or zstd.",
}

_SPEC = inlined(DatasetIn.model_json_schema(by_alias=True))

CREATE_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {"schema": _SPEC, "example": SPEC_EXAMPLE},
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": ["spec", "file"],
                    "properties": {"spec": _SPEC, "file": _FILE},
                },
                "encoding": {"spec": {"contentType": "application/json"}},
            },
        },
    }
}

_TABLES = {
    kind: {"schema": _FILE}
    for kind in (
        "text/csv",
        "text/tab-separated-values",
        "application/vnd.apache.parquet",
        "application/jsonl",
        "application/octet-stream",
    )
}

DATA_BODY: dict[str, Any] = {"requestBody": {"required": True, "content": _TABLES}}

PROPOSAL_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            **_TABLES,
            "application/json": {
                "schema": {"type": "object", "description": "The document to import."},
                "example": {"age": 85, "income": 2},
            },
        },
    }
}

"""How the API page describes uploads, whose bodies the routes read themselves."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from app.datasets.schemas import SPEC_EXAMPLE, DatasetIn

_FILE = {
    "type": "string",
    "format": "binary",
    "description": "The table: CSV, TSV, Parquet or JSON Lines; gzip or zstd.",
}


def inlined(model: type[BaseModel]) -> dict[str, Any]:
    """The JSON Schema of a form without references, to stand anywhere in the document."""
    schema = model.model_json_schema(by_alias=True)
    definitions = schema.pop("$defs", {})

    def resolve(node: Any) -> Any:
        if isinstance(node, list):
            return [resolve(item) for item in node]
        if not isinstance(node, dict):
            return node
        if "$ref" in node:
            name = node["$ref"].rsplit("/", 1)[-1]
            rest = {key: value for key, value in node.items() if key != "$ref"}
            return {**resolve(definitions[name]), **rest}
        return {key: resolve(value) for key, value in node.items()}

    resolved: dict[str, Any] = resolve(schema)
    return resolved


_SPEC = inlined(DatasetIn)

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

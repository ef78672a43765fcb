"""`datapackage.json`: a Data Package (version 2) of the tables in a bundle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from app.bundles.citation import Citation
from app.bundles.files import Table, Written

_PROFILES = "https://datapackage.org/profiles/2.0"
PARQUET = "application/vnd.apache.parquet"


def data_package(
    citation: Citation, certificate: Mapping[str, Any], tables: Sequence[Table]
) -> dict[str, Any]:
    """The descriptor; resources have the sizes and hashes of the files."""
    release = certificate["release"]["id"]
    wire: dict[str, Any] = {
        "$schema": f"{_PROFILES}/datapackage.json",
        "name": release.replace("_", "-"),
        "id": citation.identifier or release,
        "title": citation.title,
        "description": citation.abstract,
        "version": citation.version,
        "created": citation.issued,
        "keywords": list(citation.keywords),
        "resources": [each for table in tables for each in _resources(table)],
    }
    if citation.licence is not None:
        wire["licenses"] = [{"name": citation.licence.spdx, "path": citation.licence.url}]
    contributors = [
        {"title": each["name"], "roles": ["creator"], **_of(each, "email")}
        for each in citation.creators
    ]
    if contributors:
        wire["contributors"] = contributors
    return wire


def _of(creator: Mapping[str, Any], key: str) -> dict[str, Any]:
    return {key: creator[key]} if creator.get(key) else {}


def _resources(table: Table) -> list[dict[str, Any]]:
    name = table.sample_id.replace("_", "-")
    return [
        {
            "$schema": f"{_PROFILES}/dataresource.json",
            "name": name,
            "type": "table",
            **_file(table.csv),
            "scheme": "file",
            "format": "csv",
            "mediatype": "text/csv",
            "encoding": "utf-8",
            "dialect": {"delimiter": ",", "lineTerminator": "\n", "quoteChar": '"'},
            "schema": table.schema,
        },
        {
            "$schema": f"{_PROFILES}/dataresource.json",
            "name": f"{name}-parquet",
            "type": "file",
            **_file(table.parquet),
            "scheme": "file",
            "format": "parquet",
            "mediatype": PARQUET,
        },
    ]


def _file(written: Written) -> dict[str, Any]:
    return {
        "path": written.name,
        "bytes": written.size_bytes,
        "hash": f"sha256:{written.sha256}",
    }

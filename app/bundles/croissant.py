"""`croissant.json`: the tables of a bundle in Croissant 1.0, the format of MLCommons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from app.bundles.citation import Citation
from app.bundles.files import Table, Written

CONFORMS_TO = "http://mlcommons.org/croissant/1.0"
# As the standard gives it; a reader that follows no links needs it in the file.
_CONTEXT: dict[str, Any] = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "citeAs": "cr:citeAs",
    "column": "cr:column",
    "conformsTo": "dct:conformsTo",
    "cr": "http://mlcommons.org/croissant/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "dct": "http://purl.org/dc/terms/",
    "equivalentProperty": "cr:equivalentProperty",
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "extract": "cr:extract",
    "field": "cr:field",
    "fileProperty": "cr:fileProperty",
    "fileObject": "cr:fileObject",
    "fileSet": "cr:fileSet",
    "format": "cr:format",
    "includes": "cr:includes",
    "isLiveDataset": "cr:isLiveDataset",
    "jsonPath": "cr:jsonPath",
    "key": "cr:key",
    "md5": "cr:md5",
    "parentField": "cr:parentField",
    "path": "cr:path",
    "recordSet": "cr:recordSet",
    "references": "cr:references",
    "regex": "cr:regex",
    "repeated": "cr:repeated",
    "replace": "cr:replace",
    "samplingRate": "cr:samplingRate",
    "sc": "https://schema.org/",
    "separator": "cr:separator",
    "source": "cr:source",
    "subField": "cr:subField",
    "transform": "cr:transform",
}
# By the first word of the name of the Arrow type.
_TYPES = {
    "bool": "sc:Boolean",
    "int64": "sc:Integer",
    "double": "sc:Float",
    "date32": "sc:Date",
    "timestamp": "sc:DateTime",
    "time32": "sc:Time",
}


def croissant(
    citation: Citation, certificate: Mapping[str, Any], tables: Sequence[Table]
) -> dict[str, Any]:
    """The metadata; records are read from the Parquet files, which have types."""
    wire: dict[str, Any] = {
        "@context": _CONTEXT,
        "@type": "sc:Dataset",
        "@id": citation.identifier or certificate["release"]["id"],
        "conformsTo": CONFORMS_TO,
        "name": citation.title,
        "description": citation.abstract,
        "version": _semantic(citation.version),
        "datePublished": citation.issued,
        "keywords": list(citation.keywords),
        "citeAs": f"{citation.title}. {certificate['release']['id']}, version {citation.version}.",
        "distribution": [
            each for table in tables for each in (_csv(table.csv), _parquet(table.parquet))
        ],
        "recordSet": [_records(table) for table in tables],
    }
    if citation.licence is not None:
        wire["license"] = citation.licence.url
    if citation.creators:
        wire["creator"] = [_creator(each) for each in citation.creators]
    if citation.temporal:
        wire["temporalCoverage"] = citation.temporal
    if citation.spatial:
        wire["spatialCoverage"] = citation.spatial
    return wire


def _semantic(version: str) -> str:
    """Croissant asks for three numbers."""
    return f"{version}.0.0" if version.isdigit() else version


def _creator(creator: Mapping[str, Any]) -> dict[str, Any]:
    kind = "sc:Organization" if creator.get("kind") == "organization" else "sc:Person"
    return {"@type": kind, "name": creator["name"]}


def _csv(written: Written) -> dict[str, Any]:
    return _file(written, "text/csv")


def _parquet(written: Written) -> dict[str, Any]:
    return _file(written, "application/x-parquet")


def _file(written: Written, media_type: str) -> dict[str, Any]:
    return {
        "@type": "cr:FileObject",
        "@id": written.name,
        "name": written.name.replace("/", "-"),
        "contentUrl": written.name,
        "contentSize": f"{written.size_bytes} B",
        "encodingFormat": media_type,
        "sha256": written.sha256,
    }


def _records(table: Table) -> dict[str, Any]:
    return {
        "@type": "cr:RecordSet",
        "@id": table.sample_id,
        "name": table.sample_id,
        "description": "Synthetic rows." if table.kind == "rows" else "Noisy counts of cells.",
        "field": [
            {
                "@type": "cr:Field",
                "@id": f"{table.sample_id}/{place}",
                "name": name,
                "dataType": _TYPES.get(kind.split("[")[0], "sc:Text"),
                "source": {
                    "fileObject": {"@id": table.parquet.name},
                    "extract": {"column": name},
                },
            }
            for place, (name, kind) in enumerate(table.types.items())
        ],
    }

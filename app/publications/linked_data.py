"""Publications as linked data: DCAT-AP for catalogues, schema.org for search engines.

The vocabularies are DCAT 3 (https://www.w3.org/TR/vocab-dcat-3/) as DCAT-AP 3.0 narrows it, and
https://schema.org/Dataset. Contexts stand in the documents, so that reading one needs no network.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from app.publications.schemas import CreatorIO, FileOut, PeriodIO, PublicationOut

CONTEXT: dict[str, Any] = {
    "adms": "http://www.w3.org/ns/adms#",
    "dcat": "http://www.w3.org/ns/dcat#",
    "dct": "http://purl.org/dc/terms/",
    "foaf": "http://xmlns.com/foaf/0.1/",
    "hydra": "http://www.w3.org/ns/hydra/core#",
    "owl": "http://www.w3.org/2002/07/owl#",
    "spdx": "http://spdx.org/rdf/terms#",
    "vcard": "http://www.w3.org/2006/vcard/ns#",
    "xsd": "http://www.w3.org/2001/XMLSchema#",
}
_SPDX = "https://spdx.org/licenses/"
_MEDIA_TYPES = "https://www.iana.org/assignments/media-types/"
_ORCID = "https://orcid.org/"


def catalogue(
    shown: Sequence[PublicationOut],
    *,
    base: str,
    title: str,
    publisher: str,
    following: str | None = None,
) -> dict[str, Any]:
    """A dcat:Catalog of publications, or a page of it. `base` is the address of the service,
    without a slash; `following` is the query of the next page, which harvesters go on to."""
    path = f"{base}/v1/publications"
    view = {"@type": "hydra:PartialCollectionView", "hydra:next": {"@id": f"{path}?{following}"}}
    document = {
        "@context": CONTEXT,
        "@id": path,
        "@type": "dcat:Catalog",
        "dct:title": title,
        "dct:description": "Synthetic data, made with differential privacy.",
        "dct:publisher": _agent(publisher),
        "foaf:homepage": {"@id": path},
        "dcat:dataset": [_entry(out, base) for out in shown],
    }
    return document if following is None else {**document, "hydra:view": view}


def entry(out: PublicationOut, *, base: str) -> dict[str, Any]:
    """One publication, as a dcat:Dataset."""
    return {"@context": CONTEXT, **_entry(out, base)}


def schema_org(out: PublicationOut, *, base: str) -> dict[str, Any]:
    """One publication as https://schema.org/Dataset, for the head of its page."""
    address = f"{base}/v1/publications/{out.id}"
    return _without_none(
        {
            "@context": "https://schema.org/",
            "@type": "Dataset",
            "@id": address,
            "url": address,
            "identifier": out.id,
            "name": out.title,
            "description": out.abstract,
            "license": licence(out),
            "creator": [_schema_org_creator(each) for each in out.creators],
            "datePublished": out.published_at.date().isoformat(),
            "version": str(out.version),
            "keywords": list(out.keywords) or None,
            "temporalCoverage": out.interval,
            "spatialCoverage": out.spatial,
            "isAccessibleForFree": True,
            "distribution": [
                {
                    "@type": "DataDownload",
                    "name": file.name,
                    "contentUrl": base + file.path,
                    "encodingFormat": file.media_type,
                    "contentSize": f"{file.size_bytes} B",
                    "sha256": file.sha256,
                }
                for file in _data(out)
            ],
        }
    )


def _entry(out: PublicationOut, base: str) -> dict[str, Any]:
    address = f"{base}/v1/publications/{out.id}"
    return _without_none(
        {
            "@id": address,
            "@type": "dcat:Dataset",
            "dct:identifier": out.id,
            "dct:title": out.title,
            "dct:description": out.abstract,
            "dct:issued": _typed(out.published_at.date().isoformat(), "xsd:date"),
            "dcat:version": str(out.version),
            "dcat:landingPage": {"@id": address},
            "dct:creator": [_agent(each.name, each.orcid) for each in out.creators],
            "dct:publisher": _agent(out.creators[0].name, out.creators[0].orcid),
            "dcat:contactPoint": _contact(out),
            "dcat:keyword": list(out.keywords) or None,
            "dct:temporal": _period(out.temporal),
            "dct:spatial": None
            if out.spatial is None
            else {"@type": "dct:Location", "dct:title": out.spatial},
            "dct:provenance": {
                "@type": "dct:ProvenanceStatement",
                "dct:description": _provenance(out),
            },
            "dcat:previousVersion": None
            if out.supersedes is None
            else {"@id": f"{base}/v1/publications/{out.supersedes}"},
            "dcat:distribution": [_distribution(file, out, base) for file in _data(out)],
        }
    )


def _distribution(file: FileOut, out: PublicationOut, base: str) -> dict[str, Any]:
    return {
        "@id": base + file.path,
        "@type": "dcat:Distribution",
        "dct:title": file.name,
        "dcat:accessURL": {"@id": base + file.path},
        "dcat:downloadURL": {"@id": base + file.path},
        "dcat:mediaType": {"@id": _MEDIA_TYPES + file.media_type.split(";")[0]},
        "dcat:byteSize": _typed(str(file.size_bytes), "xsd:nonNegativeInteger"),
        "dct:license": {"@id": licence(out), "@type": "dct:LicenseDocument"},
        "spdx:checksum": {
            "@type": "spdx:Checksum",
            "spdx:algorithm": {"@id": "spdx:checksumAlgorithm_sha256"},
            "spdx:checksumValue": _typed(file.sha256, "xsd:hexBinary"),
        },
    }


def _data(out: PublicationOut) -> list[FileOut]:
    """The archive of all files, then the tables themselves."""
    archive = FileOut(
        name=f"{out.id}.zip",
        media_type="application/zip",
        size_bytes=out.bundle_bytes,
        sha256=out.bundle_sha256,
        path=out.bundle,
    )
    return [archive, *(file for file in out.files if file.name.startswith("data/"))]


def _provenance(out: PublicationOut) -> str:
    amounts = ", ".join(f"{name} {amount}" for name, amount in out.guarantee.items())
    return (
        f"Synthetic rows by the method {out.synthesizer}, under differential privacy with"
        f" {amounts}; the unit of protection is the {out.unit['kind']}. No row describes a real"
        " one."
    )


def _agent(name: str, orcid: str | None = None) -> dict[str, Any]:
    agent: dict[str, Any] = {"@type": "foaf:Agent", "foaf:name": name}
    return agent if orcid is None else {"@id": _ORCID + orcid, **agent}


def _schema_org_creator(creator: CreatorIO) -> dict[str, Any]:
    return _without_none(
        {
            "@type": creator.kind.capitalize(),
            "@id": None if creator.orcid is None else _ORCID + creator.orcid,
            "name": creator.name,
            "affiliation": None
            if creator.affiliation is None
            else {"@type": "Organization", "name": creator.affiliation},
        }
    )


def _contact(out: PublicationOut) -> dict[str, Any] | None:
    if out.contact is None:
        return None
    is_page = out.contact.startswith(("http://", "https://"))
    key = "vcard:hasURL" if is_page else "vcard:hasEmail"
    address = out.contact if is_page else f"mailto:{out.contact}"
    return {"@type": "vcard:Kind", "vcard:fn": out.contact, key: {"@id": address}}


def _period(period: PeriodIO | None) -> dict[str, Any] | None:
    if period is None:
        return None
    ends = {"dcat:startDate": period.start, "dcat:endDate": period.end}
    stated = {
        name: _typed(day.isoformat(), "xsd:date") for name, day in ends.items() if day is not None
    }
    return {"@type": "dct:PeriodOfTime", **stated}


def licence(out: PublicationOut) -> str:
    """The page of an SPDX licence; of an expression, that of the first licence in it."""
    return _SPDX + str(out.license).strip("() ").split(" ")[0]


def _typed(value: str, of: str) -> dict[str, str]:
    return {"@value": value, "@type": of}


def _without_none(document: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in document.items() if value is not None}

"""`datacite.json`: what a DOI of a bundle would be registered with (DataCite schema 4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from app.bundles.citation import Citation
from app.bundles.files import Table

_SCHEMA = "http://datacite.org/schema/kernel-4"
# DataCite's own code for what is known to exist and was not given.
_UNKNOWN = ":unav"


def datacite(
    citation: Citation, certificate: Mapping[str, Any], tables: Sequence[Table]
) -> dict[str, Any]:
    """The metadata; a creator or publisher that nobody named is `:unav`."""
    made = certificate["release"]["made_at"]
    wire: dict[str, Any] = {
        "schemaVersion": _SCHEMA,
        "identifiers": _identifiers(citation, certificate),
        "creators": [_creator(each) for each in citation.creators or ({"name": _UNKNOWN},)],
        "titles": [{"title": citation.title}],
        "publisher": {"name": _UNKNOWN},
        "publicationYear": citation.issued[:4],
        "types": {"resourceTypeGeneral": "Dataset", "resourceType": "Synthetic data"},
        "subjects": [{"subject": keyword} for keyword in citation.keywords],
        "dates": [
            {"date": citation.issued, "dateType": "Issued"},
            *([{"date": made, "dateType": "Created"}] if made else []),
        ],
        "version": citation.version,
        "descriptions": [{"description": citation.abstract, "descriptionType": "Abstract"}],
        "formats": ["text/csv", "application/vnd.apache.parquet"],
        "sizes": [f"{table.rows} rows x {len(table.types)} columns" for table in tables],
    }
    if citation.licence is not None:
        wire["rightsList"] = [
            {
                "rights": citation.licence.spdx,
                "rightsUri": citation.licence.url,
                "rightsIdentifier": citation.licence.spdx,
                "rightsIdentifierScheme": "SPDX",
                "schemeUri": "https://spdx.org/licenses/",
            }
        ]
    if citation.contact:
        wire["contributors"] = [{"name": citation.contact, "contributorType": "ContactPerson"}]
    if citation.temporal:
        wire["dates"].append({"date": citation.temporal, "dateType": "Coverage"})
    if citation.spatial:
        wire["geoLocations"] = [{"geoLocationPlace": citation.spatial}]
    return wire


def _identifiers(citation: Citation, certificate: Mapping[str, Any]) -> list[dict[str, str]]:
    own = {"identifier": certificate["release"]["id"], "identifierType": "Halftone release"}
    if citation.identifier is None:
        return [own]
    kind = "DOI" if citation.identifier.startswith("10.") else "Halftone publication"
    return [{"identifier": citation.identifier, "identifierType": kind}, own]


def _creator(creator: Mapping[str, Any]) -> dict[str, Any]:
    kind = "Organizational" if creator.get("kind") == "organization" else "Personal"
    wire: dict[str, Any] = {"name": creator["name"]}
    if creator["name"] != _UNKNOWN:
        wire["nameType"] = kind
    if creator.get("affiliation"):
        wire["affiliation"] = [{"name": creator["affiliation"]}]
    if creator.get("orcid"):
        wire["nameIdentifiers"] = [
            {
                "nameIdentifier": creator["orcid"],
                "nameIdentifierScheme": "ORCID",
                "schemeUri": "https://orcid.org",
            }
        ]
    return wire

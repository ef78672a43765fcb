"""Publications as the API shows them."""

from __future__ import annotations

from sqlalchemy.orm import Session

from app.publications import service
from app.publications.repository import Found
from app.publications.schemas import CitationIO, FileOut, PublicationOut


def publication(session: Session, found: Found) -> PublicationOut:
    (shown,) = publications(session, [found])
    return shown


def publications(session: Session, found: list[Found]) -> list[PublicationOut]:
    """Published ones, with the versions before and after them."""
    beside = service.versions_beside(session, [row for row, _, _ in found])
    return [
        _publication(each, before, after)
        for each, (before, after) in zip(found, beside, strict=True)
    ]


def _publication(found: Found, before: str | None, after: str | None) -> PublicationOut:
    row, release, dataset = found
    listing = service.listing_of(row)
    path = f"/v1/publications/{row.id}"
    citation = CitationIO.model_validate(row.citation)
    return PublicationOut(
        **{name: getattr(citation, name) for name in CitationIO.model_fields},
        id=row.id,
        series=row.series_id,
        version=row.version,
        state="published",
        supersedes=before,
        superseded_by=after,
        published_at=row.created_at,
        release=release.id,
        dataset=dataset.name,
        synthesizer=release.synthesizer,
        guarantee=release.guarantee,
        unit=dataset.unit,
        samples=row.samples,
        bundle=f"{path}/bundle",
        bundle_bytes=listing.size_bytes,
        bundle_sha256=listing.sha256,
        files=[
            FileOut(
                name=file.name,
                media_type=file.media_type,
                size_bytes=file.size_bytes,
                sha256=file.sha256,
                path=f"{path}/files/{file.name}",
            )
            for file in listing.files
        ],
    )

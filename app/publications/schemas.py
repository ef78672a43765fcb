"""Publications as the API sends and receives them."""

from __future__ import annotations

import re
import unicodedata
from datetime import date
from typing import Annotated, Any, Literal

from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    model_validator,
)

from app.bundles.citation import Citation, Licence
from app.database import format_time
from app.publications.models import PublicationRow
from app.releases.schemas import Moment

_EMAIL = re.compile(r"[^@\s<>\"]+@[^@\s<>\"]+\.[^@\s<>\"]+")
_PAGE = re.compile(r"https?://[^\s<>\"]+")

_ID = "pb_w5hqz8c3mkt7xnv2rjd4"
_CITATION: dict[str, Any] = {
    "title": "Taxi trips in the city centre, synthetic, 2029",
    "abstract": "Synthetic trips, made with differential privacy. They keep how shifts, payment and"
    " fares go together, and describe no real trip.",
    "license": "CC-BY-4.0",
    "creators": [{"name": "City statistics office"}],
    "contact": "data@city.example",
    "keywords": ["taxi", "mobility"],
    "temporal": {"start": "2029-01-01", "end": "2029-12-31"},
    "spatial": "City centre",
}


def _licence(value: str) -> str:
    try:
        return str(canonicalize_license_expression(value))
    except InvalidLicenseExpression:
        raise ValueError(
            "this is no SPDX licence; send an identifier such as CC-BY-4.0 or CC0-1.0"
        ) from None


def _contact(value: str) -> str:
    if not (_EMAIL.fullmatch(value) or _PAGE.fullmatch(value)):
        raise ValueError("a contact is an e-mail address, or a page that begins with https://")
    return value


# Line ends and tabs, and what some scripts and emoji join or part letters with.
_ALLOWED = "\n\t\N{ZERO WIDTH NON-JOINER}\N{ZERO WIDTH JOINER}"


def _plain(value: str) -> str:
    value = value.replace("\r\n", "\n")
    for mark in value:
        # Not every space counts as printable: French texts have narrow ones.
        if not (mark.isprintable() or mark in _ALLOWED or unicodedata.category(mark) == "Zs"):
            raise ValueError("the text has characters that cannot be shown")
    return value


Line = Annotated[
    str,
    StringConstraints(strip_whitespace=True, min_length=1, max_length=300),
    AfterValidator(_plain),
]
Paragraphs = Annotated[
    str,
    StringConstraints(strip_whitespace=True, min_length=1, max_length=10_000),
    AfterValidator(_plain),
]


class CreatorIO(BaseModel):
    """Who made the data: a person or an office."""

    model_config = ConfigDict(extra="forbid")

    name: Line = Field(
        description="Name of the person or office.", examples=["City statistics office"]
    )
    affiliation: Line | None = Field(None, description="Where the person works.", examples=[None])
    orcid: (
        Annotated[str, StringConstraints(pattern=r"^[0-9]{4}-[0-9]{4}-[0-9]{4}-[0-9]{3}[0-9X]$")]
        | None
    ) = Field(None, description="ORCID of the person.", examples=[None])

    @property
    def kind(self) -> Literal["person", "organization"]:
        """Only people work somewhere, or have an ORCID."""
        named = self.affiliation is not None or self.orcid is not None
        return "person" if named else "organization"


class PeriodIO(BaseModel):
    """The time that the data are about. An end that is left out is open."""

    model_config = ConfigDict(extra="forbid")

    start: date | None = Field(None, description="First day.", examples=["2029-01-01"])
    end: date | None = Field(None, description="Last day.", examples=["2029-12-31"])

    @model_validator(mode="after")
    def _in_order(self) -> PeriodIO:
        if self.start is None and self.end is None:
            raise ValueError("a period has a start, an end, or both")
        if self.start is not None and self.end is not None and self.end < self.start:
            raise ValueError("a period ends on or after the day on which it starts")
        return self


class CitationIO(BaseModel):
    """How a publication is found and cited, as its custodian states it."""

    model_config = ConfigDict(extra="forbid")

    title: Line = Field(description="What the data are.", examples=[_CITATION["title"]])
    abstract: Paragraphs = Field(
        description="What the data are about, and for what they may be used.",
        examples=[_CITATION["abstract"]],
    )
    license: Annotated[Line, AfterValidator(_licence)] = Field(
        description="Under which anybody may use the data: an SPDX identifier or expression.",
        examples=["CC-BY-4.0"],
    )
    creators: list[CreatorIO] = Field(
        min_length=1, max_length=50, description="Who made the data, in the order of a citation."
    )
    contact: Annotated[Line, AfterValidator(_contact)] | None = Field(
        None, description="E-mail address or page.", examples=["data@city.example"]
    )
    keywords: list[Line] = Field(
        default_factory=list,
        max_length=50,
        description="By which the data are found.",
        examples=[["taxi", "mobility"]],
    )
    temporal: PeriodIO | None = Field(None, description="The time that the data are about.")
    spatial: Line | None = Field(
        None, description="The place that the data are about.", examples=["City centre"]
    )

    def to_citation(self, row: PublicationRow) -> Citation:
        """As the files of the bundle state it."""
        email = self.contact if self.contact is not None and "@" in self.contact else None
        return Citation(
            title=self.title,
            abstract=self.abstract,
            issued=format_time(row.created_at),
            creators=tuple(
                creator.model_dump(exclude_none=True) | {"kind": creator.kind}
                for creator in self.creators
            ),
            contact=email or self.contact,
            licence=Licence(self.license),
            keywords=tuple(self.keywords),
            temporal=self.interval,
            spatial=self.spatial,
            version=str(row.version),
            identifier=row.id,
        )

    @property
    def interval(self) -> str | None:
        """The period as an interval of ISO 8601; an open end is `..`."""
        if self.temporal is None:
            return None
        ends = (self.temporal.start, self.temporal.end)
        return "/".join(".." if day is None else day.isoformat() for day in ends)


class PublicationIn(CitationIO):
    """A release to publish."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"release": "rl_k3v9xq2mzt7hsd4nw8cb", **_CITATION}]},
    )

    release: str = Field(max_length=64, description="Id of a release that has succeeded.")
    samples: list[Annotated[str, StringConstraints(max_length=64)]] | None = Field(
        None,
        min_length=1,
        max_length=20,
        description="Ids of the samples of this release that are its files; its first sample if"
        " omitted.",
    )
    show_budget: bool | None = Field(
        None,
        description="Whether certificate and ledger proof tell the account's totals; false if"
        " omitted.",
    )
    supersedes: str | None = Field(
        None,
        max_length=64,
        description="Id of the newest publication of a series, of which this is the next version;"
        " a series of its own begins if omitted.",
    )


class WithdrawalIn(BaseModel):
    """Why a publication is withdrawn."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"reason": "Column `fare` was published in cents."}]},
    )

    reason: Annotated[Paragraphs, StringConstraints(max_length=2000)] = Field(
        description="Shown to everybody who asks for the publication from now on."
    )


class FileOut(BaseModel):
    """One file of a publication."""

    name: str = Field(description="Name within the bundle.", examples=["README.md"])
    media_type: str = Field(description="Media type.", examples=["text/markdown"])
    size_bytes: int = Field(description="Size in bytes.", examples=[1843])
    sha256: str = Field(
        description="SHA-256 of its bytes.",
        examples=["9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"],
    )
    path: str = Field(
        description="Where it is.", examples=[f"/v1/publications/{_ID}/files/README.md"]
    )


class PublicationOut(CitationIO):
    """A release that anybody may find, cite, download and verify."""

    id: str = Field(description="Id of the publication.", examples=[_ID])
    series: str = Field(description="Id of the first publication of its series.", examples=[_ID])
    version: int = Field(description="Place in its series, from 1.", examples=[1])
    state: Literal["published"] = Field(
        description="A withdrawn publication is 410, with the dates and the reason."
    )
    supersedes: str | None = Field(description="The version before this one.", examples=[None])
    superseded_by: str | None = Field(
        description="The newest version of the series, if this is not it.", examples=[None]
    )
    published_at: Moment = Field(
        description="When it was published (UTC).", examples=["2030-01-31T12:00:00.000000Z"]
    )
    release: str = Field(
        description="The release that it publishes.", examples=["rl_k3v9xq2mzt7hsd4nw8cb"]
    )
    dataset: str = Field(
        description="Name of the dataset that it was made from.", examples=["taxi"]
    )
    synthesizer: str = Field(description="The method.", examples=["swift"])
    guarantee: dict[str, str] = Field(
        description="The guarantee of differential privacy under which it was made.",
        examples=[{"epsilon": "1", "delta": "0.000001"}],
    )
    unit: dict[str, Any] = Field(
        description="Who is protected: a row, or an entity with at most `max_rows` rows.",
        examples=[{"kind": "row"}],
    )
    samples: list[str] = Field(
        description="Ids of its samples.", examples=[["sm_b7t2nq5xv9hk3wzd8mcp"]]
    )
    bundle: str = Field(
        description="Where all its files are, as one signed archive.",
        examples=[f"/v1/publications/{_ID}/bundle"],
    )
    bundle_bytes: int = Field(description="Size of the archive.", examples=[184320])
    bundle_sha256: str = Field(
        description="SHA-256 of the archive.",
        examples=["60303ae22b998861bce3b28f33eec1be758a213c86c93c076dbe9f558c11c752"],
    )
    files: list[FileOut] = Field(description="Its files.")

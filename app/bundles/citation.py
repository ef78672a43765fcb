"""How a bundle is cited: what its custodian says of it, or what the release itself says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Licence:
    """A licence by its SPDX identifier."""

    spdx: str

    @property
    def url(self) -> str:
        return f"https://spdx.org/licenses/{self.spdx}.html"


@dataclass(frozen=True, slots=True)
class Citation:
    """Who made what, when, and under which terms.

    `creators` are `{"name": ...}`, with any of `orcid`, `affiliation`, `email` and `kind` (person
    or organization). `temporal` is ISO 8601 text such as `2020/2021`, `spatial` the name of a
    place. `identifier` is a DOI, or the id of the publication; None without one.
    """

    title: str
    abstract: str
    issued: str
    creators: tuple[Mapping[str, Any], ...] = ()
    contact: str | None = None
    licence: Licence | None = None
    keywords: tuple[str, ...] = ()
    temporal: str | None = None
    spatial: str | None = None
    version: str = "1"
    identifier: str | None = None

    @classmethod
    def of_release(cls, certificate: Mapping[str, Any]) -> Citation:
        """What a release that was not published says of itself."""
        name, synthesizer = certificate["dataset"]["name"], certificate["synthesizer"]["name"]
        return cls(
            title=f"Synthetic data of {name}",
            abstract=f"Synthetic rows that `{synthesizer}` made of the table {name} under"
            " differential privacy. No row is a real one.",
            issued=certificate["release"]["made_at"] or certificate["release"]["requested_at"],
            keywords=("synthetic data", "differential privacy"),
        )

    def as_json(self) -> dict[str, Any]:
        """All of it, for comparison."""
        return {
            "title": self.title,
            "abstract": self.abstract,
            "issued": self.issued,
            "creators": [dict(each) for each in self.creators],
            "contact": self.contact,
            "licence": None if self.licence is None else self.licence.spdx,
            "keywords": list(self.keywords),
            "temporal": self.temporal,
            "spatial": self.spatial,
            "version": self.version,
            "identifier": self.identifier,
        }

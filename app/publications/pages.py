"""Publications as pages for people, without scripts and without anything from another host."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from app.publications import linked_data
from app.publications.schemas import PublicationOut

# No script runs; the block of linked data is none.
CSP = (
    "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; frame-ancestors 'none';"
    " base-uri 'none'"
)
_pages = Environment(
    loader=PackageLoader("app.publications"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


def publication(out: PublicationOut, *, base: str) -> str:
    """The page of one publication. `base` is the address of the service, without a slash."""
    found = linked_data.schema_org(out, base=base)
    return _pages.get_template("publication.html").render(
        out=out,
        cite=cited(out, base),
        licence=found["license"],
        schema_org=_data_block(found),
    )


def catalogue(
    shown: Sequence[PublicationOut], *, title: str, q: str | None, following: str | None
) -> str:
    """A page of what is published."""
    return _pages.get_template("catalogue.html").render(
        shown=shown, title=title, q=q, next=following
    )


def withdrawn(gone: Mapping[str, Any]) -> str:
    """The page of a publication that was withdrawn, of what its 410 tells."""
    return _pages.get_template("withdrawn.html").render(gone=gone)


def cited(out: PublicationOut, base: str) -> str:
    """In one line: who, when, what, which version, where."""
    names = ", ".join(creator.name for creator in out.creators)
    return (
        f"{names} ({out.published_at.year}). {out.title}. Version {out.version}."
        f" {base}/v1/publications/{out.id}"
    )


def _data_block(document: dict[str, Any]) -> Markup:
    """JSON that a page can hold: no text in it can end the block or begin a comment."""
    text = json.dumps(document, ensure_ascii=False)
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))

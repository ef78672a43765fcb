"""The available synthesizers, and the form of each."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path
from pydantic import BaseModel, Field

from app.engine.catalog.auto import AUTO
from app.releases.catalogue import Description
from app.routers.dependencies import Caller
from app.routers.description import refusing
from app.routers.paging import Page, PageQuery, bad_cursor
from app.routers.releases import CatalogueDep
from app.routers.wire import ExactRoute

router = APIRouter(prefix="/v1", tags=["synthesizers"], route_class=ExactRoute)


class SynthesizerOut(BaseModel):
    """One method of making synthetic data."""

    name: str = Field(
        description="Name for requests. `auto` leaves the choice to the service.",
        examples=["mst"],
    )
    title: str = Field(
        description="The method in a few words.",
        examples=["Maximum spanning tree of two-way marginals"],
    )
    reference: str = Field(description="Where the method is from.")
    version: str = Field(
        description="Version of its package, as releases and certificates state it.",
        examples=["0.1.0"],
    )
    distribution: str = Field(description="The package that holds it.", examples=["halftone"])
    assurance: Literal["enforced", "declared"] = Field(
        description="`enforced`: it learns only what the kernel answers. `declared`: the admin "
        "allows it to read the bounded table, and its author vouches for the guarantee. `auto` "
        "picks only among enforced ones."
    )
    state: Literal["available", "unavailable"] = Field(
        description="`unavailable`: installed, but it does not respond.", examples=["available"]
    )


class SynthesizerFormOut(SynthesizerOut):
    """A synthesizer with the form that `params` of a release takes."""

    params: dict[str, Any] = Field(description="JSON Schema of the form.")


@router.get("/synthesizers", operation_id="list_synthesizers", summary="List synthesizers")
def list_synthesizers(_: Caller, catalogue: CatalogueDep, page: PageQuery) -> Page[SynthesizerOut]:
    """First `auto`, which picks among the built-in ones; then these; then any others installed.

    A release that names none, or `auto`, leaves the choice to the service: its preflight shows
    which one would run and why, and the release names the one that was picked.
    """
    # A third party that does not respond is listed as unavailable, so that one cannot hide the
    # rest.
    names = [AUTO, *catalogue.names()]
    if page.after is not None:
        if page.after not in names:
            raise bad_cursor()
        names = names[names.index(page.after) + 1 :]
    shown, following = page.cut(names[: page.fetch], key=str)
    items = [SynthesizerOut(**_facts(catalogue.describe(name))) for name in shown]
    return Page(items=items, next=following)


@router.get(
    "/synthesizers/{name}",
    operation_id="get_synthesizer",
    summary="One synthesizer and its params",
    responses=refusing(404),
)
def get_synthesizer(
    name: Annotated[str, Path(description="Its registered name.", max_length=64, examples=["mst"])],
    _: Caller,
    catalogue: CatalogueDep,
) -> SynthesizerFormOut:
    """Where the method is from, and the JSON Schema of the form that `params` takes.

    The form of `auto` has the params that all methods accept from which it picks.
    """
    described = catalogue.describe(name)
    return SynthesizerFormOut(**_facts(described), params=described.params_schema)


def _facts(described: Description) -> dict[str, Any]:
    return {
        "name": described.entry.name,
        "title": described.title,
        "reference": described.reference,
        "version": described.entry.version,
        "distribution": described.entry.distribution,
        "assurance": described.entry.assurance,
        "state": "available" if described.available else "unavailable",
    }

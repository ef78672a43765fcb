"""The catalogue as linked data: every parser reads it without a network, and it keeps its shape."""

from __future__ import annotations

import importlib
import warnings
from pathlib import Path
from typing import Any

import pytest
from release_world import World
from test_publications_http import made_release, publish

SHAPES = Path(__file__).with_name("dcat_shapes.ttl")
DCAT, DCT = "http://www.w3.org/ns/dcat#", "http://purl.org/dc/terms/"

HYDRA = "http://www.w3.org/ns/hydra/core#"


def library(name: str) -> Any:
    """Imported when it is needed: every process that runs tests collects this file."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return importlib.import_module(name)


def term(iri: str) -> Any:
    return library("rdflib").URIRef(iri)


def graph_of(text: str) -> Any:
    return library("rdflib").Graph().parse(data=text, format="json-ld")


def conforms(graph: Any) -> None:
    shapes = library("rdflib").Graph().parse(SHAPES)
    fits, _, told = library("pyshacl").validate(graph, shacl_graph=shapes)
    assert fits, told


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_catalogue_is_dcat(service: World) -> None:
    release = made_release(service)
    first = publish(service, release, contact="https://city.example/contact", keywords=[])
    plain = {"temporal": None, "spatial": None, "contact": None, "license": "MIT OR Apache-2.0"}
    publish(service, release, supersedes=first["id"], **plain)
    publish(
        service,
        release,
        temporal={"start": "2029-01-01"},
        creators=[{"name": "Ada", "affiliation": "City", "orcid": "0000-0002-1825-0097"}],
    )
    answer = service.http.get("/v1/publications", headers={"Accept": "application/ld+json"})
    assert answer.headers["Content-Type"] == "application/ld+json"
    graph = graph_of(answer.text)
    conforms(graph)
    assert len(set(graph.subjects(library("rdflib").RDF.type, term(f"{DCAT}Dataset")))) == 2
    one = graph_of(service.http.get(f"/v1/publications/{first['id']}?format=jsonld").text)
    conforms(one)
    (licence,) = set(one.objects(None, term(f"{DCT}license")))
    assert str(licence) == "https://spdx.org/licenses/CC-BY-4.0"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_harvester_goes_from_page_to_page(service: World) -> None:
    release = made_release(service)
    made = {publish(service, release)["id"] for _ in range(3)}
    address: Any = "/v1/publications?format=jsonld&limit=2&q=trips"
    found: list[str] = []
    while address:
        graph = graph_of(service.http.get(str(address)).text)
        conforms(graph)
        found += [str(each) for each in graph.objects(None, term(f"{DCT}identifier"))]
        address = next(graph.objects(None, term(f"{HYDRA}next")), None)
    assert sorted(found) == sorted(made)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_shape_misses_what_is_missing(service: World) -> None:
    publish(service)
    graph = graph_of(service.http.get("/v1/publications?format=jsonld").text)
    needed = [DCT + name for name in ("title", "publisher", "license")]
    for wanted in map(term, [*needed, f"{DCAT}accessURL", f"{DCAT}distribution"]):
        less = library("rdflib").Graph()
        for triple in graph:
            if triple[1] != wanted:
                less.add(triple)
        with pytest.raises(AssertionError):
            conforms(less)

"""The catalogue as linked data: every parser reads it without a network, and it keeps its shape."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
from release_world import World
from test_publications_http import made_release, publish

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import pyshacl
    import rdflib

SHAPES = Path(__file__).with_name("dcat_shapes.ttl")
DCAT = rdflib.Namespace("http://www.w3.org/ns/dcat#")
DCT = rdflib.Namespace("http://purl.org/dc/terms/")


def graph_of(text: str) -> Any:
    return rdflib.Graph().parse(data=text, format="json-ld")


def conforms(graph: Any) -> None:
    fits, _, told = pyshacl.validate(graph, shacl_graph=rdflib.Graph().parse(SHAPES))
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
    assert len(set(graph.subjects(rdflib.RDF.type, DCAT.Dataset))) == 2
    one = graph_of(service.http.get(f"/v1/publications/{first['id']}?format=jsonld").text)
    conforms(one)
    (licence,) = set(one.objects(None, DCT.license))
    assert str(licence) == "https://spdx.org/licenses/CC-BY-4.0"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_shape_misses_what_is_missing(service: World) -> None:
    publish(service)
    graph = graph_of(service.http.get("/v1/publications?format=jsonld").text)
    for wanted in (DCT.title, DCT.publisher, DCAT.accessURL, DCT.license, DCAT.distribution):
        less = rdflib.Graph()
        for triple in graph:
            if triple[1] != wanted:
                less.add(triple)
        with pytest.raises(AssertionError):
            conforms(less)

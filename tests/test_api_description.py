"""The API page's document: everything is described, and every example is true."""

from __future__ import annotations

import re
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import jsonschema_rs
import pytest

from app.engine.catalog import registry
from app.engine.files.options import FileOptions
from app.engine.schema.fields import FIELD_KEYS
from app.main import create_app
from app.problems import PROBLEM_TYPE

BINARY = ("application/vnd.apache.parquet", "application/zip", "*/*")
# Their examples name vocabularies, which are identifiers that nobody has to open.
LINKED = ("application/ld+json", "text/html")
NO_KEY_NEEDED = {"/v1/keys/signing"}
EVENTS = "text/event-stream"
"""Its schema is of one event; the example is a stream of them."""


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return create_app().openapi()


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield method, path, operation


def resolved(document: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    name = schema.get("$ref", "").removeprefix("#/components/schemas/")
    return document["components"]["schemas"][name] if name else schema


def standing_alone(document: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    return {**schema, "components": document["components"]}


def properties(schema: Any, at: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every property anywhere in a schema, with where it stands."""
    if isinstance(schema, list):
        for place, item in enumerate(schema):
            yield from properties(item, f"{at}/{place}")
    elif isinstance(schema, dict):
        for name, below in schema.get("properties", {}).items():
            yield f"{at}.{name}", below
        for key, below in schema.items():
            if key not in ("example", "examples", "default", "const", "enum"):
                yield from properties(below, f"{at}/{key}")


def contents(document: dict[str, Any]) -> Iterator[tuple[str, str, str, dict[str, Any]]]:
    for _, _, operation in operations(document):
        for status, response in operation["responses"].items():
            for kind, content in response.get("content", {}).items():
                yield operation["operationId"], status, kind, content


def test_every_operation_says_what_it_does(document: dict[str, Any]) -> None:
    known = [tag["name"] for tag in document["tags"]]
    assert all(tag["description"] for tag in document["tags"])
    named = []
    for method, path, operation in operations(document):
        at = f"{method} {path}"
        assert operation.get("summary"), at
        assert operation.get("description"), at
        assert len(operation["tags"]) == 1, at
        assert operation["tags"][0] in known, at
        named.append(operation["operationId"])
    assert len(named) == len(set(named))
    assert {operation["tags"][0] for _, _, operation in operations(document)} == set(known)


def test_every_parameter_and_response_is_described(document: dict[str, Any]) -> None:
    for method, path, operation in operations(document):
        for parameter in operation.get("parameters", []):
            assert parameter.get("description"), (method, path, parameter["name"])
        for status, response in operation["responses"].items():
            assert response.get("description"), (method, path, status)
            for name, header in response.get("headers", {}).items():
                assert header.get("description"), (method, path, name)


def test_every_field_is_described(document: dict[str, Any]) -> None:
    bodies = {
        operation["operationId"]: operation.get("requestBody", {})
        for _, _, operation in operations(document)
    }
    everywhere = [
        *properties(document["components"]["schemas"], "#"),
        *properties(bodies, "body"),
        *properties([content for *_, content in contents(document)], "answer"),
    ]
    assert len(everywhere) > 300
    bare = {
        at
        for at, schema in everywhere
        if not (schema.get("description") or resolved(document, schema).get("description"))
    }
    assert bare == set()


def test_every_successful_answer_has_an_example_that_its_schema_takes(
    document: dict[str, Any],
) -> None:
    shown = 0
    for operation, status, kind, content in contents(document):
        if not status.startswith("2") or kind in BINARY:
            continue
        assert "example" in content, (operation, status, kind)
        if kind == EVENTS:
            continue
        schema = standing_alone(document, content["schema"])
        jsonschema_rs.validator_for(schema).validate(content["example"])
        shown += 1
    assert shown > 40


def test_only_deletions_answer_without_a_body(document: dict[str, Any]) -> None:
    empty = {
        (operation["operationId"], status)
        for _, _, operation in operations(document)
        for status, response in operation["responses"].items()
        if not response.get("content")
    }
    assert {status for _, status in empty} == {"204", "304"}


def test_every_request_body_has_an_example_that_its_schema_takes(
    document: dict[str, Any],
) -> None:
    for _, _, operation in operations(document):
        content = operation.get("requestBody", {}).get("content", {}).get("application/json")
        if content is None:
            continue
        inside = resolved(document, content["schema"])
        examples = [content["example"]] if "example" in content else inside.get("examples", [])
        examples += [example["value"] for example in content.get("examples", {}).values()]
        assert examples, operation["operationId"]
        schema = standing_alone(document, content["schema"])
        for example in examples:
            jsonschema_rs.validator_for(schema).validate(example)


def test_every_refusal_is_a_problem_with_an_example(document: dict[str, Any]) -> None:
    refusals: dict[tuple[str, str], dict[str, Any]] = {}
    for operation, status, kind, content in contents(document):
        if int(status) >= 400:
            refusals.setdefault((operation, status), {})[kind] = content
    for (operation, status), kinds in refusals.items():
        # Beside it, a person may be shown a page.
        assert PROBLEM_TYPE in kinds, (operation, status)
        assert set(kinds) <= {PROBLEM_TYPE, "text/html"}, (operation, status)
        content = kinds[PROBLEM_TYPE]
        schema = standing_alone(document, content["schema"])
        jsonschema_rs.validator_for(schema).validate(content["example"])
        assert content["example"]["status"] == int(status)


def test_refusals_follow_from_the_form_of_an_operation(document: dict[str, Any]) -> None:
    for method, path, operation in operations(document):
        statuses, at = set(operation["responses"]), f"{method} {path}"
        if path.startswith("/v1/") and path not in NO_KEY_NEEDED:
            assert operation["security"], at
            assert {"401", "429", "503"} <= statuses, at
        if "requestBody" in operation:
            assert {"400", "413", "415", "422"} <= statuses, at
        else:
            assert not {"413", "415"} & statuses, at
        if "{" in path:
            assert "404" in statuses, at
        assert ("428" in statuses) == (operation["operationId"] == "set_budget"), at


def test_the_refusal_of_a_budget_has_its_fields(document: dict[str, Any]) -> None:
    refused = document["paths"]["/v1/datasets/{dataset_id}/releases"]["post"]["responses"]["409"]
    content = refused["content"][PROBLEM_TYPE]
    members = {"requested", "spent", "remaining", "scope", "limited_by", "largest_epsilon"}
    described = [name for part in content["schema"]["allOf"] for name in part.get("properties", {})]
    assert members <= set(described)
    assert members <= set(content["example"])
    assert content["example"]["type"] == "/problems/budget-exceeded"


def test_the_form_of_every_synthesizer_is_part_of_a_release(document: dict[str, Any]) -> None:
    body = document["paths"]["/v1/datasets/{dataset_id}/releases"]["post"]["requestBody"]
    form = resolved(document, body["content"]["application/json"]["schema"])
    offered = {choice["title"]: choice for choice in form["oneOf"]}
    for entry in registry.entries():
        if entry.builtin:
            params = offered[entry.name]["properties"]["params"]["anyOf"][0]
            wanted = set(registry.builtin(entry.name).Params.model_fields)
            assert set(params["properties"]) == wanted
            assert all(field.get("description") for field in params["properties"].values())


def test_the_dictionary_form_has_every_key_that_the_service_reads(
    document: dict[str, Any],
) -> None:
    body = document["paths"]["/v1/datasets"]["post"]["requestBody"]["content"]
    spec = body["application/json"]["schema"]["properties"]
    fields = spec["schema"]["properties"]["fields"]["items"]["properties"]
    assert set(fields) == FIELD_KEYS
    options = {name for name in FileOptions.__dataclass_fields__ if name != "max_bytes"}
    assert set(spec["file"]["properties"]) == options


def test_the_file_comes_after_the_spec(document: dict[str, Any]) -> None:
    body = document["paths"]["/v1/datasets"]["post"]["requestBody"]["content"]
    assert list(body["multipart/form-data"]["schema"]["properties"]) == ["spec", "file"]


def test_the_document_names_no_other_host(document: dict[str, Any]) -> None:
    shown = deepcopy(document)
    for *_, kind, content in contents(shown):
        if kind in LINKED:
            content.pop("example", None)
    named = re.findall(r"(?:https?:)?//[^\s\"'`]+", str(shown))
    assert [url for url in named if not url.startswith("//localhost")] == []
    assert "servers" not in document

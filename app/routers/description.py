"""Completes the API description: refusals, recorded examples, tags.

Each route states in its decorator which refusals are its own, by `refusing`. Those that follow
from its form (a body, parameters, a key) are added here, and so is an example of every answer.
The examples were recorded from a running service by tests/contract/api_story.py.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import cache
from importlib.resources import files
from typing import Any

from app import problems
from app.problems import PROBLEM_TYPE, HalftoneError

Responses = dict[int | str, dict[str, Any]]

SUMMARY = "Differentially private synthetic data, within a budget that cannot be overspent."
DESCRIPTION = """
A *custodian* uploads a sensitive table once and declares what is public about it (its data
dictionary), who is protected (a row, or a person with many rows) and the total privacy loss (an
epsilon and a delta). *Analysts* then request releases. The server charges the dataset's ledger,
runs a synthesizer behind the privacy kernel and serves synthetic rows. It refuses every release
that the remaining budget cannot cover.

**First steps.** Press **Authorize** and paste an API key (`hk_...`; the first start of the
service prints one). Each request below has **Try it out**, filled with an example.

1. `POST /v1/datasets`, as multipart/form-data with a table, or as JSON before `PUT .../data`.
2. `GET /v1/datasets/{dataset_id}` until its state is `ready`.
3. `POST /v1/datasets/{dataset_id}/releases`.
4. `GET /v1/releases/{release_id}` until its state is `succeeded`.
5. `GET /v1/samples/{sample_id}/data`, with the id of one of its samples.

Amounts of epsilon, delta and rho are exact decimals: send them as numbers or as text. In a
request, null is the same as omitted. A field or parameter that is unknown, or comes twice, is
refused. Every error is `application/problem+json` and names the field and the remedy. Send an
`Idempotency-Key` with each POST that creates something, so that it is safe to repeat.
Lists come in pages: send `next` of a page as `cursor` to get the next page.
"""

TAGS = [
    {
        "name": "datasets",
        "description": "Declare a table's dictionary, unit and budget; upload, read, erase.",
    },
    {
        "name": "releases",
        "description": "See what a release would cost, request it, follow it, read its results.",
    },
    {
        "name": "samples",
        "description": "Synthetic rows to download; more of them at no privacy cost.",
    },
    {
        "name": "reports",
        "description": "How good a release is; only the custodian sees exact figures.",
    },
    {
        "name": "publications",
        "description": "Releases that their custodian published: find, cite, download, verify them."
        " No key is needed where the operator has made the catalogue public.",
    },
    {
        "name": "synthesizers",
        "description": "The available methods, and the form that each takes as `params`.",
    },
    {
        "name": "ledger",
        "description": "A dataset's budget, what was spent of it, and the proof of both.",
    },
    {"name": "grants", "description": "Which analysts may use a dataset, and how much of it."},
    {"name": "principals", "description": "Who uses the service, their API keys, the audit log."},
    {"name": "signing", "description": "What bundles and certificates are verified with."},
    {"name": "health", "description": "For operators; no key needed."},
    {"name": "problems", "description": "What each type of error means; no key needed."},
]

_MEANINGS = {
    400: "The request could not be parsed.",
    401: "No valid API key.",
    403: "The caller's role does not allow this.",
    404: "It does not exist, or it is not yours: the response is the same for both.",
    408: "The body arrived too slowly; the connection is closed.",
    409: "The state of the resource does not allow this. If it is still being made, the"
    " response has `Retry-After`.",
    410: "It was published and has been withdrawn; the response says when and why.",
    412: "The resource has changed since its ETag was read.",
    413: "The body is too large, or your stored data fill the space that you are allowed.",
    415: "The body's media type is not supported here.",
    416: "The file has no byte of the range that was asked for.",
    422: "Fields must be corrected; each is named with a remedy.",
    428: "Send `If-Match` with the ETag that was read.",
    429: "Too many failed authentications from this address.",
    503: "The store is busy; nothing was changed.",
    507: "The disk of the store is full; nothing was changed.",
}
_PROBLEMS: dict[int, HalftoneError] = {
    400: problems.MalformedRequest("The body is not JSON: Expecting value at line 1 column 1."),
    401: problems.NotAuthenticated(),
    403: problems.Forbidden("Only the dataset's custodian may do this."),
    404: problems.NotFound(),
    408: problems.TooSlow(),
    409: problems.Conflict("The dataset is erased and takes no releases."),
    410: problems.Gone(
        "The publication was withdrawn: Column `fare` was published in cents.",
        extra={
            "publication_title": "Taxi trips in the city centre, synthetic, 2029",
            "version": 1,
            "published_at": "2030-01-31T12:00:00.000000Z",
            "withdrawn_at": "2030-02-01T09:30:00.000000Z",
            "reason": "Column `fare` was published in cents.",
            "superseded_by": None,
        },
    ),
    412: problems.PreconditionFailed(
        "The budget or its spending changed since you read it. Read it again, then decide."
    ),
    413: problems.TooLarge("The body may have at most 1048576 bytes."),
    415: problems.UnsupportedMedia("Send the body as application/json."),
    416: problems.RangeNotSatisfiable(184320),
    422: problems.Invalid(
        "The request has fields that must be corrected.",
        errors=[
            problems.FieldError(
                "/colour", "Extra inputs are not permitted", "Remove the field, or check its name."
            )
        ],
    ),
    428: problems.PreconditionRequired("Send `If-Match` with the ETag from GET of this budget."),
    429: problems.TooManyRequests("Too many failed authentications. Try again later.", 60),
    503: problems.Unavailable(),
    507: problems.StorageFull(),
}
_RETRY_AFTER = {
    "Retry-After": {"description": "Seconds to wait first.", "schema": {"type": "string"}}
}
_HEADERS: dict[int, dict[str, Any]] = {
    401: {
        "WWW-Authenticate": {
            "description": "The authentication scheme: Bearer.",
            "schema": {"type": "string"},
        }
    },
    429: _RETRY_AFTER,
    503: _RETRY_AFTER,
    507: _RETRY_AFTER,
}
_PROBLEM_SCHEMA: dict[str, Any] = {
    "type": "object",
    "title": "Problem",
    "description": "RFC 9457 problem details. Some types carry more members.",
    "required": ["type", "title", "status", "detail", "instance", "errors"],
    "properties": {
        "type": {"type": "string", "description": "Path of a page that explains the type."},
        "title": {"type": "string", "description": "The type in a few words; always the same."},
        "status": {"type": "integer", "description": "The HTTP status again."},
        "detail": {"type": "string", "description": "What is wrong with this request."},
        "instance": {"type": "string", "description": "Path of the request."},
        "errors": {
            "type": "array",
            "description": "Every fault that was found; empty if no field caused it.",
            "items": {
                "type": "object",
                "required": ["pointer", "message", "remedy"],
                "properties": {
                    "pointer": {
                        "type": "string",
                        "description": "JSON pointer into the body; `/query/...`, `/path/...` and"
                        " `/header/...` for parameters.",
                    },
                    "message": {"type": "string", "description": "What is wrong there."},
                    "remedy": {"type": "string", "description": "How to correct it."},
                },
            },
        },
    },
}


def refusing(*statuses: int) -> Responses:
    """The refusals of a route that do not follow from its form."""
    return {status: {"description": _MEANINGS[status]} for status in statuses}


def completed(description: dict[str, Any]) -> dict[str, Any]:
    """The description with every refusal as problem+json, examples and tags."""
    schemas = description.setdefault("components", {}).setdefault("schemas", {})
    schemas["Problem"] = _PROBLEM_SCHEMA
    # FastAPI's own form of a 422, which this service never sends.
    schemas.pop("HTTPValidationError", None)
    schemas.pop("ValidationError", None)
    description["tags"] = TAGS
    for path, method, operation in _operations(description):
        _name_refusals(path, method, operation)
        _show_examples(operation)
    return description


def completing(describe: Callable[[], dict[str, Any]]) -> Callable[[], dict[str, Any]]:
    """`describe` with its outcome completed, once."""
    # Once: the description does not change while the process runs, and takes a while to make.
    return cache(lambda: completed(describe()))


def _operations(description: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, operations in description["paths"].items():
        for method, operation in operations.items():
            yield path, method, operation


def _name_refusals(path: str, method: str, operation: dict[str, Any]) -> None:
    responses = operation["responses"]
    if "HTTPValidationError" in str(responses.get("422", "")):
        del responses["422"]
    for status in _following_from_form(method, operation):
        responses.setdefault(str(status), {"description": _MEANINGS[status]})
    for status, response in responses.items():
        if int(status) >= 400:
            shown = {"schema": {"$ref": "#/components/schemas/Problem"}}
            content = response.setdefault("content", {}).setdefault(PROBLEM_TYPE, shown)
            if int(status) in _HEADERS:
                response["headers"] = _HEADERS[int(status)]
            if "example" not in str(content):
                content["example"] = _PROBLEMS[int(status)].as_wire(path)
    operation["responses"] = dict(sorted(responses.items()))


def _following_from_form(method: str, operation: dict[str, Any]) -> list[int]:
    statuses = []
    if "requestBody" in operation:
        statuses += [400, 408, 413, 415, 422]
    if operation.get("parameters"):
        statuses.append(422)
    if operation.get("security"):
        statuses += [401, 429, 503]
        if method != "get":
            statuses.append(507)
    return statuses


def _show_examples(operation: dict[str, Any]) -> None:
    recorded = _recorded().get(operation["operationId"], {})
    body = operation.get("requestBody", {}).get("content", {}).get("application/json")
    if body and recorded.get("request") and "examples" not in body:
        body.setdefault("example", recorded["request"])
    for status, shown in recorded.get("responses", {}).items():
        content = operation["responses"].get(status, {}).get("content", {})
        for kind, example in shown.items():
            if kind in content:
                content[kind]["example"] = example


@cache
def _recorded() -> dict[str, Any]:
    text = files("app.routers").joinpath("examples.json").read_text(encoding="utf-8")
    recorded: dict[str, Any] = json.loads(text)
    return recorded

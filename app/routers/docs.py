"""The API page, its assets from the installed package, and the pages of problem types."""

from __future__ import annotations

from importlib.metadata import version
from importlib.resources import files
from typing import Annotated, Any

from fastapi import APIRouter, FastAPI, Path, Request, Response
from fastapi.openapi.docs import get_swagger_ui_html
from fastapi.responses import HTMLResponse
from fastapi.staticfiles import StaticFiles

from app.problems import PROBLEM_TYPE, NotFound, problem_types
from app.routers.wire import ExactRoute

VERSION = version("halftone")
SUMMARY = "Differentially private synthetic data, within a budget that cannot be overspent."
DESCRIPTION = """
A *custodian* uploads a sensitive table once and declares what is public about it (its data
dictionary), who is protected (a row, or a person with many rows) and how much may ever be
revealed (a total epsilon and delta). *Analysts* then ask for releases; the server charges the
dataset's ledger, runs a synthesizer behind the privacy kernel, serves synthetic rows, and
refuses whatever the remaining budget cannot cover.

Press **Authorize** and paste an API key (`hk_...`). Amounts of epsilon, delta and rho are exact
decimals: send them as numbers or as text. Every error is `application/problem+json` and names
the field and the remedy. Send an `Idempotency-Key` with each POST to make it safe to repeat.
"""
_ASSETS = files("fastapi_offline") / "static"
_PAGE_CSP = (
    "default-src 'none'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; connect-src 'self'; frame-ancestors 'none'; base-uri 'none'"
)

router = APIRouter(tags=["docs"], route_class=ExactRoute)


def install(app: FastAPI) -> None:
    """Serve the page's assets, and complete the API description."""
    app.mount("/assets", StaticFiles(directory=str(_ASSETS)), name="assets")
    describe = app.openapi

    def complete() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _with_problems(describe())
        return app.openapi_schema

    app.openapi = complete  # type: ignore[method-assign]


@router.get("/docs", include_in_schema=False)
def page(request: Request) -> HTMLResponse:
    root = request.scope.get("root_path", "").rstrip("/")
    html = get_swagger_ui_html(
        openapi_url=f"{root}/openapi.json",
        title="Halftone API",
        swagger_js_url=f"{root}/assets/swagger-ui-bundle.js",
        swagger_css_url=f"{root}/assets/swagger-ui.css",
        swagger_favicon_url=f"{root}/assets/favicon.png",
        swagger_ui_parameters={
            "persistAuthorization": True,
            "displayRequestDuration": True,
            "docExpansion": "list",
            "validatorUrl": None,
        },
    )
    html.headers["Content-Security-Policy"] = _PAGE_CSP
    return html


@router.get("/", include_in_schema=False)
def root(request: Request) -> Response:
    prefix = request.scope.get("root_path", "").rstrip("/")
    return Response(status_code=307, headers={"Location": f"{prefix}/docs"})


@router.get(
    "/problems/{slug}",
    operation_id="get_problem_type",
    summary="What a type of problem means",
    responses={
        200: {
            "content": {"text/plain": {"schema": {"type": "string"}}},
            "description": "The meaning, as text.",
        }
    },
    response_class=Response,
)
def problem_type(
    slug: Annotated[str, Path(description="The last part of a problem's `type`.")],
) -> Response:
    kind = problem_types().get(slug)
    if kind is None:
        raise NotFound
    meaning = (kind.__doc__ or kind.title).strip()
    return Response(f"{kind.title} (status {kind.status})\n\n{meaning}\n", media_type="text/plain")


_PROBLEM_SCHEMA: dict[str, Any] = {
    "type": "object",
    "description": "RFC 9457 problem details. Some types carry more members.",
    "required": ["type", "title", "status", "detail", "instance", "errors"],
    "properties": {
        "type": {"type": "string", "description": "Path of a page that explains the type."},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "instance": {"type": "string", "description": "Path of the request."},
        "errors": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["pointer", "message", "remedy"],
                "properties": {
                    "pointer": {"type": "string", "description": "JSON pointer into the body."},
                    "message": {"type": "string"},
                    "remedy": {"type": "string"},
                },
            },
        },
    },
}
_ANYWHERE = {
    "400": "The request could not be parsed.",
    "401": "No valid API key.",
    "403": "The role does not allow this.",
    "404": "Absent, or not yours.",
    "409": "The state or the budget does not allow this.",
    "412": "The resource has changed since its ETag was read.",
    "413": "The body is too large.",
    "415": "The body's media type is not taken here.",
    "422": "Fields need mending; each is named with a remedy.",
    "428": "Send If-Match with the ETag that was read.",
    "429": "Too many failed authentications.",
    "503": "The store is busy; nothing was changed.",
}
_OPEN = {"/healthz", "/readyz", "/metrics", "/problems/{slug}"}


def _responses_of(path: str, method: str, operation: dict[str, Any]) -> list[str]:
    statuses = ["400", "404", "503"]
    if path not in _OPEN:
        statuses += ["401", "403", "429"]
    if "requestBody" in operation or method in ("post", "put", "patch"):
        statuses += ["409", "413", "415", "422"]
    if operation.get("parameters"):
        statuses.append("422")
    if method in ("delete", "get"):
        statuses.append("409")
    if method == "put":
        statuses += ["412", "428"]
    return statuses


def _with_problems(description: dict[str, Any]) -> dict[str, Any]:
    """Every operation names its errors as problem+json; the framework's own form goes."""
    components = description.setdefault("components", {}).setdefault("schemas", {})
    components["Problem"] = _PROBLEM_SCHEMA
    components.pop("HTTPValidationError", None)
    components.pop("ValidationError", None)
    for path, operations in description.get("paths", {}).items():
        for method, operation in operations.items():
            responses = operation.setdefault("responses", {})
            if "HTTPValidationError" in str(responses.get("422", "")):
                del responses["422"]
            for status in _responses_of(path, method, operation):
                responses.setdefault(status, {"description": _ANYWHERE[status]}).setdefault(
                    "content", {PROBLEM_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
                )
    return description

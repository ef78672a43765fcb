"""The API page, its assets from the installed package, and the pages of problem types."""

from __future__ import annotations

from importlib.metadata import version
from importlib.resources import files
from typing import Annotated

from fastapi import APIRouter, FastAPI, Path, Request, Response
from fastapi.openapi.docs import get_swagger_ui_html
from fastapi.responses import HTMLResponse
from fastapi.staticfiles import StaticFiles

from app.problems import NotFound, problem_types
from app.routers.description import completing, refusing
from app.routers.wire import ExactRoute

VERSION = version("halftone")
_ASSETS = files("fastapi_offline") / "static"
# Swagger UI needs inline scripts and styles; everything else, and every other host, is forbidden.
_PAGE_CSP = (
    "default-src 'none'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; connect-src 'self'; frame-ancestors 'none'; base-uri 'none'"
)

router = APIRouter(tags=["problems"], route_class=ExactRoute)


def install(app: FastAPI) -> None:
    """Serve the page's assets, and complete the API description."""
    app.mount("/assets", StaticFiles(directory=str(_ASSETS)), name="assets")
    app.openapi = completing(app.openapi)  # type: ignore[method-assign]


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
            "defaultModelsExpandDepth": 0,
            # Otherwise the page would send the API description to a validator on the internet.
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
            "description": "Title, status and meaning, as text.",
            "content": {"text/plain": {"schema": {"type": "string"}}},
        },
        **refusing(404),
    },
    response_class=Response,
)
def problem_type(
    slug: Annotated[
        str,
        Path(
            description="The last part of a problem's `type`.",
            examples=["budget-exceeded"],
            max_length=64,
        ),
    ],
) -> Response:
    """The page to which the `type` of an error points. No key is needed."""
    kind = problem_types().get(slug)
    if kind is None:
        raise NotFound
    meaning = (kind.__doc__ or kind.title).strip()
    return Response(f"{kind.title} (status {kind.status})\n\n{meaning}\n", media_type="text/plain")

"""Every error is sent as problem+json, no matter what raised it."""

from __future__ import annotations

import logging
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse
from starlette.routing import Match
from starlette.staticfiles import StaticFiles

from app.database import unavailable
from app.engine.json_pointer import pointer
from app.problems import (
    PROBLEM_TYPE,
    FieldError,
    HalftoneError,
    InternalError,
    Invalid,
    MalformedRequest,
    MethodNotAllowed,
    NotFound,
    Unavailable,
    remedy_for,
)

_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")

log = logging.getLogger("halftone.http")


def problem(request: Request, error: HalftoneError) -> Response:
    return JSONResponse(
        error.as_wire(request.url.path),
        status_code=error.status,
        headers=error.headers,
        media_type=PROBLEM_TYPE,
    )


def pointer_of(location: tuple[Any, ...]) -> str:
    """JSON pointer of a pydantic error location; a query or header reads `/query/name`."""
    parts = location[1:] if location and location[0] == "body" else location
    return pointer(*parts)


def field_errors(errors: Any) -> list[FieldError]:
    """The faults that pydantic found; the sent values are never repeated."""
    return [
        FieldError(
            pointer_of(tuple(error["loc"])),
            str(error["msg"]).removeprefix("Value error, "),
            remedy_for(error["type"], "Send a value as the API description states."),
        )
        for error in errors
    ]


def _from_http(request: Request, error: HTTPException) -> HalftoneError:
    if error.status_code == 404:
        return NotFound("There is nothing at this address.")
    if error.status_code == 405:
        answer = MethodNotAllowed("This address does not take that method.")
        answer.headers["Allow"] = ", ".join(_allowed(request))
        return answer
    if error.status_code < 500:
        # The texts of the framework are not ours, and may repeat what was sent.
        return MalformedRequest("The request could not be read.")
    return InternalError()


def _allowed(request: Request) -> list[str]:
    """The methods of the address over all of its routes; the framework names those of one."""
    scope = request.scope
    if isinstance(scope.get("endpoint"), StaticFiles):
        return ["GET", "HEAD"]
    routes = request.app.router.routes
    return [
        method
        for method in _METHODS
        if any(route.matches({**scope, "method": method})[0] is Match.FULL for route in routes)
    ]


def install(app: FastAPI) -> None:
    """Register the handlers; call once when the app is made."""

    @app.exception_handler(HalftoneError)
    def known(request: Request, error: HalftoneError) -> Response:
        return problem(request, error)

    @app.exception_handler(ClientDisconnect)
    def cut_off(request: Request, _: ClientDisconnect) -> Response:
        return problem(request, MalformedRequest("The body was cut off."))

    @app.exception_handler(RequestValidationError)
    def invalid(request: Request, error: RequestValidationError) -> Response:
        if any(fault["type"] == "json_invalid" for fault in error.errors()):
            return problem(request, MalformedRequest("The body is not JSON."))
        faults = field_errors(error.errors())
        return problem(
            request, Invalid("The request has fields that must be corrected.", errors=faults)
        )

    @app.exception_handler(HTTPException)
    def http(request: Request, error: HTTPException) -> Response:
        return problem(request, _from_http(request, error))

    @app.exception_handler(PoolTimeout)
    def crowded(request: Request, _: PoolTimeout) -> Response:
        return problem(request, Unavailable())

    @app.exception_handler(DBAPIError)
    def store(request: Request, error: DBAPIError) -> Response:
        fault = unavailable(error)
        if fault is not None:
            return problem(request, fault)
        # Types only: the text of an error could hold rows or keys.
        log.error("store error of type %s at %s", type(error.orig).__name__, request.url.path)
        return problem(request, InternalError())

    @app.exception_handler(OSError)
    def system(request: Request, error: OSError) -> Response:
        fault = unavailable(error)
        if fault is None:
            raise error
        return problem(request, fault)

    @app.exception_handler(Exception)
    def unforeseen(request: Request, error: Exception) -> Response:
        log.error("unforeseen %s at %s", type(error).__name__, request.url.path)
        return problem(request, InternalError())

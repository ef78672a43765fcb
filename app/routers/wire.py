"""Requests are read in one order on every route: the key, the query's names, then the body.

JSON bodies are parsed with exact decimals, and limited in size, depth and exponents.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Coroutine, Iterator
from decimal import Decimal
from typing import Any

from anyio import to_thread
from fastapi import Request, Response
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute

from app.engine import strict_json
from app.engine.json_pointer import pointer
from app.engine.strict_json import RepeatedKey
from app.problems import FieldError, Invalid, MalformedRequest, TooLarge, UnsupportedMedia
from app.routers.dependencies import ROLE_CHECKS, caller_of, current_principal

# No amount or value needs more, and `Decimal` of 1e1000000000 would fill the memory as an int.
LARGEST_EXPONENT = 1000
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
# What a refusal repeats of an address.
_LONGEST_NAME, _MOST_FAULTS = 100, 20
JSON_TYPES = ("application/json", "application/problem+json")


def parse_json(body: bytes) -> Any:
    """Parse a body exactly: numbers with a fraction or exponent become Decimal.

    Raises `MalformedRequest` for anything that is not JSON, including NaN and Infinity, and for a
    key that an object has twice, which the error points to. It also refuses numbers with a huge
    exponent, which would take gigabytes as whole numbers, and lone surrogates, which no response
    could contain.
    """
    try:
        text = body.decode("utf-8")
        # A float could change an amount in its last digit.
        parsed = strict_json.loads(text, parse_float=_number, parse_constant=_no_constant)
        _expect_whole_characters(text, parsed)
    except RepeatedKey as error:
        raise MalformedRequest(
            "The body is ambiguous JSON: an object has a key twice.",
            errors=[
                FieldError(
                    error.pointer,
                    "The key is given more than once.",
                    "Keep one of its values; parsers differ on which of them counts.",
                )
            ],
        ) from None
    except UnicodeDecodeError:
        raise MalformedRequest("The body is not UTF-8.") from None
    except UnicodeEncodeError:
        raise MalformedRequest("The body holds half a character (a lone surrogate).") from None
    except json.JSONDecodeError as error:
        raise MalformedRequest(
            f"The body is not JSON: {error.msg} at line {error.lineno} column {error.colno}."
        ) from None
    except (ValueError, RecursionError, ArithmeticError):
        raise MalformedRequest("The body holds a number or nesting that is too large.") from None
    return parsed


def _expect_whole_characters(text: str, parsed: Any) -> None:
    """Raises `UnicodeEncodeError`; an escaped pair forms one character and is accepted."""
    if _SURROGATE.search(text):
        json.dumps(parsed, ensure_ascii=False, default=str).encode("utf-8")


def _number(written: str) -> Decimal:
    number = Decimal(written)
    if abs(number.adjusted()) > LARGEST_EXPONENT:
        raise MalformedRequest("The body holds a number that is too large or too small.")
    return number


def _no_constant(name: str) -> Any:
    raise MalformedRequest(f"{name} is not JSON.")


def media_type(request: Request) -> str:
    """The media type of the body in lower case, without parameters; "" if none is stated."""
    return request.headers.get("content-type", "").split(";")[0].strip().lower()


def refuse_large(request: Request, limit_bytes: int) -> None:
    """Refuse a declared length above the limit, before any of the body is read."""
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > limit_bytes:
        raise TooLarge(f"The body may have at most {limit_bytes} bytes.")


async def read_limited(request: Request, limit_bytes: int) -> bytes:
    """The whole body, or `TooLarge` as soon as it exceeds the limit."""
    refuse_large(request, limit_bytes)
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        # A body without a declared length, or with a false one.
        if size > limit_bytes:
            raise TooLarge(f"The body may have at most {limit_bytes} bytes.")
        parts.append(part)
    return b"".join(parts)


class ExactRoute(APIRoute):
    """A route that knows its caller before it reads anything that the caller may have made large.

    Its JSON body is limited in size and parsed without losing digits. A POST that describes no
    body refuses one, and every route a parameter that it does not have: a client could believe
    that what is ignored had an effect.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        parts = list(_parts(self.dependant))
        calls = [part.call for part in parts]
        needs_key = current_principal in calls
        roles = [check for check in ROLE_CHECKS if check in calls]
        query = {field.alias for part in parts for field in part.query_params}
        takes_json = self.body_field is not None
        takes_any = takes_json or "requestBody" in (self.openapi_extra or {})
        takes_none = "POST" in (self.methods or ()) and not takes_any

        async def exact(request: Request) -> Response:
            if needs_key:
                principal = await to_thread.run_sync(caller_of, request)
                for check in roles:
                    check(principal)
            _expect_known(request, query)
            if takes_json:
                await _parse_into(request)
            if takes_none:
                await _expect_nothing(request)
            return await handle(request)

        return exact


def _parts(dependant: Dependant) -> Iterator[Dependant]:
    """The route's own form and those of all that it depends on."""
    yield dependant
    for below in dependant.dependencies:
        yield from _parts(below)


def _expect_known(request: Request, names: Collection[str]) -> None:
    """Raises `Invalid` with every parameter of the query that is unknown or comes twice."""
    times = Counter(name for name, _ in request.query_params.multi_items())
    faults = [
        FieldError(
            pointer("query", name[:_LONGEST_NAME]),
            "The parameter is given more than once.",
            "Send it once.",
        )
        if name in names
        else FieldError(
            pointer("query", name[:_LONGEST_NAME]),
            "There is no such parameter here.",
            f"Send only {listed}." if (listed := _listed(names)) else "Send none.",
        )
        for name, number in times.items()
        if number > 1 or name not in names
    ]
    if faults:
        raise Invalid(
            "The address has parameters that must be corrected.", errors=faults[:_MOST_FAULTS]
        )


def _listed(names: Collection[str]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(names))


async def _expect_nothing(request: Request) -> None:
    async for part in request.stream():
        if part:
            raise Invalid.at("", "The operation takes no body.", "Send none.")
    request._body = b""


async def _parse_into(request: Request) -> None:
    body = await read_limited(request, request.app.state.settings.max_body_bytes)
    if body and media_type(request) not in JSON_TYPES:
        raise UnsupportedMedia("Send the body as application/json.")
    request._body = body
    if body:
        request._json = parse_json(body)

"""The exception tree and its one mapping to problem+json (RFC 9457).

HalftoneError
├── MalformedRequest          400
├── NotAuthenticated          401
├── Forbidden                 403
├── NotFound                  404
├── TooSlow                   408
├── Conflict                  409
│   ├── BudgetExceeded
│   └── NotReady
├── Gone                      410
├── PreconditionFailed        412
├── PreconditionRequired      428
├── TooLarge                  413
├── UnsupportedMedia          415
├── RangeNotSatisfiable       416
├── Invalid                   422
├── TooManyRequests           429
├── HeadTooLarge              431
└── Unavailable               503
    └── StorageFull           507
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

PROBLEM_TYPE = "application/problem+json"


@dataclass(frozen=True, slots=True)
class FieldError:
    """One fault: where (JSON pointer), what, and how to correct it."""

    pointer: str
    message: str
    remedy: str

    def as_wire(self) -> dict[str, str]:
        return {"pointer": self.pointer, "message": self.message, "remedy": self.remedy}


_REMEDIES = {
    "missing": "Add the field.",
    "extra_forbidden": "Remove the field, or check its spelling.",
    "literal_error": "Send one of the values that the message lists.",
    "enum": "Send one of the values that the message lists.",
    "union_tag_invalid": "Send one of the values that the message lists.",
    "greater_than": "Send a larger value.",
    "greater_than_equal": "Send a larger value.",
    "less_than": "Send a smaller value.",
    "less_than_equal": "Send a smaller value.",
    "value_error": "Correct it as the message says.",
}


def remedy_for(fault: str, otherwise: str) -> str:
    """The remedy for a fault that pydantic found, by pydantic's name for its type."""
    return _REMEDIES.get(fault, otherwise)


class HalftoneError(Exception):
    """Base of all errors that a caller may see; `detail` never holds private data."""

    status: ClassVar[int] = 500
    slug: ClassVar[str] = "internal"
    title: ClassVar[str] = "Internal error"

    def __init__(
        self,
        detail: str,
        *,
        errors: Sequence[FieldError] = (),
        headers: Mapping[str, str] | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(detail)
        self.detail = detail
        self.errors = tuple(errors)
        self.headers = dict(headers or {})
        self.extra = dict(extra or {})

    def as_wire(self, instance: str) -> dict[str, Any]:
        return {
            "type": f"/problems/{self.slug}",
            "title": self.title,
            "status": self.status,
            "detail": self.detail,
            "instance": instance,
            "errors": [error.as_wire() for error in self.errors],
            **self.extra,
        }


class MalformedRequest(HalftoneError):
    """The request cannot be parsed: broken JSON, NaN, a broken header."""

    status, slug, title = 400, "malformed-request", "Malformed request"


class NotAuthenticated(HalftoneError):
    """No valid API key came with the request."""

    status, slug, title = 401, "not-authenticated", "Authentication required"

    def __init__(self, detail: str = "Send a valid API key as `Authorization: Bearer hk_...`."):
        super().__init__(detail, headers={"WWW-Authenticate": 'Bearer realm="halftone"'})


class Forbidden(HalftoneError):
    """The principal's role does not allow the operation."""

    status, slug, title = 403, "forbidden", "Not allowed"


class NotFound(HalftoneError):
    """It does not exist, or it is not yours: the response is the same for both."""

    status, slug, title = 404, "not-found", "Not found"

    def __init__(self, detail: str = "There is no such resource, or it is not yours.") -> None:
        super().__init__(detail)


class MethodNotAllowed(HalftoneError):
    """The address exists but does not take that method; `Allow` names those it takes."""

    status, slug, title = 405, "method-not-allowed", "Method not allowed"


class Gone(HalftoneError):
    """It was published and has been withdrawn; the response says when and why."""

    status, slug, title = 410, "gone", "Withdrawn"


class TooSlow(HalftoneError):
    """The body stopped arriving, or arrives too slowly; the connection is closed."""

    status, slug, title = 408, "too-slow", "Request too slow"

    def __init__(self) -> None:
        super().__init__(
            "The body did not arrive in time. Nothing was changed; send the request again, and the"
            " body without a pause."
        )


class Conflict(HalftoneError):
    """The resource's state does not allow the operation."""

    status, slug, title = 409, "conflict", "Conflict"


class NotReady(Conflict):
    """The requested result is still being made; `Retry-After` says when to try again."""

    slug, title = "not-ready", "Not ready yet"

    def __init__(self, detail: str, retry_after_s: int = 1) -> None:
        super().__init__(detail, headers={"Retry-After": str(retry_after_s)})


class BudgetExceeded(Conflict):
    """The remaining budget cannot cover the request. Amounts are in the account's terms."""

    slug, title = "budget-exceeded", "The privacy budget cannot cover this"

    def __init__(
        self,
        detail: str,
        *,
        requested: Mapping[str, str],
        spent: Mapping[str, str] | None,
        remaining: Mapping[str, str] | None,
        scope: str,
        limited_by: str | None,
        largest_epsilon: str | None,
        requested_as_epsilon: Mapping[str, str] | None = None,
        spent_as_epsilon: Mapping[str, str] | None = None,
        remaining_as_epsilon: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(
            detail,
            extra={
                "requested": requested,
                "requested_as_epsilon": requested_as_epsilon,
                "spent": spent,
                "spent_as_epsilon": spent_as_epsilon,
                "remaining": remaining,
                "remaining_as_epsilon": remaining_as_epsilon,
                "scope": scope,
                "limited_by": limited_by,
                "largest_epsilon": largest_epsilon,
            },
        )


class PreconditionFailed(HalftoneError):
    """The resource changed since the version that `If-Match` names; read it again."""

    status, slug, title = 412, "precondition-failed", "Precondition failed"


class PreconditionRequired(HalftoneError):
    """The change must name, in `If-Match`, the version that it is about."""

    status, slug, title = 428, "precondition-required", "Precondition required"


class TooLarge(HalftoneError):
    """The body exceeds a limit of the service, which the detail names."""

    status, slug, title = 413, "too-large", "Request too large"


class RangeNotSatisfiable(HalftoneError):
    """The file has no byte of the range that was asked for; `Content-Range` tells its size."""

    status, slug, title = 416, "range-not-satisfiable", "Range not satisfiable"

    def __init__(self, size_bytes: int) -> None:
        super().__init__(
            f"The file has {size_bytes} bytes.", headers={"Content-Range": f"bytes */{size_bytes}"}
        )


class UnsupportedMedia(HalftoneError):
    """The body has a media type that the operation does not accept."""

    status, slug, title = 415, "unsupported-media-type", "Unsupported media type"


class Invalid(HalftoneError):
    """Well-formed, but not acceptable; each fault is in `errors`."""

    status, slug, title = 422, "invalid", "Invalid request"

    @classmethod
    def at(cls, pointer: str, message: str, remedy: str) -> Invalid:
        return cls(message, errors=[FieldError(pointer, message, remedy)])


class TooManyRequests(HalftoneError):
    """Too many attempts failed; `Retry-After` says when to try again."""

    status, slug, title = 429, "too-many-requests", "Too many requests"

    def __init__(self, detail: str, retry_after_s: int) -> None:
        super().__init__(detail, headers={"Retry-After": str(retry_after_s)})


class HeadTooLarge(HalftoneError):
    """Address and headers are longer than the service accepts."""

    status, slug, title = 431, "head-too-large", "Request head too large"

    def __init__(self, limit_bytes: int) -> None:
        super().__init__(f"Address and headers may have at most {limit_bytes} bytes together.")


class InternalError(HalftoneError):
    """A fault of the service itself; its detail is constant."""

    def __init__(self) -> None:
        super().__init__("The service has failed internally. The request was not carried out.")


class Unavailable(HalftoneError):
    """The store cannot take the request now; nothing was changed."""

    status, slug, title = 503, "unavailable", "Temporarily unavailable"

    def __init__(
        self,
        detail: str = "The store is busy. Nothing was changed; send the request again.",
        retry_after_s: int = 1,
    ) -> None:
        super().__init__(detail, headers={"Retry-After": str(retry_after_s)})


class StorageFull(Unavailable):
    """The disk of the store is full; nothing was changed."""

    status, slug, title = 507, "storage-full", "No space left"

    def __init__(
        self,
        detail: str = "The disk of the store is full. Nothing was changed; send the request again"
        " once the operator has made room.",
        retry_after_s: int = 60,
    ) -> None:
        super().__init__(detail, retry_after_s)


def problem_types() -> dict[str, type[HalftoneError]]:
    """Every problem that the service can answer with, by slug."""
    found: dict[str, type[HalftoneError]] = {}
    pending: list[type[HalftoneError]] = [HalftoneError]
    while pending:
        kind = pending.pop()
        pending.extend(kind.__subclasses__())
        found.setdefault(kind.slug, kind)
    return dict(sorted(found.items()))

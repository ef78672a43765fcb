"""What can go wrong, as types with fields.

HalftoneError
├── ServiceUnreachable        no answer came, after every retry
├── Timeout                   the caller's own deadline passed while waiting for a job
├── JobFailed                 a release or sample ended without a result
│   └── UploadRejected        a table does not follow its dictionary, or may not come in
└── RequestRefused            the service answered with a problem (RFC 9457)
    ├── NotAuthenticated      401
    ├── NotAllowed            403
    ├── NotFound              404
    ├── Conflict              409, and 412: it was changed meanwhile
    │   └── BudgetExceeded    409, what was asked for does not fit the budget
    ├── Withdrawn             410, a publication that was taken back
    ├── TooLarge              413
    ├── ValidationFailed      400, 415 and 422: what is wrong stands in `errors`
    ├── TooManyRequests       429
    └── ServiceFailed         5xx
        └── ServiceUnavailable    503
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import httpx

Amounts = Mapping[str, Decimal]
"""Epsilon, rho or delta by name, exact."""

_GROUPS_SHOWN = 20
_EXAMPLES_SHOWN = 2


class HalftoneError(Exception):
    """Base of every error this package raises on purpose."""


class ServiceUnreachable(HalftoneError):
    """No answer came. The httpx error is the `__cause__`."""


class Timeout(HalftoneError):
    """The job is still going on; `record` is its last known state. Wait again to go on."""

    def __init__(self, message: str, record: Mapping[str, Any]) -> None:
        super().__init__(message)
        self.record = record


class JobFailed(HalftoneError):
    """The job ended without a result; `record` is how it ended."""

    def __init__(self, message: str, record: Mapping[str, Any]) -> None:
        super().__init__(message)
        self.record = record


class UploadRejected(JobFailed):
    """The table was not taken; `report` is the ingest report. Not private: for the custodian.

    `record` is the dataset, which still awaits a table that can be taken. The text has the problems
    by column and cause, the most frequent first, with their number and a few examples.
    """

    def __init__(self, record: Mapping[str, Any], report: Mapping[str, Any]) -> None:
        self.report = report
        count = report["problem_count"]
        noun = "problem" if count == 1 else "problems"
        lines = [f"{record['id']} is {record['state']}: {count} {noun}"]
        groups = report["problem_groups"]
        for group in groups[:_GROUPS_SHOWN]:
            lines += _group_lines(group)
        if len(groups) > _GROUPS_SHOWN:
            lines.append(f"  and {len(groups) - _GROUPS_SHOWN} more columns or causes")
        super().__init__("\n".join(lines), record)


def _group_lines(group: Mapping[str, Any]) -> list[str]:
    """A line for the problems of one column and cause, and one for each example."""
    where = "" if group["column"] is None else f"column {group['column']}, "
    lines = [f"  {where}{group['cause'].replace('_', ' ')}: {group['count']}"]
    for example in group["examples"][:_EXAMPLES_SHOWN]:
        row = "" if example["row"] is None else f"row {example['row']}: "
        lines.append(f"    {row}{example['message']} ({example['remedy']})")
    return lines


@dataclass(frozen=True, slots=True)
class FieldError:
    """One thing wrong with a request: where (JSON pointer), what, and what to do about it."""

    pointer: str
    message: str
    remedy: str

    def __str__(self) -> str:
        where = f"{self.pointer}: " if self.pointer else ""
        remedy = f" ({self.remedy})" if self.remedy else ""
        return f"{where}{self.message}{remedy}"


class RequestRefused(HalftoneError):
    """The service's answer was a problem; `problem` is its whole body."""

    def __init__(self, response: httpx.Response, problem: Mapping[str, Any]) -> None:
        self.status = response.status_code
        self.problem = problem
        self.type = str(problem.get("type") or "about:blank")
        self.title = str(problem.get("title") or response.reason_phrase)
        self.detail = str(problem.get("detail") or "")
        self.retry_after = retry_after_s(response)
        self.errors = tuple(
            FieldError(*(str(error.get(name) or "") for name in ("pointer", "message", "remedy")))
            for error in problem.get("errors") or ()
        )
        super().__init__(self._describe())

    def _describe(self) -> str:
        headline = f"{self.status} {self.title}"
        lines = [f"{headline}: {self.detail}" if self.detail else headline]
        lines += [f"  {error}" for error in self.errors]
        return "\n".join(lines + [f"  {figure}" for figure in self._figures()])

    def _figures(self) -> list[str]:
        """What else the message tells, a line each."""
        return [] if self.retry_after is None else [f"try again in {self.retry_after:g} s"]


class NotAuthenticated(RequestRefused):
    """The key is missing, wrong, revoked or expired."""


class NotAllowed(RequestRefused):
    """The key is good but its principal may not do this."""


class NotFound(RequestRefused):
    """It does not exist, or it is not yours; the service does not say which."""


class Conflict(RequestRefused):
    """The request does not go with the present state."""


class Withdrawn(RequestRefused):
    """It was published and has been taken back; `reason` says why."""

    @property
    def reason(self) -> str:
        return str(self.problem.get("reason") or "")

    def _figures(self) -> list[str]:
        names = ("version", "published_at", "withdrawn_at", "superseded_by")
        told = [(name.replace("_", " "), self.problem.get(name)) for name in names]
        return [f"{name} {value}" for name, value in told if value is not None]


class TooLarge(RequestRefused):
    """The body is larger than the service accepts."""


class ValidationFailed(RequestRefused):
    """The request is malformed; `errors` says where and what to do."""


class TooManyRequests(RequestRefused):
    """Come back in `retry_after` seconds (None when the service did not say)."""


class ServiceFailed(RequestRefused):
    """The service could not do its part."""


class ServiceUnavailable(ServiceFailed):
    """Come back in `retry_after` seconds (None when the service did not say)."""


class BudgetExceeded(Conflict):
    """The release does not fit; nothing was charged.

    `scope` is "account" or "grant", `limited_by` epsilon, delta or rho. `limited_by`, `spent`,
    `remaining` and `largest_epsilon` (at the request's own delta) are None where the service keeps
    them back or, for the last, where nothing fits any more. On an account in rho, the amounts
    `..._as_epsilon` tell the same as epsilon at the delta beside it; elsewhere they are None.
    """

    def _figures(self) -> list[str]:
        figures = [
            f"{name} {_told(amounts, in_epsilon)}"
            for name, amounts, in_epsilon in (
                ("requested", self.requested, self.requested_as_epsilon),
                ("spent", self.spent, self.spent_as_epsilon),
                ("remaining", self.remaining, self.remaining_as_epsilon),
            )
            if amounts is not None
        ]
        if self.largest_epsilon is not None:
            figures.append(f"largest epsilon that fits {self.largest_epsilon}")
        return figures

    @property
    def requested(self) -> Amounts | None:
        return _amounts(self.problem.get("requested"))

    @property
    def requested_as_epsilon(self) -> Amounts | None:
        return _amounts(self.problem.get("requested_as_epsilon"))

    @property
    def spent(self) -> Amounts | None:
        return _amounts(self.problem.get("spent"))

    @property
    def spent_as_epsilon(self) -> Amounts | None:
        return _amounts(self.problem.get("spent_as_epsilon"))

    @property
    def remaining(self) -> Amounts | None:
        return _amounts(self.problem.get("remaining"))

    @property
    def remaining_as_epsilon(self) -> Amounts | None:
        return _amounts(self.problem.get("remaining_as_epsilon"))

    @property
    def scope(self) -> str:
        return str(self.problem["scope"])

    @property
    def limited_by(self) -> str | None:
        limit = self.problem.get("limited_by")
        return None if limit is None else str(limit)

    @property
    def largest_epsilon(self) -> Decimal | None:
        largest = self.problem.get("largest_epsilon")
        return None if largest is None else Decimal(largest)


_BY_STATUS: Mapping[int, type[RequestRefused]] = {
    400: ValidationFailed,
    401: NotAuthenticated,
    403: NotAllowed,
    404: NotFound,
    409: Conflict,
    410: Withdrawn,
    412: Conflict,
    413: TooLarge,
    415: ValidationFailed,
    422: ValidationFailed,
    429: TooManyRequests,
    503: ServiceUnavailable,
}


def refusal(response: httpx.Response) -> RequestRefused:
    """The error that stands for a response which is no success."""
    problem = _problem(response)
    if response.status_code == 409 and str(problem.get("type")).endswith("/budget-exceeded"):
        return BudgetExceeded(response, problem)
    fallback = ServiceFailed if response.status_code >= 500 else RequestRefused
    return _BY_STATUS.get(response.status_code, fallback)(response, problem)


def retry_after_s(response: httpx.Response) -> float | None:
    """Seconds the service asks to wait; None when it does not say so in seconds."""
    text = response.headers.get("Retry-After", "")
    return float(text) if text.isascii() and text.isdigit() else None


def _problem(response: httpx.Response) -> Mapping[str, Any]:
    """The problem document; empty when something between answered in its own words."""
    try:
        body = json.loads(response.content, parse_float=Decimal)
    except ValueError:
        return {}
    return body if isinstance(body, dict) else {}


def _told(amounts: Amounts, in_epsilon: Amounts | None) -> str:
    told = ", ".join(f"{name} {amount}" for name, amount in amounts.items())
    if in_epsilon is None:
        return told
    return f"{told} (epsilon {in_epsilon['epsilon']} at delta {in_epsilon['delta']})"


def _amounts(wire: Mapping[str, Any] | None) -> Amounts | None:
    if wire is None:
        return None
    return {name: Decimal(value) for name, value in wire.items() if value is not None}

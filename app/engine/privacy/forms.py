"""Forms of headers: what a frame may say, as types that pydantic checks.

A form is a `TypedDict`. What is sent is built as one, which the type checker holds to the form;
what arrives is read by a `Reader` of the same form, which trusts nothing. Where several forms
may stand in one place they are a union: of `type`, where each names itself, or else of the
field that one alone has (`discriminated_by`).
"""

from __future__ import annotations

from typing import Annotated, Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import (
    ConfigDict,
    Discriminator,
    FailFast,
    Field,
    TypeAdapter,
    ValidationError,
    with_config,
)
from typing_extensions import TypedDict

from app.engine.privacy.wire import FrameError

T = TypeVar("T")
F = TypeVar("F")

Whole = Annotated[int, Field(gt=-(2**63), lt=2**63)]


class _FirstError(FailFast):
    """Ends the reading of a list at the first wrong item, since a list of a million of them
    would otherwise make a million reports. Hashable, so that such a list can be in a union."""

    __hash__ = object.__hash__


Items = Annotated[list[T], _FirstError()]


@with_config(ConfigDict(strict=True, extra="forbid", allow_inf_nan=False, defer_build=True))
class Form(TypedDict):
    """What all forms have in common: no text or bool stands for a number, no field is unknown.

    They are dictionaries because a selection may have thousands of candidates: pydantic reads
    5,000 of them in 14 ms as dictionaries, in 28 ms as models.
    """


class Reader(Generic[F]):
    """Reads the JSON of one form, or of one union of forms."""

    def __init__(self, form: Any) -> None:
        self._adapter: TypeAdapter[F] = TypeAdapter(form)

    def __call__(self, value: Any) -> F:
        """Raises `FrameError`, which never quotes what arrived."""
        try:
            return self._adapter.validate_python(value)
        except ValidationError:
            raise FrameError("a field is missing or unknown, or has a value it may not") from None


def discriminated_by(*fields: str) -> Discriminator:
    """Finds the form of an object by the first of `fields` that it has, else by the last."""

    def tag(value: Any) -> str | None:
        if not isinstance(value, dict):
            return None
        return next((field for field in fields if field in value), fields[-1])

    return Discriminator(tag)


def integers(array: NDArray[Any]) -> NDArray[np.int64]:
    """The same integers, int64. Raises `FrameError` for anything else."""
    if array.dtype.kind not in "iu" or array.dtype == np.uint64:  # which int64 need not hold
        raise FrameError("an array holds integers")
    return array.astype(np.int64)


def finite_numbers(array: NDArray[Any]) -> NDArray[np.float64]:
    """Raises `FrameError` unless all are finite 64-bit floats."""
    if array.dtype != np.float64 or not np.isfinite(array).all():
        raise FrameError("an array holds finite numbers")
    return array

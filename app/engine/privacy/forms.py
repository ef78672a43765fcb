"""Forms of headers: frozen dataclasses that pydantic reads from JSON and writes as JSON.

A header is the JSON part of a frame (see `wire`), the message between a worker and a
synthesizer's process. A `Form` states once which fields a header has. What arrives is read by
the `Reader` of a form, which trusts nothing. A field that travels in another shape than it has here
says so by `wired` or `in_frame`, and one that is not in the header at all by `Elsewhere`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, ClassVar, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import (
    ConfigDict,
    Discriminator,
    FailFast,
    Field,
    GetCoreSchemaHandler,
    Strict,
    TypeAdapter,
    ValidationError,
    with_config,
)
from pydantic_core import CoreSchema, PydanticSerializationError, core_schema
from typing_extensions import TypedDict

from app.engine.privacy.wire import FrameError

T = TypeVar("T")
F = TypeVar("F")

_STRICT = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)
Whole = Annotated[int, Field(gt=-(2**63), lt=2**63)]


class Disallowed(FrameError):
    """A header has the right fields, and a value that is not allowed.

    The text is that of the `ValueError` which the value's own check raised.
    """


class _FirstError(FailFast):
    """Ends the reading of a list at the first wrong item, since a list of a million of them
    would otherwise make a million reports. Hashable, so that such a list can be in a union."""

    __hash__ = object.__hash__


# In the strict mode of all other fields only a tuple would make a tuple, and JSON has lists.
Items = Annotated[tuple[T, ...], _FirstError(), Strict(False)]


@with_config(_STRICT)
class Shape(TypedDict):
    """A form of what is no object of its own here, such as a reference by number."""


class Form:
    """What all forms have in common: no text or bool stands for a number, no field is unknown,
    and none is missing. Only a field in `_may_lack` is left out, if it has the value given there.

    `_inline` is a field whose own fields, of these names, stand in the header instead of it.
    """

    __slots__ = ()
    __pydantic_config__: ClassVar = _STRICT
    _may_lack: ClassVar[Mapping[str, Any]] = {}
    _inline: ClassVar[tuple[str, tuple[str, ...]] | None] = None

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        schema = handler(source)
        form: Any = handler.resolve_ref_schema(schema)
        # In strict mode pydantic accepts a dataclass as an instance only, and not as an object of
        # JSON. The fields stay strict.
        form["strict"] = False
        for field in form["schema"]["fields"]:
            # Defaults are for calls in Python. A header must state every field: it is hashed, so
            # the same question must always be the same bytes.
            if field["schema"]["type"] == "default" and field["name"] not in cls._may_lack:
                field["schema"] = field["schema"]["schema"]
        if cls._inline is not None:
            schema = core_schema.no_info_before_validator_function(cls._gathered, schema)
        if cls._inline is not None or cls._may_lack:
            schema = {**schema}
            schema["serialization"] = core_schema.wrap_serializer_function_ser_schema(
                cls._scattered, schema=schema.copy()
            )
        return schema

    @classmethod
    def _gathered(cls, header: Any) -> Any:
        assert cls._inline is not None
        field, names = cls._inline
        if not isinstance(header, dict) or field in header:
            raise FrameError("a header is no object, or has a field that it may not have")
        outer = dict(header)
        outer[field] = {name: outer.pop(name) for name in names if name in header}
        return outer

    @classmethod
    def _scattered(cls, value: Any, write: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
        header = write(value)
        if cls._inline is not None:
            header |= header.pop(cls._inline[0])
        for name, plain in cls._may_lack.items():
            if header[name] == plain:
                del header[name]
        return header


@dataclass(frozen=True, eq=False)
class Wired:
    """`read` makes a field's value of what arrived as `form`; `write` does the opposite."""

    form: Any
    read: Callable[[Any, Any], Any]
    write: Callable[[Any, Any], Any]

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.with_info_after_validator_function(
            self.read,
            handler.generate_schema(self.form),
            serialization=core_schema.plain_serializer_function_ser_schema(
                self.write, info_arg=True
            ),
        )


def wired(form: Any, read: Callable[[Any], Any], write: Callable[[Any], Any]) -> Wired:
    """A field whose value is made of its own `form` alone."""
    return Wired(form, lambda value, _: read(value), lambda value, _: write(value))


def in_frame(form: Any, method: str) -> Wired:
    """A field whose value stands elsewhere in the frame, where `form` points.

    The context of reading or writing, an `Unpacking` or a `Packing`, has a `method` for it.
    """

    def follow(value: Any, info: Any) -> Any:
        return getattr(info.context, method)(value)

    return Wired(form, follow, follow)


class _Unread:
    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> CoreSchema:
        return core_schema.any_schema()


# A field that is not in the header: the caller gives its value to the `Reader`.
Elsewhere = Annotated[T, Field(exclude=True), _Unread()]


class Reader(Generic[F]):
    """Reads the JSON of one form, or of one union of forms, and writes it."""

    def __init__(self, form: Any) -> None:
        self._form = form

    @cached_property
    def _adapter(self) -> TypeAdapter[F]:
        # Made when first used: a program that loads the forms need not read any.
        return TypeAdapter(self._form)

    def __call__(self, value: Any, context: Any = None, **elsewhere: Any) -> F:
        """Raises `FrameError`, or its subclass `Disallowed`. Neither quotes what arrived."""
        if elsewhere:
            # A header must not set, or be overridden by, what the caller gives.
            if not isinstance(value, dict) or elsewhere.keys() & value.keys():
                raise FrameError("a header has a field that only the reader may set")
            value = {**value, **elsewhere}
        try:
            return self._adapter.validate_python(value, context=context)
        except ValidationError as error:
            faults = error.errors(include_url=False, include_input=False)
        if all(fault["type"] == "value_error" for fault in faults):
            raise Disallowed(str(faults[0]["ctx"]["error"]))
        raise FrameError("a field is missing or unknown, or has a value it may not")

    def write(self, value: F, context: Any = None) -> Any:
        """JSON that reads as `value`. Raises what a `Packing` raises."""
        try:
            # Without warnings: a whole number may be given for a float, and is written as one.
            return self._adapter.dump_python(
                value, mode="json", by_alias=True, context=context, warnings=False
            )
        except PydanticSerializationError as error:
            # Pydantic hides a refusal made while a part was written, which the caller must see.
            raise (error.__cause__ or error) from None


class Tagged(Generic[F]):
    """Headers of several forms, which their `type` tells apart."""

    def __init__(self, forms: Mapping[str, type[F]]) -> None:
        self._readers: dict[str, Reader[F]] = {kind: Reader(form) for kind, form in forms.items()}
        self._kinds = {form: kind for kind, form in forms.items()}

    def read(self, header: Mapping[str, Any], context: Any = None, **elsewhere: Any) -> F:
        """Raises `FrameError`, or its subclass `Disallowed`."""
        fields = dict(header)
        kind = fields.pop("type", None)
        if not isinstance(kind, str) or kind not in self._readers:
            raise FrameError("the `type` of a header is missing or unknown")
        return self._readers[kind](fields, context, **elsewhere)

    def write(self, value: F, context: Any = None) -> dict[str, Any]:
        kind = self._kinds[type(value)]
        return {"type": kind, **self._readers[kind].write(value, context)}


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

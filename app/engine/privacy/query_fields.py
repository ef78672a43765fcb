"""Reading the JSON of a frame by type, trusting nothing: what does not fit is a `FrameError`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from app.engine.privacy.wire import FrameError

S = TypeVar("S", bound=str)


def all_integers(value: Any) -> bool:
    return isinstance(value, list) and all(
        type(item) is int and abs(item) < 2**62 for item in value
    )


class Fields:
    """A JSON object with exactly the keys it should have, read by type."""

    def __init__(self, value: Any, keys: set[str]) -> None:
        if not isinstance(value, dict) or set(value) != keys:
            raise FrameError("an object has other fields than it should")
        self._value = value

    def value(self, key: str) -> Any:
        return self._value[key]

    def text(self, key: str) -> str:
        return text(self._value[key])

    def integer(self, key: str) -> int:
        return integer(self._value[key])

    def number(self, key: str) -> float:
        return number(self._value[key])

    def items(self, key: str) -> list[Any]:
        return _of_type(self._value[key], lambda value: isinstance(value, list))  # type: ignore[no-any-return]

    def mapping(self, key: str) -> dict[Any, Any]:
        return _of_type(self._value[key], lambda value: isinstance(value, dict))  # type: ignore[no-any-return]


def one_of(allowed: tuple[S, ...], value: str) -> S:
    for each in allowed:
        if each == value:
            return each
    raise FrameError("a field has another value than it may")


def _of_type(value: Any, is_right: Callable[[Any], bool]) -> Any:
    if not is_right(value):
        raise FrameError("a field has another type than it should")
    return value


def text(value: Any) -> str:
    return str(_of_type(value, lambda value: isinstance(value, str)))


def integer(value: Any) -> int:
    return int(_of_type(value, lambda value: type(value) is int and abs(value) < 2**63))


def number(value: Any) -> float:
    if type(value) not in (int, float):
        raise FrameError("a field has another type than it should")
    try:
        return float(value)
    except OverflowError:
        raise FrameError("a number is out of range") from None

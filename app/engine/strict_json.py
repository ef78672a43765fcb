"""JSON in which no object has a key twice.

Parsers differ on which of two values counts (RFC 8259, section 4), so that a reader and this
service could understand one text differently.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from app.engine.json_pointer import pointer


class RepeatedKey(ValueError):
    """An object has a key twice; `pointer` leads to it."""

    def __init__(self, where: str, key: str) -> None:
        super().__init__(f"the key {json.dumps(key)} is there twice")
        self.pointer = where
        self.key = key


class _Ambiguous(dict[str, Any]):
    """An object with a repeated key; the last value stands."""

    key: str


def loads(
    text: str | bytes,
    *,
    parse_int: Callable[[str], Any] | None = None,
    parse_float: Callable[[str], Any] | None = None,
    parse_constant: Callable[[str], Any] | None = None,
) -> Any:
    """As `json.loads`, but raises `RepeatedKey` for the first key that is repeated."""
    is_ambiguous = False

    def object_of(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(pairs)
        if len(made) == len(pairs):
            return made
        nonlocal is_ambiguous
        is_ambiguous = True
        ambiguous = _Ambiguous(made)
        ambiguous.key = _first_repeated(pairs)
        return ambiguous

    parsed = json.loads(
        text,
        object_pairs_hook=object_of,
        parse_int=parse_int,
        parse_float=parse_float,
        parse_constant=parse_constant,
    )
    if is_ambiguous:
        # The parser does not know where in the text an object is, so its place is found here. An
        # object that a repetition replaced is not in `parsed`, but then the replacing one is.
        found, parts = next(_ambiguous(parsed, ()))
        raise RepeatedKey(pointer(*parts, found.key), found.key)
    return parsed


def _first_repeated(pairs: list[tuple[str, Any]]) -> str:
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            return key
        seen.add(key)
    raise AssertionError("no key is repeated")


def _ambiguous(
    value: Any, parts: tuple[str | int, ...]
) -> Iterator[tuple[_Ambiguous, tuple[str | int, ...]]]:
    if isinstance(value, _Ambiguous):
        yield value, parts
    below: Iterable[tuple[str | int, Any]] = ()
    if isinstance(value, dict):
        below = value.items()
    elif isinstance(value, list):
        below = enumerate(value)
    for part, item in below:
        yield from _ambiguous(item, (*parts, part))

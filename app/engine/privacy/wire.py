"""Frames on the pipe between a worker and a synthesizer's child: JSON and raw arrays.

A frame is `magic, header length, body length`, a JSON header and a body of little-endian
arrays, whose types and shapes the header lists under `arrays`. Nothing is ever unpickled.
A reader states how many bytes it accepts, checks lengths before it allocates, and refuses
anything else with `FrameError`. What a header may say is the subject of `forms`.
"""

from __future__ import annotations

import json
import math
import re
import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

# A child may be a third party's, and the worker reads its frames whole: a small limit. To a child
# goes a whole public table.
MOST_BYTES_FROM_CHILD = 64 * 2**20
MOST_BYTES_TO_CHILD = 2**32
MOST_HEADER_BYTES = 8 * 2**20
# Keys of one object in a header: twice what a dictionary has columns. A reader makes a report of
# each unknown key, and of a million of them would take seconds and half a gigabyte.
MOST_KEYS = 4096
_PREFIX = struct.Struct("<4sIQ")
_MAGIC = b"HTF1"
# No objects, which would be unpickled, and no structures or text.
_TYPES = ("|i1", "<i2", "<i4", "<i8", "|u1", "<u2", "<u4", "<u8", "<f8")
_MOST_DIMENSIONS = 32
# Python takes quadratic time to read long integers; no amount or seed has more digits.
_INTEGER = re.compile(r"-?[0-9]{1,40}", re.ASCII)


class FrameError(Exception):
    """What arrived is no frame of this protocol. The text never quotes what arrived."""


class ChannelClosed(FrameError):
    """The other side is gone."""


@dataclass(frozen=True, slots=True)
class Frame:
    """A header with its arrays, in order."""

    header: dict[str, Any]
    arrays: tuple[NDArray[Any], ...] = ()


def narrowed(values: NDArray[np.integer[Any]]) -> NDArray[Any]:
    """The same integers in the smallest signed type that holds them all."""
    if not values.size:
        return values.astype(np.int8)
    low, high = int(values.min()), int(values.max())
    for kind in (np.int8, np.int16, np.int32):
        if np.iinfo(kind).min <= low and high <= np.iinfo(kind).max:
            return values.astype(kind)
    return values


def pack(frame: Frame) -> bytes:
    """The bytes of a frame: equal frames give equal bytes."""
    arrays = [_little_endian(array) for array in frame.arrays]
    listed = [{"dtype": array.dtype.str, "shape": list(array.shape)} for array in arrays]
    header = json.dumps(
        {**frame.header, "arrays": listed}, allow_nan=False, sort_keys=True, separators=(",", ":")
    ).encode()
    bodies = [array.reshape(-1).view(np.uint8).data for array in arrays]
    size = sum(len(body) for body in bodies)
    return b"".join([_PREFIX.pack(_MAGIC, len(header), size), header, *bodies])


def unpack(data: bytes, most_bytes: int = MOST_BYTES_TO_CHILD) -> Frame:
    """Reads one whole frame. Raises `FrameError`."""
    header_size, body_size = _sizes(data[: _PREFIX.size], most_bytes)
    if len(data) != _PREFIX.size + header_size + body_size:
        raise FrameError("the frame has another length than it states")
    rest = memoryview(data)[_PREFIX.size :]
    return _frame(bytes(rest[:header_size]), rest[header_size:])


def is_too_large(data: bytes, most_bytes: int) -> bool:
    """Whether a reader who accepts at most `most_bytes` would refuse this frame."""
    _, header_size, body_size = _PREFIX.unpack(data[: _PREFIX.size])
    return bool(header_size > MOST_HEADER_BYTES or header_size + body_size > most_bytes)


class Channel:
    """Frames over a connected stream socket, of which it is the only reader and writer."""

    def __init__(self, connection: socket.socket, most_bytes: int) -> None:
        self._connection = connection
        self._most_bytes = most_bytes

    def send(self, frame: Frame) -> None:
        self.send_packed(pack(frame))

    def send_packed(self, data: bytes) -> None:
        """Sends the bytes of a frame. Raises `ChannelClosed`."""
        try:
            self._connection.sendall(data)
        except OSError:
            raise ChannelClosed("the other side has gone") from None

    def receive(self) -> Frame:
        """The next frame. Raises `FrameError`, `ChannelClosed` when there is none."""
        header_size, body_size = _sizes(self._exactly(_PREFIX.size), self._most_bytes)
        header = self._exactly(header_size)
        return _frame(bytes(header), memoryview(self._exactly(body_size)))

    def _exactly(self, size: int) -> bytearray:
        # Grows with what arrives: a length that is only stated costs no memory.
        data = bytearray()
        while len(data) < size:
            try:
                part = self._connection.recv(min(size - len(data), 2**20))
            except OSError:
                raise ChannelClosed("the other side has gone") from None
            if not part:
                raise ChannelClosed("the other side has gone")
            data += part
        return data


def _sizes(prefix: bytes | bytearray, most_bytes: int) -> tuple[int, int]:
    if len(prefix) != _PREFIX.size:
        raise FrameError("the frame is cut short")
    magic, header_size, body_size = _PREFIX.unpack(prefix)
    if magic != _MAGIC:
        raise FrameError("this is no frame")
    if header_size > MOST_HEADER_BYTES or header_size + body_size > most_bytes:
        raise FrameError("the frame is larger than is allowed")
    return header_size, body_size


def _frame(header: bytes, body: memoryview) -> Frame:
    try:
        parsed = json.loads(
            header.decode(),
            object_hook=_of_few_keys,
            parse_constant=_no_constant,
            parse_int=_small_integer,
            parse_float=_finite_number,
        )
    except (ValueError, RecursionError):
        raise FrameError("the header is not JSON") from None
    if not isinstance(parsed, dict):
        raise FrameError("the header is not an object")
    if b"\\u" in header:
        _check_text(parsed)
    listed = parsed.pop("arrays", None)
    if not isinstance(listed, list):
        raise FrameError("the header does not list its arrays")
    return Frame(parsed, tuple(_arrays(listed, body)))


def _check_text(parsed: dict[str, Any]) -> None:
    """JSON may hold half characters, which can be written nowhere else."""
    try:
        json.dumps(parsed, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise FrameError("a text holds half a character") from None


def _arrays(listed: Sequence[Any], body: memoryview) -> list[NDArray[Any]]:
    arrays = []
    first = 0
    for entry in listed:
        dtype, shape = _described(entry)
        end = first + dtype.itemsize * prod(shape)
        if end > len(body):
            raise FrameError("an array is larger than the frame")
        arrays.append(np.frombuffer(body[first:end], dtype=dtype).reshape(shape))
        first = end
    if first != len(body):
        raise FrameError("the frame holds more than its arrays")
    return arrays


def _described(entry: Any) -> tuple[np.dtype[Any], tuple[int, ...]]:
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape"}:
        raise FrameError("an array is described by dtype and shape")
    dtype, shape = entry["dtype"], entry["shape"]
    if not isinstance(dtype, str) or dtype not in _TYPES:
        raise FrameError("an array has a type that is not allowed")
    if not isinstance(shape, list) or len(shape) > _MOST_DIMENSIONS:
        raise FrameError("an array has a shape that is not allowed")
    if not all(type(size) is int and 0 <= size < 2**32 for size in shape):
        raise FrameError("an array has a shape that is not allowed")
    # Beside a 0, numpy still multiplies the other sizes, and overflows.
    if prod(size or 1 for size in shape) >= 2**40:
        raise FrameError("an array has a shape that is not allowed")
    return np.dtype(dtype), tuple(shape)


def _little_endian(array: NDArray[Any]) -> NDArray[Any]:
    little = np.asarray(array).astype(array.dtype.newbyteorder("<"), order="C", copy=False)
    if little.dtype.str not in _TYPES:
        raise TypeError(f"arrays of {array.dtype} do not travel on the pipe")
    return little


def _of_few_keys(parsed: dict[str, Any]) -> dict[str, Any]:
    if len(parsed) > MOST_KEYS:
        raise ValueError("an object of too many keys")
    return parsed


def _no_constant(text: str) -> float:
    raise ValueError(text)


def _small_integer(text: str) -> int:
    if not _INTEGER.fullmatch(text):
        raise ValueError("an integer of too many digits")
    return int(text)


def _finite_number(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError("a number out of range")
    return number

"""Heat maps: shades of cells as paths of an SVG, and as a PNG where there are many."""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

# From white to dark blue, even for the eye and for those who see no red or green.
SHADES = (
    "#ffffff", "#e8eef7", "#d0ddef", "#b7cce7", "#9dbadf", "#82a8d6", "#6796cc", "#4b83c0",
    "#3470b0", "#235d9b", "#154a82", "#0a3767",
)  # fmt: skip


def levels(shares: Sequence[Sequence[float]], most: float) -> NDArray[np.uint8]:
    """The shade of each cell: the root of its share, so that small ones can be told apart."""
    values = np.clip(np.asarray(shares, dtype=float) / max(most, 1e-12), 0, 1)
    shades: NDArray[np.uint8] = np.ceil(np.sqrt(values) * (len(SHADES) - 1)).astype(np.uint8)
    return shades


def paths(shades: NDArray[np.uint8]) -> Iterator[tuple[int, str]]:
    """For each shade that occurs, but white, the outline of its cells in units of a cell."""
    strokes: dict[int, list[str]] = {}
    for y, row in enumerate(shades.tolist()):
        x = 0
        for level, run in groupby(row):
            width = len(list(run))
            if level:
                strokes.setdefault(level, []).append(f"M{x} {y}h{width}v1h-{width}z")
            x += width
    for level in sorted(strokes):
        yield level, "".join(strokes[level])


def png(shades: NDArray[np.uint8]) -> str:
    """A picture of one pixel for each cell, as the text of a data address.

    The format is that of the PNG specification (ISO/IEC 15948): a palette, and lines unfiltered.
    """
    height, width = shades.shape
    lines = b"".join(b"\0" + line.tobytes() for line in shades)
    palette = b"".join(bytes.fromhex(shade[1:]) for shade in SHADES)
    parts = (
        _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)),
        _chunk(b"PLTE", palette),
        _chunk(b"IDAT", zlib.compress(lines, 9)),
        _chunk(b"IEND", b""),
    )
    data = b"\x89PNG\r\n\x1a\n" + b"".join(parts)
    return "data:image/png;base64," + base64.b64encode(data).decode()


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def largest(
    first: Sequence[str], second: Sequence[str], *shares: Sequence[Sequence[float]], most: int
) -> list[tuple[Any, ...]]:
    """The cells with the largest of the first shares: both labels, and each share."""
    tables = [np.asarray(each, dtype=float) for each in shares]
    order = np.argsort(-tables[0], axis=None, kind="stable")[:most]
    return [
        (
            first[int(place) // len(second)],
            second[int(place) % len(second)],
            *(float(table.flat[place]) for table in tables),
        )
        for place in order
    ]

"""How a fitted model is stored: one uncompressed npz with a JSON header, never pickle.

A stored model may come from a third party, so reading trusts nothing: entries are stored
and not compressed, types are few, and every size is held against the bytes that are there.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

_HEADER = "header"
_ALLOWED_TYPES = {
    np.dtype(kind) for kind in (np.int8, np.int16, np.int32, np.int64, np.float64, np.uint8)
}
_MOST_ENTRIES = 10_000


class ModelFormatError(ValueError):
    """The bytes are no model of this synthesizer."""


def pack(header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """The same bytes for the same content. Arrays are signed integers, float64 or uint8."""
    text = json.dumps(header, sort_keys=True, separators=(",", ":"), allow_nan=False)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        _write(archive, _HEADER, np.frombuffer(text.encode(), dtype=np.uint8))
        for name in sorted(arrays):
            _write(archive, name, arrays[name])
    return buffer.getvalue()


def _write(archive: zipfile.ZipFile, name: str, array: NDArray[Any]) -> None:
    if array.dtype not in _ALLOWED_TYPES:
        raise ModelFormatError(f"arrays of type {array.dtype} are not stored")
    entry = io.BytesIO()
    np.lib.format.write_array(
        entry, np.ascontiguousarray(array).reshape(array.shape), version=(1, 0), allow_pickle=False
    )
    archive.writestr(zipfile.ZipInfo(f"{name}.npy"), entry.getbuffer())


def unpack(data: bytes) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Header and arrays of a packed model; raises `ModelFormatError` for anything else."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            arrays = {
                info.filename.removesuffix(".npy"): _read(archive, info, len(data))
                for info in _checked_entries(archive)
            }
        header = json.loads(arrays.pop(_HEADER).tobytes())
    except ModelFormatError:
        raise
    except (
        zipfile.BadZipFile,
        KeyError,
        ValueError,
        EOFError,
        OSError,
        NotImplementedError,
        RuntimeError,
        RecursionError,
    ) as error:
        raise ModelFormatError("the stored model cannot be read") from error
    if not isinstance(header, dict):
        raise ModelFormatError("the stored model has no header")
    return header, arrays


def _checked_entries(archive: zipfile.ZipFile) -> list[zipfile.ZipInfo]:
    entries = archive.infolist()
    if len(entries) > _MOST_ENTRIES:
        raise ModelFormatError("the stored model has too many parts")
    return entries


def _read(archive: zipfile.ZipFile, info: zipfile.ZipInfo, limit: int) -> NDArray[Any]:
    if info.compress_type != zipfile.ZIP_STORED or info.file_size > limit:
        raise ModelFormatError("a stored model is not compressed")
    entry = io.BytesIO(archive.read(info))
    if np.lib.format.read_magic(entry) != (1, 0):
        raise ModelFormatError("the stored model has an array of an unknown version")
    shape, fortran_order, dtype = np.lib.format.read_array_header_1_0(entry)
    if dtype not in _ALLOWED_TYPES or fortran_order or any(length < 0 for length in shape):
        raise ModelFormatError("the stored model has an array of another type")
    array = np.frombuffer(entry.read(), dtype=dtype)
    return array.reshape(shape)


def number(header: Mapping[str, Any], name: str, *, least: int = 0, most: int = 2**53) -> int:
    """A whole number of the header, within bounds."""
    value = header.get(name)
    if type(value) is not int or not least <= value <= most:
        raise ModelFormatError(f"the stored model has no valid `{name}`")
    return value


def integers(
    arrays: Mapping[str, NDArray[Any]], name: str, *, least: int, most: int
) -> NDArray[np.int64]:
    """A list of integers within bounds, as int64."""
    array = arrays.get(name)
    if array is None or array.ndim != 1 or array.dtype.kind != "i":
        raise ModelFormatError(f"the stored model has no valid `{name}`")
    if array.size and not least <= array.min() <= array.max() <= most:
        raise ModelFormatError(f"`{name}` of the stored model holds impossible values")
    return array.astype(np.int64)


def weights(
    arrays: Mapping[str, NDArray[Any]], name: str, shape: tuple[int, ...]
) -> NDArray[np.float64]:
    """A float64 array of the given shape, finite and not negative."""
    array = arrays.get(name)
    if array is None or array.shape != shape or array.dtype != np.float64:
        raise ModelFormatError(f"the stored model has no valid `{name}`")
    if not np.isfinite(array).all() or (array < 0).any():
        raise ModelFormatError(f"`{name}` of the stored model holds impossible values")
    return array


def counts(
    arrays: Mapping[str, NDArray[Any]], name: str, shape: tuple[int, ...]
) -> NDArray[np.int64]:
    """Integers of the given shape as int64, not negative, whose sum is exact."""
    array = arrays.get(name)
    if array is None or array.shape != shape or array.dtype.kind != "i":
        raise ModelFormatError(f"the stored model has no valid `{name}`")
    if (array < 0).any() or float(array.sum(dtype=np.float64)) > 2**53:
        raise ModelFormatError(f"`{name}` of the stored model holds impossible values")
    return array.astype(np.int64)

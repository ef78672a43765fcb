"""Staged uploads: files inside the data folder until their ingest is over.

If encryption is on, a staged file is a sequence of encrypted frames under a key of its own, whose
wrapped form comes first. No part of the table is on the disk unencrypted.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import io
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

from app.database import new_id, store_faults
from app.settings import Settings
from app.storage.blobs import BlobFile
from app.storage.encryption import OVERHEAD_BYTES, Cipher, Keyring

# One frame is decrypted at a time, so that a reader can seek in a large file.
FRAME_BYTES = 1024**2
SEALED_FRAME_BYTES = FRAME_BYTES + OVERHEAD_BYTES
# A wrapped key is 80 characters of base64; the rest is room.
KEY_LINE_BYTES = 128
SEALED = ".sealed"
_SWEPT_AT_ONCE = 64


@dataclass(frozen=True, slots=True)
class StagedFile:
    """A complete staged upload.

    The SHA-256 is that of the bytes as sent, and known to the request that received them alone: it
    is not stored. The media type is given if it came with the upload.
    """

    name: str
    sha256: str | None = None
    media_type: str | None = None

    def to_wire(self) -> dict[str, Any]:
        """What the store holds of it: nothing that is made from the rows."""
        return {"name": self.name, "media_type": self.media_type}

    @classmethod
    def from_wire(cls, wire: dict[str, Any]) -> StagedFile:
        return cls(wire["name"], media_type=wire["media_type"])


class StagedWriter:
    """Receives an upload. The file is deleted at the end of the block unless `keep` was called.

    The file stays locked as long as the writer exists, so that a sweep does not delete it. Every
    step raises `StorageFull` where the disk is full.
    """

    def __init__(self, folder: Path, keyring: Keyring) -> None:
        self._name, self._file = _locked_new(folder, SEALED if keyring.encrypts else "")
        self._path = folder / self._name
        self._cipher = _cipher_of_new(self._file, self._name, keyring)
        self._digest = hashlib.sha256()
        self._held = bytearray()
        self._frames = 0
        self._kept = False
        self.size_bytes = 0

    def __enter__(self) -> StagedWriter:
        return self

    def __exit__(self, *error: object) -> None:
        if not self._kept:
            self._path.unlink(missing_ok=True)
        # On a full disk, closing fails to write what is still held of a file that is gone.
        with contextlib.suppress(OSError):
            self._file.close()

    @store_faults()
    def write(self, data: bytes) -> None:
        self._digest.update(data)
        self.size_bytes += len(data)
        if self._cipher is None:
            self._file.write(data)
            return
        self._held += data
        # Something is kept back for the last frame, which is sealed as the last.
        while len(self._held) > FRAME_BYTES:
            self._seal(bytes(self._held[:FRAME_BYTES]))
            del self._held[:FRAME_BYTES]

    @store_faults()
    def finish(self, *, media_type: str | None = None) -> StagedFile:
        """Make the complete file durable, so that the upload can be acknowledged."""
        if self._held:
            self._seal(bytes(self._held), is_last=True)
            self._held.clear()
        self._file.flush()
        os.fsync(self._file.fileno())
        # The folder too: after a power cut, a file without a durable directory entry is lost.
        _sync_folder(self._path.parent)
        return StagedFile(self._name, self._digest.hexdigest(), media_type)

    def keep(self) -> None:
        """The store now refers to the file."""
        self._kept = True

    def _seal(self, frame: bytes, *, is_last: bool = False) -> None:
        assert self._cipher is not None
        place = _frame_place(self._name, self._frames, is_last=is_last)
        self._file.write(self._cipher.seal(frame, place))
        self._frames += 1


class StagingArea:
    """The staging folder of one data folder."""

    def __init__(self, settings: Settings) -> None:
        self._folder = settings.data / "staging"
        self._keyring = Keyring(settings)

    @store_faults()
    def writer(self) -> StagedWriter:
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        return StagedWriter(self._folder, self._keyring)

    @contextlib.contextmanager
    def reader(self, staged: StagedFile) -> Iterator[BinaryIO]:
        """The upload as a seekable binary file of the bytes that were sent.

        Raises `FileNotFoundError`, `SealBroken` or `MasterKeyMissing`.
        """
        with open(self._folder / staged.name, "rb") as file:
            if not staged.name.endswith(SEALED):
                yield file
                return
            wrapped = file.read(KEY_LINE_BYTES).decode().strip()
            cipher = self._keyring.cipher(staged.name, wrapped)
            assert cipher is not None
            yield cast(BinaryIO, _opened(file, staged, cipher))

    def size_bytes(self, staged: StagedFile) -> int:
        """How many bytes were sent. Raises `FileNotFoundError`."""
        stored = (self._folder / staged.name).stat().st_size
        return _plain_bytes(stored) if staged.name.endswith(SEALED) else stored

    def remove(self, name: str) -> None:
        (self._folder / name).unlink(missing_ok=True)

    def sweep(self, wanted: Callable[[], set[str]]) -> int:
        """Delete the files that no dataset needs and no writer holds; returns how many.

        `wanted` is called after those files are locked. A writer releases its file only when the
        store refers to it, so an earlier answer could miss that file.
        """
        paths = list(self._folder.glob("st_*"))
        batches = (paths[i : i + _SWEPT_AT_ONCE] for i in range(0, len(paths), _SWEPT_AT_ONCE))
        return sum(_sweep(batch, wanted) for batch in batches)


def _cipher_of_new(file: BinaryIO, name: str, keyring: Keyring) -> Cipher | None:
    wrapped = keyring.new_key(name)
    if wrapped is not None:
        file.write(wrapped.encode().ljust(KEY_LINE_BYTES - 1) + b"\n")
    return keyring.cipher(name, wrapped)


def _opened(file: BinaryIO, staged: StagedFile, cipher: Cipher) -> io.BufferedReader:
    full, rest = divmod(_plain_bytes(os.fstat(file.fileno()).st_size), FRAME_BYTES)
    sizes = [FRAME_BYTES] * full + [rest] * (rest > 0)

    def frame(number: int) -> bytes:
        file.seek(KEY_LINE_BYTES + number * SEALED_FRAME_BYTES)
        sealed = file.read(SEALED_FRAME_BYTES)
        # A file that was cut off ends with a frame that was not sealed as the last.
        is_last = number == len(sizes) - 1
        return cipher.open(sealed, _frame_place(staged.name, number, is_last=is_last))

    return io.BufferedReader(BlobFile(sizes, frame))


def _plain_bytes(stored: int) -> int:
    """Bytes as sent, from the size of a sealed file."""
    frames = -(-(stored - KEY_LINE_BYTES) // SEALED_FRAME_BYTES)
    return stored - KEY_LINE_BYTES - frames * OVERHEAD_BYTES


def _frame_place(name: str, number: int, *, is_last: bool) -> bytes:
    return f"{name}/{number}{'/last' if is_last else ''}".encode()


def _locked_new(folder: Path, suffix: str) -> tuple[str, BinaryIO]:
    """A new file, locked before a sweep could delete it as abandoned."""
    while True:
        name = new_id("st") + suffix
        file = open(folder / name, "xb", opener=_private)  # noqa: SIM115
        fcntl.flock(file, fcntl.LOCK_EX)
        # No link: a sweep locked and deleted the file before this lock. Try again under another
        # name.
        if os.fstat(file.fileno()).st_nlink:
            return name, file
        file.close()


def _sweep(paths: list[Path], wanted: Callable[[], set[str]]) -> int:
    with contextlib.ExitStack() as locks:
        free = [path for path in paths if _is_locked(path, locks)]
        needed = wanted() if free else set()
        abandoned = [path for path in free if path.name not in needed]
        for path in abandoned:
            path.unlink(missing_ok=True)
    return len(abandoned)


def _is_locked(path: Path, locks: contextlib.ExitStack) -> bool:
    """Whether the file could be locked, for as long as `locks` are held."""
    with contextlib.suppress(BlockingIOError, FileNotFoundError):
        file = locks.enter_context(open(path, "rb"))  # noqa: SIM115
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

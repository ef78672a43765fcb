"""Encryption at rest: AES-256-GCM under a key for each dataset, wrapped by the master key.

StorageKeyError
├── MasterKeyMissing
└── SealBroken
"""

from __future__ import annotations

import base64
import os

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from app.settings import Settings

KEY_BYTES = 32
NONCE_BYTES = 12
TAG_BYTES = 16
OVERHEAD_BYTES = NONCE_BYTES + TAG_BYTES

_KNOWN_VALUE, _KNOWN_PLACE = b"halftone", b"halftone check of the master key"


class BadMasterKey(ValueError):
    """`HALFTONE_MASTER_KEY` is not a valid key; neither service nor worker starts."""

    def __init__(self) -> None:
        super().__init__(
            f"HALFTONE_MASTER_KEY is not a key: it is base64 of {KEY_BYTES} bytes. Make one with:"
            f" python3 -c 'import base64, os; print(base64.b64encode(os.urandom({KEY_BYTES}))"
            ".decode())'"
        )


class WrongMasterKey(ValueError):
    """The store's data were sealed under another key; neither service nor worker starts."""

    def __init__(self, *, is_missing: bool) -> None:
        what = "is not set" if is_missing else "is another key"
        super().__init__(
            f"The data of this store are encrypted, and HALFTONE_MASTER_KEY {what}. Set it to the"
            " key that the store was used with until now: nothing else opens its data. Nothing was"
            " changed and nothing was charged.",
        )


class StorageKeyError(Exception):
    """Sealed data cannot be opened; the text names no content."""


class MasterKeyMissing(StorageKeyError):
    """Data was sealed, and HALFTONE_MASTER_KEY is not set."""

    def __init__(self) -> None:
        super().__init__("the data is encrypted, and HALFTONE_MASTER_KEY is not set")


class SealBroken(StorageKeyError):
    """Another key, another place, or altered bytes."""

    def __init__(self) -> None:
        super().__init__("sealed data does not open with this key in this place")


class Cipher:
    """Encrypts pieces under one key; a piece opens only at the place that it was sealed for."""

    def __init__(self, key: bytes) -> None:
        self._gcm = AESGCM(key)

    def seal(self, plain: bytes, place: bytes) -> bytes:
        """Nonce, ciphertext and tag: `OVERHEAD_BYTES` longer than `plain`."""
        # Random 96-bit nonces are safe for 2**32 messages of a key (NIST SP 800-38D, section 8.3).
        # A dataset's key seals far fewer chunks.
        nonce = os.urandom(NONCE_BYTES)
        # The place is authenticated, so that nobody can swap chunks inside the store.
        return nonce + self._gcm.encrypt(nonce, plain, place)

    def open(self, sealed: bytes, place: bytes) -> bytes:
        """Raises `SealBroken` unless `sealed` was sealed under this key for this place."""
        try:
            return self._gcm.decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], place)
        except (InvalidTag, ValueError):
            raise SealBroken from None


class Keyring:
    """Makes and opens wrapped keys. Without a master key nothing is encrypted."""

    def __init__(self, settings: Settings) -> None:
        secret = settings.master_key
        self._master = None if secret is None else Cipher(_decoded(secret.get_secret_value()))

    @property
    def encrypts(self) -> bool:
        return self._master is not None

    def seal_known_value(self) -> bytes | None:
        """What `opens_known_value` recognises this master key by; None without one."""
        return None if self._master is None else self._master.seal(_KNOWN_VALUE, _KNOWN_PLACE)

    def opens_known_value(self, sealed: bytes) -> bool:
        try:
            return self._master is not None and self._master.open(sealed, _KNOWN_PLACE) == (
                _KNOWN_VALUE
            )
        except SealBroken:
            return False

    def new_key(self, owner: str) -> str | None:
        """A fresh key wrapped for `owner`, such as a dataset's id; None without encryption."""
        # A key for each dataset: deleting its wrapped key makes its stored data unreadable at once.
        return self.wrap(owner, os.urandom(KEY_BYTES)) if self.encrypts else None

    def cipher(self, owner: str, wrapped_key: str | None) -> Cipher | None:
        """What seals `owner`'s data; None for data that was stored without encryption.

        Raises `MasterKeyMissing` or `SealBroken`.
        """
        return None if wrapped_key is None else Cipher(self.unwrap(owner, wrapped_key))

    def wrap(self, owner: str, key: bytes) -> str:
        """The key sealed for its owner. Raises `MasterKeyMissing`."""
        return base64.b64encode(self._key().seal(key, _wrapping(owner))).decode()

    def unwrap(self, owner: str, wrapped_key: str) -> bytes:
        """The key that `wrap` was given. Raises `MasterKeyMissing` or `SealBroken`."""
        return self._key().open(base64.b64decode(wrapped_key), _wrapping(owner))

    def _key(self) -> Cipher:
        if self._master is None:
            raise MasterKeyMissing
        return self._master


def _wrapping(owner: str) -> bytes:
    return f"halftone key of {owner}".encode()


def _decoded(text: str) -> bytes:
    try:
        key = base64.b64decode(text, validate=True)
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES:
        raise BadMasterKey
    return key

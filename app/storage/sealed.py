"""Private texts in columns of the store: sealed under the key of the dataset they are about.

Without encryption they are stored as they are. A sealed text is padded, since its length depends
on private rows too.
"""

from __future__ import annotations

import base64

from app.storage.encryption import Cipher, SealBroken

# Marks a sealed text; a plain text that begins like it is moved by a space.
SEALED = "sealed:"
# Lengths of sealed texts are multiples of it, and so tell little of a report or a traceback.
PADDED_BYTES = 4096


def is_sealed(stored: str) -> bool:
    return stored.startswith(SEALED)


def stored_text(cipher: Cipher | None, text: str, place: str) -> str:
    """A text as it is stored at `place`; sealed if there is a cipher."""
    if cipher is None:
        return f" {text}" if is_sealed(text) else text
    # A text of the store holds no null character, so it marks where the padding begins.
    plain = text.replace("\0", "\ufffd").encode()
    padded = plain.ljust(-(-len(plain) // PADDED_BYTES) * PADDED_BYTES, b"\0")
    return SEALED + base64.b64encode(cipher.seal(padded, place.encode())).decode()


def read_text(cipher: Cipher | None, stored: str, place: str) -> str:
    """The text that `stored_text` was given. Raises `SealBroken`."""
    if not is_sealed(stored):
        return stored
    if cipher is None:
        raise SealBroken
    try:
        sealed = base64.b64decode(stored.removeprefix(SEALED), validate=True)
    except ValueError:
        raise SealBroken from None
    return cipher.open(sealed, place.encode()).rstrip(b"\0").decode()

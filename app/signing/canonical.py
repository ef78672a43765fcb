"""The one byte form of a JSON document that is hashed or signed.

ASCII, keys sorted, no spaces, and numbers as Python's `json` writes them: whole numbers in digits,
others as the shortest decimal that reads back as the same double. The ledger's entries have the
same form.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from app.signing.keys import SigningKey

SIGNATURE = "signature"


def canonical(document: Any) -> bytes:
    """The bytes of a document. Raises `ValueError` for NaN and infinities."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return text.encode("ascii")


def sha256_of(document: Any) -> str:
    """The hash of a document's bytes, in hex."""
    return hashlib.sha256(canonical(document)).hexdigest()


def signed(document: Mapping[str, Any], key: SigningKey) -> dict[str, Any]:
    """The document with a `signature` over all the rest of it."""
    plain = {name: value for name, value in document.items() if name != SIGNATURE}
    return {**plain, SIGNATURE: key.signature_of(canonical(plain))}

"""JSON of a bundle: read strictly, and in the one form that is hashed and signed."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Mapping
from typing import Any

from halftone_client.verification.faults import BundleFault, CannotVerify

ALGORITHM = "Ed25519"
_KEY_BYTES, _SIGNATURE_BYTES = 32, 64


def canonical(document: Any) -> bytes:
    """ASCII, keys sorted, no spaces: the bytes that signatures and hashes are over."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return text.encode("ascii")


def sha256_of(document: Any) -> str:
    return hashlib.sha256(canonical(document)).hexdigest()


def parse(file: str, data: bytes) -> Mapping[str, Any]:
    """The JSON object of a file. Raises `BundleFault`, also for a key that stands there twice."""
    try:
        document = json.loads(data.decode("utf-8"), object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise BundleFault(file, f"it is no strict JSON: {error}") from None
    if not isinstance(document, dict):
        raise BundleFault(file, "it is no JSON object")
    return document


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("an object has a key twice")
    return found


def key_id(public: bytes) -> str:
    """The id of a signing key, which is made of its public half."""
    digest = base64.b32encode(hashlib.sha256(public).digest()).decode().lower()
    return f"sg_{digest[:20]}"


def check_signature(file: str, data: bytes, signature: Mapping[str, Any]) -> str:
    """The id of the key that signed. Raises `BundleFault` for any other data or signature."""
    if set(signature) != {"algorithm", "key_id", "public_key", "value"}:
        raise BundleFault(file, "its signature has missing or unknown fields")
    if signature["algorithm"] != ALGORITHM:
        raise BundleFault(file, f"its signature is not of the kind {ALGORITHM}")
    public = decoded(file, signature["public_key"], _KEY_BYTES)
    if signature["key_id"] != key_id(public):
        raise BundleFault(file, "the id of its key does not belong to the key")
    value = decoded(file, signature["value"], _SIGNATURE_BYTES)
    if not _holds(public, value, data):
        raise BundleFault(file, "its signature is not of these bytes")
    return str(signature["key_id"])


def decoded(file: str, text: Any, size_bytes: int) -> bytes:
    """Base64 in its one form. Raises `BundleFault`."""
    try:
        data = base64.b64decode(str(text), validate=True)
    except (binascii.Error, ValueError):
        data = b""
    if len(data) != size_bytes or base64.b64encode(data).decode() != text:
        raise BundleFault(file, f"a value should be {size_bytes} bytes in base64, and is not")
    return data


def _holds(public: bytes, value: bytes, data: bytes) -> bool:
    try:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    except ImportError:
        raise CannotVerify(
            "Signatures need the package `cryptography`: pip install 'halftone-client[verify]'"
        ) from None
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(value, data)
    except (InvalidSignature, ValueError):
        return False
    return True

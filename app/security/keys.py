"""API keys as text: their form, how they are made, and which part of them is stored."""

from __future__ import annotations

import hashlib
import re
import secrets

# At least 32 characters of 6 bits each, for keys that the operator presets: 192 bits.
KEY_PATTERN = r"hk_[A-Za-z0-9_-]{32,128}"
# `hk_` and 8 characters: enough to recognise a key, and 208 random bits stay secret.
PREFIX_LENGTH = 11
_KEY = re.compile(KEY_PATTERN, re.ASCII)


def new_key() -> str:
    """A fresh key: `hk_` and 43 URL-safe characters that carry 256 random bits."""
    return "hk_" + secrets.token_urlsafe(32)


def is_key(text: str) -> bool:
    return _KEY.fullmatch(text) is not None


def digest_of(key: str) -> str:
    """SHA-256 in hex: with its prefix, the only trace of a key in the store."""
    # Headers are decoded with surrogates; a bad key must give an unknown digest, not an exception.
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


def prefix_of(key: str) -> str:
    """The start of a key, by which people distinguish keys; 48 of its random bits."""
    return key[:PREFIX_LENGTH]

"""Files of public keys that a reader trusts."""

from __future__ import annotations

import json
from pathlib import Path

from halftone_client.verification.documents import decoded, key_id
from halftone_client.verification.faults import BundleFault, CannotVerify

_BYTES = 32


def read_keys(path: Path) -> dict[str, bytes]:
    """The public halves in a file, by id.

    The file is the answer of `/v1/keys/signing`, or public halves in base64, one a line. Raises
    `CannotVerify`.
    """
    text = path.read_text(encoding="utf-8", errors="replace")
    try:
        listed = json.loads(text)["keys"]
        written = [each["public_key"] for each in listed]
    except (ValueError, LookupError, RecursionError, TypeError):
        written = text.split()
    try:
        halves = [decoded(str(path), each, _BYTES) for each in written]
    except BundleFault:
        halves = []
    if not halves:
        raise CannotVerify(
            f"{path} holds no keys. It is the answer of `/v1/keys/signing`, or has a public half of"
            f" {_BYTES} bytes in base64 on each line."
        )
    return {key_id(half): half for half in halves}

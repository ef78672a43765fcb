"""`halftone-client`: what needs neither a service nor a key."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from halftone_client.verification import BundleFault, CannotVerify, verify
from halftone_client.verification.keys import read_keys

# Exit statuses, for scripts.
WHOLE, FAULTY, CANNOT = 0, 1, 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command: 0 the bundle is whole, 1 it is not, 2 it could not be checked."""
    parsed = _parser().parse_args(arguments)
    try:
        return _verify(parsed)
    except CannotVerify as error:
        print(f"halftone-client: {error}", file=sys.stderr)
    except OSError as error:
        print(f"halftone-client: {error.filename}: {error.strerror}", file=sys.stderr)
    return CANNOT


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="halftone-client", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    command = commands.add_parser(
        "verify", help="check every byte of a bundle, offline; exit 1 with the file and the fault"
    )
    command.add_argument("bundle", type=Path, metavar="BUNDLE", help="the zip file")
    command.add_argument(
        "--key",
        type=Path,
        metavar="FILE",
        help="the answer of /v1/keys/signing of the service that you trust, or its public keys in"
        " base64; without it the key in the bundle is used",
    )
    return parser


def _verify(parsed: argparse.Namespace) -> int:
    keys = None if parsed.key is None else read_keys(parsed.key)
    try:
        found = verify(parsed.bundle, keys)
    except BundleFault as fault:
        print(f"{parsed.bundle} is NOT whole. {fault}")
        return FAULTY
    print(
        f"{parsed.bundle} is whole: release {found.release_id} of {found.dataset_name!r},"
        f" {found.files} files, signed by {found.key_id}."
    )
    for note in found.notes:
        print(f"Note: {note}")
    return WHOLE


if __name__ == "__main__":
    sys.exit(main())

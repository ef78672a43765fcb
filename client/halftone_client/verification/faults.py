"""What verifying finds."""

from __future__ import annotations


class BundleFault(ValueError):
    """Something is wrong with the bundle: in which `file` of it, and what."""

    def __init__(self, file: str, fault: str) -> None:
        super().__init__(f"{file}: {fault}")
        self.file = file
        self.fault = fault


class CannotVerify(Exception):
    """The bundle could not be looked at; the text says why and what to do."""


# Names for what is not in a file of the bundle.
ARCHIVE = "the archive"

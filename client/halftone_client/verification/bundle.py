"""A bundle as a whole: archive, hashes, signatures, certificate, ledger and data agree."""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from halftone_client.verification import accounting
from halftone_client.verification.archive import Archive
from halftone_client.verification.documents import canonical, check_signature, parse, sha256_of
from halftone_client.verification.faults import ARCHIVE, BundleFault, CannotVerify

SUMS, SIGNATURE = "SHA256SUMS", "SHA256SUMS.sig"
CERTIFICATE, PROOF, DICTIONARY = "certificate.json", "ledger-proof.json", "dictionary.json"
_FORMATS = {CERTIFICATE: "halftone-certificate-1", PROOF: "halftone-ledger-proof-1"}
_REQUIRED = (CERTIFICATE, PROOF, DICTIONARY)
# 256 MiB: what is read as a whole is far smaller.
_MOST_BYTES = 2**28
_GENESIS = "0" * 64
_FIRST_LINE = re.compile(r"# ([0-9a-f]{64}) of the (\d{1,20}) bytes of the archive before this")
_LINE = re.compile(r"([0-9a-f]{64})  ([!-~]{1,200})")
_RELEASE = re.compile(r"rl_[a-z2-9]{1,40}")
_DATA = re.compile(r"data/(sm_[a-z2-9]+)\.(csv|parquet)")
# What documents and archives of another shape raise where they are read.
_SHAPES = (
    struct.error, ArithmeticError, AttributeError, LookupError, RecursionError, TypeError,
    ValueError,
)  # fmt: skip
_PRIMARY_STEP, _DELTA_STEP = Decimal("1e-12"), Decimal("1e-18")
_WITH_TOTALS = {"spent_primary", "spent_delta", "principal_id", "grant_id"}
_ENTRY = {
    "account_id", "sequence", "kind", "dataset_id", "release_id", "primary", "delta", "detail",
    "at",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Verified:
    """A bundle that is whole.

    `key_id` names the key that signed it. `notes` say what this does not show.
    """

    release_id: str
    dataset_name: str
    key_id: str
    files: int
    notes: tuple[str, ...]


def verify(path: Path, keys: Mapping[str, bytes] | None = None) -> Verified:
    """Check every byte of a bundle.

    `keys`: public halves that are trusted, by id. Without them the key in the bundle is used,
    which shows that the bundle is whole and not who made it. Raises `BundleFault`, `OSError` for a
    file that cannot be read, or `CannotVerify`.
    """
    with path.open("rb") as stream:
        try:
            return _Checks(Archive(stream), keys).run()
        except (BundleFault, CannotVerify):
            raise
        # Whatever a stranger's bytes do to a check, the bundle is not one of the service's.
        except _SHAPES as error:
            raise BundleFault(ARCHIVE, f"it has no bundle's form: {error!r}") from None


class _Checks:
    def __init__(self, archive: Archive, keys: Mapping[str, bytes] | None) -> None:
        self._archive = archive
        self._keys = keys
        self._notes: list[str] = []

    def run(self) -> Verified:
        names = [file.name for file in self._archive.files]
        if names[-2:] != [SUMS, SIGNATURE]:
            raise BundleFault(SUMS, "it is missing, or something follows the signature")
        signer = self._signer()
        hashes = self._hashes(names[:-2])
        certificate = self._certificate(hashes)
        self._data(certificate, hashes)
        self._ledger(certificate)
        if not _RELEASE.fullmatch(certificate["release"]["id"]):
            raise BundleFault(CERTIFICATE, "it names no release")
        return Verified(
            certificate["release"]["id"],
            certificate["dataset"]["name"],
            signer,
            len(names),
            tuple(self._notes),
        )

    def _signer(self) -> str:
        sums = self._archive.content(SUMS, _MOST_BYTES)
        written = self._archive.content(SIGNATURE, _MOST_BYTES)
        signature = parse(SIGNATURE, written)
        if canonical(signature) + b"\n" != written:
            raise BundleFault(SIGNATURE, "it is not in its one form")
        signer = check_signature(SIGNATURE, sums, signature)
        self._expect_trusted(SIGNATURE, signer)
        if self._keys is None:
            self._notes.append(
                "The key came with the bundle: this shows that the bundle is whole, not who made"
                " it. Compare the key's id with the service's, or name its keys with --key."
            )
        return signer

    def _expect_trusted(self, file: str, signer: str) -> None:
        if self._keys is not None and signer not in self._keys:
            raise BundleFault(file, f"it is signed by {signer}, which is none of the given keys")

    def _hashes(self, names: Collection[str]) -> Mapping[str, str]:
        """The hash of each file, compared with its bytes."""
        text = self._archive.content(SUMS, _MOST_BYTES).decode("ascii")
        first, *lines = text.removesuffix("\n").split("\n")
        found = [_LINE.fullmatch(line) for line in lines]
        stated = {match[2]: match[1] for match in found if match}
        if not all(found) or len(stated) != len(lines) or not text.endswith("\n"):
            raise BundleFault(SUMS, "a line has another form, or a file is listed twice")
        if list(stated) != list(names):
            others = sorted(set(stated) ^ set(names))
            raise BundleFault(
                others[0] if others else SUMS,
                "it is listed and missing, or there and not listed"
                if others
                else "the files come in another order than it lists",
            )
        for name, sha256 in stated.items():
            if self._archive.sha256(name) != sha256:
                raise BundleFault(name, f"its SHA-256 is not the one in {SUMS}")
        whole = _FIRST_LINE.fullmatch(first)
        if whole is None:
            raise BundleFault(SUMS, "its first line has another form")
        if (whole[1], int(whole[2])) != self._archive.sha256_before(SUMS):
            raise BundleFault(
                ARCHIVE, "its files are intact, and the bytes that pack them were changed"
            )
        return stated

    def _document(self, name: str) -> Mapping[str, Any]:
        document = parse(name, self._archive.content(name, _MOST_BYTES))
        if name in _FORMATS and document.get("format") != _FORMATS[name]:
            raise BundleFault(name, f"its format is not {_FORMATS[name]}")
        return document

    def _certificate(self, hashes: Mapping[str, str]) -> Mapping[str, Any]:
        for name in _REQUIRED:
            if name not in hashes:
                raise BundleFault(name, "it is missing")
        certificate = self._document(CERTIFICATE)
        plain = {name: certificate[name] for name in certificate if name != "signature"}
        self._expect_trusted(
            CERTIFICATE,
            check_signature(CERTIFICATE, canonical(plain), certificate["signature"]),
        )
        fault = accounting.losses_fault(certificate)
        if fault is not None:
            raise BundleFault(CERTIFICATE, fault)
        if sha256_of(self._document(DICTIONARY)) != certificate["dataset"]["dictionary_sha256"]:
            raise BundleFault(DICTIONARY, "it is not the dictionary that the certificate names")
        if certificate["assurance"] != "enforced":
            self._notes.append(
                "The method read the bounded table itself: its author vouches for its privacy."
            )
        return certificate

    def _data(self, certificate: Mapping[str, Any], hashes: Mapping[str, str]) -> None:
        certified = {each["id"]: each["parquet_sha256"] for each in certificate["samples"]}
        expected = {f"data/{each}.{form}" for each in certified for form in ("csv", "parquet")}
        tables = {name for name in hashes if name.startswith("data/")}
        for name in sorted(expected ^ tables):
            raise BundleFault(name, "the certificate names other tables than the bundle has")
        for name in sorted(tables):
            match = _DATA.fullmatch(name)
            if match and match[2] == "parquet" and hashes[name] != certified[match[1]]:
                raise BundleFault(name, "its SHA-256 is not the one in the certificate")

    def _ledger(self, certificate: Mapping[str, Any]) -> None:
        proof = self._document(PROOF)
        expect = _expecting(PROOF)
        hashes, shown = proof["hashes"], proof["totals_shown"]
        charges = [entry for entry in proof["entries"] if entry["kind"] == "charge"]
        expect(len(charges) == 1, "it has not one charge of the release")
        expect(proof["accountant"] == certificate["accountant"], "it is of another accountant")
        for entry in proof["entries"]:
            fields = _ENTRY | _WITH_TOTALS if shown else _ENTRY
            expect(set(entry) == fields, "an entry has other fields")
            place = entry["sequence"]
            expect(0 < place <= len(hashes), "an entry lies beyond the chain's end")
            expect(
                (entry["release_id"], entry["account_id"])
                == (certificate["release"]["id"], proof["account_id"]),
                f"entry {place} is of another release or account",
            )
            if shown:
                before = hashes[place - 2] if place > 1 else _GENESIS
                expect(
                    hashes[place - 1] == _entry_hash(before, entry),
                    f"entry {place} does not follow from the chain before it",
                )
        (charge,) = charges
        expect(
            hashes[charge["sequence"] - 1] == certificate["ledger_row_hash"],
            "its charge is not the entry that the certificate names",
        )
        expect(
            (charge["primary"] * _PRIMARY_STEP, charge["delta"] * _DELTA_STEP)
            == _charged(certificate),
            "its charge is not the one in the certificate",
        )
        if not shown:
            self._notes.append(
                "The account's totals are not shown, so the hash of the ledger entry could not be"
                " made again; the signature covers it."
            )


def _entry_hash(previous_hash: str, entry: Mapping[str, Any]) -> str:
    return hashlib.sha256(f"{previous_hash}\n".encode("ascii") + canonical(entry)).hexdigest()


def _charged(certificate: Mapping[str, Any]) -> tuple[Decimal, Decimal]:
    charge = accounting.amounts(certificate["charge"])
    primary = charge["epsilon"] if certificate["accountant"] == "basic" else charge["rho"]
    return primary, charge.get("delta", Decimal(0))


def _expecting(file: str) -> Callable[[bool, str], None]:
    def expect(holds: bool, fault: str) -> None:
        if not holds:
            raise BundleFault(file, fault)

    return expect

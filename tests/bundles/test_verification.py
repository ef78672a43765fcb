"""`halftone-client verify`: what is whole passes, and nothing else does."""

from __future__ import annotations

import base64
import io
import json
import random
import struct
import zipfile
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from halftone_client import cli
from halftone_client.verification import BundleFault, documents, verify
from halftone_client.verification import archive as read_archive
from halftone_client.verification.accounting import delta_bound, losses_fault
from made_bundles import KEY, SAMPLE, bundle_of, files_of, written

from app.bundles.archive import Archive, Member
from app.bundles.bundle import Bundle
from app.engine.privacy.accounting import delta_of, epsilon_for, open_guarantee
from app.engine.privacy.loss import Accountant, Guarantee
from app.engine.schema import PrivacyUnit, Schema
from app.engine.table import Table
from app.signing.canonical import canonical, signed
from app.signing.keys import SigningKey

SCHEMA = Schema.parse(
    {"fields": [{"name": "colour", "type": "string", "constraints": {"enum": ["red", "blue"]}}]}
)
CHANGES = 1000


def made(**changes: Any) -> Bundle:
    codes = {"colour": np.arange(40, dtype=np.int64) % 2}
    return bundle_of(SCHEMA, PrivacyUnit("row"), Table(codes, 40, None), **changes)


@pytest.fixture(scope="module")
def whole() -> bytes:
    return written(made())


def fault_of(data: bytes, folder: Path) -> BundleFault | None:
    file = folder / "bundle.zip"
    file.write_bytes(data)
    try:
        verify(file)
    except BundleFault as fault:
        return fault
    return None


def with_certificate(change: Callable[[dict[str, Any]], None]) -> bytes:
    """A bundle that the service's own key signed over a changed certificate."""
    bundle = made()
    certificate = json.loads(json.dumps(bundle.contents.certificate))
    change(certificate)
    contents = replace(bundle.contents, certificate=signed(certificate, KEY))
    return written(replace(bundle, contents=contents))


def with_proof(change: Callable[[dict[str, Any]], None]) -> bytes:
    bundle = made()
    proof = json.loads(json.dumps(bundle.contents.proof))
    change(proof)
    return written(replace(bundle, contents=replace(bundle.contents, proof=proof)))


def test_a_bundle_is_whole_and_made_the_same_way_again(whole: bytes, tmp_path: Path) -> None:
    assert fault_of(whole, tmp_path) is None
    assert written(made()) == whole


def test_one_changed_byte_anywhere_is_caught(whole: bytes, tmp_path: Path) -> None:
    draw = random.Random(14)
    missed = []
    for _ in range(CHANGES):
        place, other = draw.randrange(len(whole)), draw.randrange(1, 256)
        changed = bytearray(whole)
        changed[place] ^= other
        if fault_of(bytes(changed), tmp_path) is None:
            missed.append((place, other))
    assert missed == []


def test_each_byte_of_the_end_of_the_archive_counts(whole: bytes, tmp_path: Path) -> None:
    """Where the list of files is, which no hash covers."""
    start = whole.index(b"PK\1\2")
    for place in range(start, len(whole)):
        changed = bytearray(whole)
        changed[place] ^= 1
        assert fault_of(bytes(changed), tmp_path) is not None, place


def test_bytes_before_between_and_after_the_files_are_caught(whole: bytes, tmp_path: Path) -> None:
    second = whole.index(b"PK\3\4", 4)
    commented = bytearray(whole)
    commented[-2:] = b"\1\0"
    for data in (
        b"x" + whole,
        whole + b"x",
        bytes(commented) + b"x",
        whole[:second] + b"x" + whole[second:],
        whole[:-1],
        whole[: len(whole) // 2],
        b"",
    ):
        assert fault_of(data, tmp_path) is not None


def test_another_archive_of_the_same_files_is_caught(whole: bytes, tmp_path: Path) -> None:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as archive:
        for name, content in files_of(whole).items():
            archive.writestr(name, content)
    fault = fault_of(held.getvalue(), tmp_path)
    assert fault is not None
    assert "header in the archive was changed" in fault.fault


@pytest.mark.parametrize("name", ["../more", "/more", "data/../../more", "a\\more", ".more"])
def test_a_name_that_leaves_the_folder_is_caught(name: str, tmp_path: Path) -> None:
    draft = [*files_of(written(made())).items()][:-2]
    draft.append((name, b"more"))
    archive = Archive()
    for each, content in draft:
        list(archive.add(Member(each, [content], is_large=each.startswith("data/"))))
    sums = f"# {archive.sha256} of the {archive.size_bytes} bytes of the archive before this\n"
    sums += "".join(f"{each.sha256}  {each.name}\n" for each in archive.written)
    list(archive.close())
    signature = canonical(KEY.signature_of(sums.encode())) + b"\n"
    signed_sums = [("SHA256SUMS", sums.encode()), ("SHA256SUMS.sig", signature)]
    fault = fault_of(archived([*draft, *signed_sums]), tmp_path)
    assert fault is not None
    assert "list of files" in fault.fault


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("extra", ["more.txt", "README.md"])
def test_a_file_that_is_not_listed_or_comes_twice_is_caught(extra: str, tmp_path: Path) -> None:
    files = list(files_of(written(made())).items())
    files.insert(3, (extra, b"more"))
    fault = fault_of(archived(files), tmp_path)
    assert fault is not None
    assert fault.file in (extra, "the archive")


def archived(files: list[tuple[str, bytes]]) -> bytes:
    archive = Archive()
    pieces = []
    for name, content in files:
        is_sum = name.startswith("SHA256SUMS")
        member = Member(name, [content], is_packed=not is_sum and not name.endswith("parquet"))
        pieces += archive.add(replace(member, is_large=name.startswith("data/")))
    return b"".join([*pieces, *archive.close()])


def test_the_faulty_file_is_named(whole: bytes, tmp_path: Path) -> None:
    place = whole.index(b"PAR1") + 8
    changed = bytearray(whole)
    changed[place] ^= 1
    fault = fault_of(bytes(changed), tmp_path)
    assert fault is not None
    assert fault.file == f"data/{SAMPLE}.parquet"


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (lambda c: c["mechanisms"].append({"loss": {"epsilon": "0.1"}}), "mechanisms add up"),
        (lambda c: c["session"].update(spent={"epsilon": "1.1"}), "spent more than it was allowed"),
        (lambda c: c["charge"].update(epsilon="0.9"), "allowed more than was charged"),
        (lambda c: c.update(guarantee={"epsilon": "0.9"}), "allowed more than the guarantee"),
        (lambda c: c["samples"][0].update(parquet_sha256="0" * 64), "not the one in the certif"),
        (lambda c: c["samples"].clear(), "the certificate names other tables"),
        (lambda c: c["dataset"].update(dictionary_sha256="0" * 64), "is not the dictionary"),
        (lambda c: c.update(ledger_row_hash="0" * 64), "not the entry that the certificate names"),
        (lambda c: c.update(format="other"), "its format is not"),
    ],
)
def test_a_certificate_that_does_not_agree_with_the_rest_is_caught(
    change: Callable[[dict[str, Any]], None], fault: str, tmp_path: Path
) -> None:
    found = fault_of(with_certificate(change), tmp_path)
    assert found is not None
    assert fault in found.fault


@pytest.mark.parametrize(
    "change",
    [
        lambda p: p["entries"][0].update(primary=10**12 - 1),
        lambda p: p["entries"][0].update(release_id="rl_other"),
        lambda p: p["entries"][0].update(sequence=1),
        lambda p: p["entries"].clear(),
        lambda p: p.update(accountant="zcdp"),
        lambda p: p["hashes"].pop(),
    ],
)
def test_a_ledger_proof_that_does_not_agree_is_caught(
    change: Callable[[dict[str, Any]], None], tmp_path: Path
) -> None:
    found = fault_of(with_proof(change), tmp_path)
    assert found is not None
    assert found.file == "ledger-proof.json"


@pytest.mark.parametrize("name", ["guarantee", "charge", "session", "mechanisms", "samples"])
@pytest.mark.parametrize("other", [None, 3, "text", [], {}, [None], {"a": None}])
def test_a_document_of_another_shape_is_a_fault_and_no_error(
    name: str, other: Any, tmp_path: Path
) -> None:
    def change(certificate: dict[str, Any]) -> None:
        certificate[name] = other

    fault = fault_of(with_certificate(change), tmp_path)
    # An empty list of mechanisms adds up.
    assert fault is not None or name == "mechanisms"


def test_the_name_of_a_release_tells_a_terminal_nothing(tmp_path: Path) -> None:
    name = "rl_2\x1b[2K signed by somebody else"
    bundle = made()
    certificate = json.loads(json.dumps(bundle.contents.certificate))
    proof = json.loads(json.dumps(bundle.contents.proof))
    certificate["release"]["id"] = proof["entries"][0]["release_id"] = name
    contents = replace(bundle.contents, certificate=signed(certificate, KEY), proof=proof)
    fault = fault_of(written(replace(bundle, contents=contents)), tmp_path)
    assert fault is not None
    assert "\x1b" not in str(fault)


def test_a_certificate_signed_by_another_key_is_caught(tmp_path: Path) -> None:
    bundle = made()
    other = SigningKey.of(bytes(32))
    contents = replace(bundle.contents, certificate=signed(bundle.contents.certificate, other))
    file = tmp_path / "bundle.zip"
    file.write_bytes(written(replace(bundle, contents=contents)))
    with pytest.raises(BundleFault, match="none of the given keys"):
        verify(file, {KEY.id: KEY.public})


def test_the_command_says_what_it_found(
    whole: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, keys = tmp_path / "bundle.zip", tmp_path / "keys.json"
    file.write_bytes(whole)
    public = base64.b64encode(KEY.public).decode()
    keys.write_text(json.dumps({"keys": [{"id": KEY.id, "public_key": public}]}))
    assert cli.main(["verify", str(file), "--key", str(keys)]) == cli.WHOLE
    told = capsys.readouterr().out
    assert KEY.id in told
    assert "not who made it" not in told

    assert cli.main(["verify", str(file)]) == cli.WHOLE
    assert "not who made it" in capsys.readouterr().out

    keys.write_text(base64.b64encode(bytes(32)).decode())
    assert cli.main(["verify", str(file), "--key", str(keys)]) == cli.FAULTY
    assert "SHA256SUMS.sig: it is signed by" in capsys.readouterr().out

    keys.write_bytes(b"\xff\xfe")
    assert cli.main(["verify", str(file), "--key", str(keys)]) == cli.CANNOT
    keys.write_text("no key")
    assert cli.main(["verify", str(file), "--key", str(keys)]) == cli.CANNOT
    assert cli.main(["verify", str(tmp_path / "absent.zip")]) == cli.CANNOT


def test_archives_beyond_two_gibibytes_are_read_as_they_are_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With the limit lowered for both sides."""
    monkeypatch.setattr(zipfile, "ZIP64_LIMIT", 200)
    monkeypatch.setattr(read_archive, "LIMIT", 200)
    files = [("data/a", bytes(range(256)) * 2), ("data/b", b"b" * 300)]
    data = archived(files)
    with io.BytesIO(data) as stream:
        found = read_archive.Archive(stream)
        assert [(file.name, found.content(file.name, 1000)) for file in found.files] == files
    for place in range(data.index(b"PK\1\2"), len(data)):
        changed = bytearray(data)
        changed[place] ^= 1
        # `verify` makes a fault of whatever strange bytes do to the reader.
        faults = (BundleFault, ValueError, IndexError, struct.error)
        with io.BytesIO(bytes(changed)) as stream, pytest.raises(faults):
            read_archive.Archive(stream)


@pytest.mark.parametrize("accountant", list(Accountant))
@pytest.mark.parametrize(
    "guarantee",
    [
        Guarantee(epsilon=10**12),
        Guarantee(epsilon=333333333333, delta=10**12),
        Guarantee(epsilon=3 * 10**12, delta=10**9),
    ],
)
def test_what_the_service_charges_is_what_the_client_adds_up(
    accountant: Accountant, guarantee: Guarantee
) -> None:
    charge, loss = open_guarantee(guarantee, accountant)
    certificate = {
        "guarantee": guarantee.as_wire(),
        "accountant": accountant.value,
        "charge": charge.as_wire(accountant),
        "session": {"allowed": loss.as_wire(), "spent": loss.as_wire()},
        "mechanisms": [{"loss": loss.as_wire()}],
    }
    assert losses_fault(certificate) is None
    name, amount = next(iter(loss.as_wire().items()))
    more = {name: str(float(amount) * 1.001)}
    assert losses_fault({**certificate, "session": {"allowed": more, "spent": more}}) is not None


def test_rho_on_a_basic_account_is_converted_as_the_service_does() -> None:
    rho, delta = 10**11, 10**12
    epsilon = epsilon_for(rho, delta)
    bound = delta_bound(Decimal(rho).scaleb(-12), Decimal(epsilon).scaleb(-12))
    assert bound * 10**18 <= delta
    assert abs(float(bound) * 1e18 - delta_of(rho, epsilon)) <= 1


def test_the_canonical_form_is_one_for_service_and_client() -> None:
    document = {"b": [1, 0.1, 1e-7, 1e22, True, None], "a": {"ü": "\n"}}
    assert documents.canonical(document) == canonical(document)
    assert documents.key_id(KEY.public) == KEY.id

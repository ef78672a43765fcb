import base64
import os

import pytest

from app.settings import Settings
from app.storage.encryption import OVERHEAD_BYTES, Cipher, Keyring, MasterKeyMissing, SealBroken


def keyring(master: bytes | None) -> Keyring:
    text = None if master is None else base64.b64encode(master).decode()
    return Keyring(Settings(master_key=text))


def test_a_sealed_piece_opens_only_in_its_place() -> None:
    cipher = Cipher(os.urandom(32))
    sealed = cipher.seal(b"secret", b"here")
    assert cipher.open(sealed, b"here") == b"secret"
    assert len(sealed) == 6 + OVERHEAD_BYTES
    assert b"secret" not in sealed
    with pytest.raises(SealBroken):
        cipher.open(sealed, b"there")


@pytest.mark.parametrize("place", [0, 12, -1])
def test_one_flipped_bit_is_noticed(place: int) -> None:
    cipher = Cipher(os.urandom(32))
    sealed = bytearray(cipher.seal(b"secret", b"here"))
    sealed[place] ^= 1
    with pytest.raises(SealBroken):
        cipher.open(bytes(sealed), b"here")


@pytest.mark.parametrize("sealed", [b"", b"short"])
def test_what_is_too_short_to_be_sealed_is_noticed(sealed: bytes) -> None:
    with pytest.raises(SealBroken):
        Cipher(os.urandom(32)).open(sealed, b"")


def test_without_a_master_key_nothing_is_encrypted() -> None:
    ring = keyring(None)
    assert not ring.encrypts
    assert ring.new_key("ds_a") is None
    assert ring.cipher("ds_a", None) is None


def test_a_wrapped_key_opens_for_its_owner_under_the_same_master_key() -> None:
    master = os.urandom(32)
    wrapped = keyring(master).new_key("ds_a")
    assert wrapped is not None
    assert len(wrapped) <= 200
    one, two = keyring(master).cipher("ds_a", wrapped), keyring(master).cipher("ds_a", wrapped)
    assert one is not None
    assert two is not None
    assert two.open(one.seal(b"x", b"p"), b"p") == b"x"
    with pytest.raises(SealBroken):
        keyring(master).cipher("ds_b", wrapped)
    with pytest.raises(SealBroken):
        keyring(os.urandom(32)).cipher("ds_a", wrapped)
    with pytest.raises(MasterKeyMissing):
        keyring(None).cipher("ds_a", wrapped)


def test_two_keys_for_one_owner_differ() -> None:
    ring = keyring(os.urandom(32))
    assert ring.new_key("ds_a") != ring.new_key("ds_a")


@pytest.mark.parametrize("text", ["", "not base64!", base64.b64encode(b"x" * 31).decode()])
def test_a_master_key_that_is_not_32_bytes_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="HALFTONE_MASTER_KEY"):
        Keyring(Settings(master_key=text))

"""Signing keys: made at the first start, sealed, rotated, and read by everyone."""

from __future__ import annotations

import base64
import os
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from front_desk import Desk, front_desk
from pydantic import SecretStr

from app import cli
from app.integrity import rotation
from app.problems import Unavailable
from app.settings import Settings
from app.signing import keys
from app.storage.encryption import Keyring
from app.storage.models import SecretRow
from app.storage.secrets import is_wrapped

MASTER_KEY = base64.b64encode(os.urandom(32)).decode()


def signed_by(desk: Desk, data: bytes, **settings: object) -> tuple[str, bytes]:
    """The id of the key that signs, and its signature, once it was checked."""
    ring = Keyring(desk.app.state.settings.model_copy(update=settings))
    with desk.database.write() as session:
        key = keys.current(session, ring)
    Ed25519PublicKey.from_public_bytes(key.public).verify(key.sign(data), data)
    return key.id, key.sign(data)


def test_a_start_makes_one_key_and_the_next_start_keeps_it(tmp_path: Path) -> None:
    with front_desk(tmp_path) as desk:
        first = signed_by(desk, b"data")
    with front_desk(tmp_path) as desk:
        assert signed_by(desk, b"data") == first


def test_public_halves_are_read_without_a_key_the_current_one_first(tmp_path: Path) -> None:
    with front_desk(tmp_path) as desk:
        ring = Keyring(desk.app.state.settings)
        old, _ = signed_by(desk, b"data")
        with desk.database.write() as session:
            new = keys.rotate(session, ring)
        assert signed_by(desk, b"data")[0] == new.id
        shown = desk.with_key("").get("/keys/signing", headers={"Authorization": ""})
        assert shown.status_code == 200
        listed = shown.json()["keys"]
        assert [(each["id"], each["state"]) for each in listed] == [
            (new.id, "current"),
            (old, "retired"),
        ]
        for each in listed:
            assert keys.key_id(base64.b64decode(each["public_key"])) == each["id"]
        with desk.database.read() as session:
            # Nobody signs with a retired key.
            assert session.get(SecretRow, old) is None


def test_the_private_half_is_sealed_and_follows_the_master_key(tmp_path: Path) -> None:
    with front_desk(tmp_path, master_key=SecretStr(MASTER_KEY)) as desk:
        key, signature = signed_by(desk, b"data")
        with desk.database.read() as session:
            stored = session.get_one(SecretRow, key).value
            assert is_wrapped(stored)
            with pytest.raises(Unavailable):
                keys.current(session, Keyring(Settings()))
        fresh = SecretStr(base64.b64encode(os.urandom(32)).decode())
        settings = desk.app.state.settings
        new = Keyring(settings.model_copy(update={"master_key": fresh}))
        rotation.rotate(desk.database, Keyring(settings), new)
        with pytest.raises(Unavailable):
            signed_by(desk, b"data")
        assert signed_by(desk, b"data", master_key=fresh) == (key, signature)


def test_a_store_that_gets_a_master_key_seals_its_signing_key(tmp_path: Path) -> None:
    with front_desk(tmp_path) as desk:
        key = signed_by(desk, b"data")
    with front_desk(tmp_path, master_key=SecretStr(MASTER_KEY)) as desk:
        assert signed_by(desk, b"data") == key
        with desk.database.read() as session:
            assert is_wrapped(session.get_one(SecretRow, key[0]).value)


def test_the_command_rotates_the_key_under_the_right_master_key_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with front_desk(tmp_path, master_key=SecretStr(MASTER_KEY)) as desk:
        old, _ = signed_by(desk, b"data")
        monkeypatch.setenv("HALFTONE_DATA", str(tmp_path))
        other = base64.b64encode(os.urandom(32)).decode()
        for wrong in (None, other):
            if wrong is not None:
                monkeypatch.setenv("HALFTONE_MASTER_KEY", wrong)
            assert cli.main(["rotate-signing-key"]) == cli.CANNOT
            assert signed_by(desk, b"data")[0] == old
        monkeypatch.setenv("HALFTONE_MASTER_KEY", MASTER_KEY)
        assert cli.main(["rotate-signing-key"]) == cli.DONE
        new, _ = signed_by(desk, b"data")
        assert new != old
        assert new in capsys.readouterr().out
        actions = [each["action"] for each in desk.admin.get("/audit").json()["items"]]
        assert "signing_key.rotated" in actions

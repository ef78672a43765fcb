"""Keys: which open the door, for how long, and what happens to those who guess."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from bookkeeping import add_principal, make_store
from pydantic import SecretStr
from sqlalchemy.orm import Session

from app.database import Database, new_id, now
from app.problems import NotAuthenticated, TooManyRequests
from app.security.authentication import FailureLimit, authenticate
from app.security.bootstrap import BadAdminKey, ensure_admin
from app.security.keys import digest_of, is_key, new_key, prefix_of
from app.security.models import ApiKeyRow
from app.security.principals import Principal
from app.settings import Settings


class Clock:
    def __init__(self) -> None:
        self.moment_s = 0.0

    def __call__(self) -> float:
        return self.moment_s


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    database = make_store(tmp_path)
    yield database
    database.close()


def add_key(session: Session, **changes: object) -> tuple[str, ApiKeyRow]:
    key = new_key()
    row = ApiKeyRow(
        id=new_id("ky"),
        principal_id=add_principal(session, analyst=True).id,
        label="",
        prefix=prefix_of(key),
        digest=digest_of(key),
        created_at=now(),
    )
    for name, value in changes.items():
        setattr(row, name, value)
    session.add(row)
    session.flush()
    return key, row


def enter(
    database: Database,
    key: str,
    failures: FailureLimit | None = None,
    client: str = "192.0.2.1",
    scheme: str = "Bearer",
) -> Principal:
    failures = failures or FailureLimit(1000, 60)
    return authenticate(database, failures, authorization=f"{scheme} {key}", client=client)


def test_a_key_has_256_random_bits_in_43_characters() -> None:
    keys = {new_key() for _ in range(100)}
    assert len(keys) == 100
    assert all(is_key(key) and len(key) == 46 for key in keys)


def test_the_store_keeps_a_hash_and_a_prefix_of_a_key_and_nothing_more(database: Database) -> None:
    with database.write() as session:
        key, _ = add_key(session)
    database.checkpoint()
    stored = database.path.read_bytes()
    assert key[:11].encode() in stored
    assert key[11:].encode() not in stored


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
def test_a_valid_key_opens_the_door(database: Database, scheme: str) -> None:
    with database.write() as session:
        key, row = add_key(session)
    principal = enter(database, key, scheme=scheme)
    assert (principal.id, principal.key_id) == (row.principal_id, row.id)


def test_expired_and_revoked_keys_and_those_of_disabled_principals_do_not(
    database: Database,
) -> None:
    with database.write() as session:
        ended = [
            add_key(session, expires_at=now() - timedelta(seconds=1))[0],
            add_key(session, revoked_at=now())[0],
        ]
        key, _ = add_key(session, principal_id=add_principal(session, admin=True).id)
        disabled = add_principal(session, analyst=True)
        disabled.state = "disabled"
        session.flush()
        ended.append(add_key(session, principal_id=disabled.id)[0])
        still, _ = add_key(session, expires_at=now() + timedelta(minutes=5))
    for ended_key in ended:
        with pytest.raises(NotAuthenticated):
            enter(database, ended_key)
    assert enter(database, still)
    assert enter(database, key).is_admin


@pytest.mark.parametrize("header", ["", "Bearer", "Basic hk_x", "hk_" + "a" * 43, "Bearer hk_ü"])
def test_headers_that_hold_no_key_are_refused(database: Database, header: str) -> None:
    with pytest.raises(NotAuthenticated):
        authenticate(database, FailureLimit(9, 60), authorization=header, client="192.0.2.1")


def test_a_prefix_that_fails_too_often_is_turned_away_until_the_window_ends(
    database: Database,
) -> None:
    clock = Clock()
    failures = FailureLimit(3, 60, clock)
    with database.write() as session:
        key, _ = add_key(session)
    for _ in range(3):
        with pytest.raises(NotAuthenticated):
            enter(database, key[:-1] + "!", failures)
    clock.moment_s = 20
    with pytest.raises(TooManyRequests) as refused:
        enter(database, key, failures)
    assert refused.value.headers["Retry-After"] == "40"
    assert enter(database, key, failures, client="192.0.2.2")
    clock.moment_s = 61
    assert enter(database, key, failures)


def test_guessing_with_many_prefixes_is_limited_but_locks_nobody_else_out(
    database: Database,
) -> None:
    failures = FailureLimit(3, 60)
    with database.write() as session:
        key, _ = add_key(session)
    for _ in range(3):
        with pytest.raises(NotAuthenticated):
            enter(database, new_key(), failures)
    with pytest.raises(TooManyRequests):
        enter(database, new_key(), failures)
    assert enter(database, key, failures)


def test_a_missing_header_is_no_failure(database: Database) -> None:
    failures = FailureLimit(1, 60)
    for _ in range(5):
        with pytest.raises(NotAuthenticated):
            authenticate(database, failures, authorization=None, client="192.0.2.1")


def test_a_fresh_store_gets_one_principal_with_every_role_and_its_key_once(
    database: Database, tmp_path: Path
) -> None:
    settings = Settings(data=tmp_path)
    key = ensure_admin(database, settings)
    assert key is not None
    principal = enter(database, key)
    assert principal.is_admin
    assert principal.is_custodian
    assert principal.is_analyst
    assert ensure_admin(database, settings) is None


def test_a_preset_key_is_taken_and_never_printed(database: Database, tmp_path: Path) -> None:
    preset = "hk_" + "x" * 32
    assert ensure_admin(database, Settings(data=tmp_path, admin_key=SecretStr(preset))) is None
    assert enter(database, preset).is_admin


def test_a_preset_key_that_the_store_does_not_know_is_passed_over_with_a_warning(
    database: Database, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first, late = "hk_" + "x" * 32, "hk_" + "y" * 32
    ensure_admin(database, Settings(data=tmp_path, admin_key=SecretStr(first)))
    ensure_admin(database, Settings(data=tmp_path, admin_key=SecretStr(first)))
    assert not caplog.records
    ensure_admin(database, Settings(data=tmp_path, admin_key=SecretStr(late)))
    assert "halftone keys create admin" in caplog.text
    assert late not in caplog.text
    with pytest.raises(NotAuthenticated):
        enter(database, late)


@pytest.mark.parametrize("bad", ["", "hk_short", "x" * 46, "hk_" + "a" * 129, "hk_" + "ä" * 40])
def test_a_preset_key_of_another_form_stops_the_start(
    database: Database, tmp_path: Path, bad: str
) -> None:
    with pytest.raises(BadAdminKey, match="HALFTONE_ADMIN_KEY") as refused:
        ensure_admin(database, Settings(data=tmp_path, admin_key=SecretStr(bad)))
    assert not bad or bad not in str(refused.value)

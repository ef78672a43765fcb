"""`halftone`: serve, run workers, and maintain a store from the command line."""

from __future__ import annotations

import argparse
import base64
import contextlib
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TextIO, TypeAlias

from pydantic import SecretStr, ValidationError
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DBAPIError

from app import backup
from app.database import Database, format_time
from app.datasets.master_key import require_master_key
from app.datasets.models import DatasetRow
from app.engine import strict_json
from app.engine.adapters import virtualenvs
from app.engine.adapters.libraries import LIBRARIES
from app.engine.privacy.loss import Accountant
from app.integrity import store
from app.integrity.acknowledgement import acknowledge
from app.integrity.ledgers import missing_accounts, verify_all
from app.integrity.rotation import rotate
from app.ledger import repository as ledgers
from app.ledger.export import NotAnExport, export_lines, verify_export
from app.ledger.marks import Marks, signature_of
from app.ledger.verification import Verification
from app.problems import HalftoneError
from app.security import operator
from app.security.bootstrap import BadAdminKey
from app.security.service import roles_of
from app.settings import Settings
from app.signing import keys as signing_keys
from app.storage.encryption import BadMasterKey, Keyring, WrongMasterKey

# Read by `rotate-master-key` alone.
NEW_MASTER_KEY = "HALFTONE_NEW_MASTER_KEY"
# Exit statuses, for scripts and monitoring.
DONE, FOUND_PROBLEMS, CANNOT = 0, 1, 2


class CommandFailed(Exception):
    """The command cannot be carried out; its text says why and what to do."""


# Their texts say what is wrong and what to do.
REFUSALS = (
    CommandFailed,
    BadAdminKey,
    BadMasterKey,
    WrongMasterKey,
    NotAnExport,
    backup.BackupBroken,
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command: 0 done, 1 problems found, 2 cannot."""
    parsed = _parser().parse_args(arguments)
    command: Callable[[argparse.Namespace], int] = parsed.command
    try:
        return command(parsed)
    except REFUSALS as error:
        return _failed(str(error))
    except OSError as error:
        return _failed(f"{error.filename}: {error.strerror}" if error.filename else str(error))
    except HalftoneError as error:
        return _failed(error.detail)
    except ValidationError as error:
        return _failed("\n".join(_setting_faults(error)))
    except DBAPIError as error:
        return _failed(f"The store cannot be used: {error.orig}. {_advice(error)}")


def _advice(error: DBAPIError) -> str:
    """What helps, by SQLite's primary code for the error."""
    code = getattr(error.orig, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
    if code in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT):
        return (
            "The file is damaged or no store. Stop the service, keep the file aside, and put a"
            " backup in its place; without one, `sqlite3 FILE .recover` reads what is left."
        )
    if code == sqlite3.SQLITE_ERROR:
        # A table or a column is missing: the store is of an older version, or new.
        return "Start `halftone serve` on it once, which brings it to this version."
    return (
        "Check that this user may read and write the file and its folder, that the disk has room,"
        " and that no other program holds the file."
    )


def _failed(reason: str) -> int:
    print(f"halftone: {reason}", file=sys.stderr)
    return CANNOT


def _setting_faults(error: ValidationError) -> Iterator[str]:
    for fault in error.errors(include_input=False):
        name = "_".join(str(part) for part in fault["loc"]).upper()
        # Without the value, which may be a secret.
        yield f"HALFTONE_{name}: {fault['msg']}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="halftone",
        description="Differentially private synthetic data within a budget that cannot be"
        " overspent. Settings come from HALFTONE_* (HALFTONE_DATA is the store's folder).",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_serving(commands)
    _add_keys(commands)
    _add_verify(commands)
    _add_export(commands)
    _add_backup(commands)
    _add_acknowledge(commands)
    _add_rotation(commands)
    _add_adapters(commands)
    return parser


Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


def _add_serving(commands: Commands) -> None:
    serve = commands.add_parser("serve", help="migrate the store, start its workers, and serve")
    serve.add_argument("--host", help="address to bind (HALFTONE_HOST)")
    serve.add_argument("--port", type=int, help="port to bind (HALFTONE_PORT)")
    serve.set_defaults(command=_serve)
    worker = commands.add_parser("worker", help="run one worker on the store, without a server")
    worker.set_defaults(command=_work)


def _serve(parsed: argparse.Namespace) -> int:
    # Imported here: the other commands need no server, and start faster without it.
    from app.serve import AddressTaken, serve

    given = {"host": parsed.host, "port": parsed.port}
    chosen = {name: value for name, value in given.items() if value is not None}
    try:
        serve(Settings(**chosen))
    except AddressTaken as error:
        raise CommandFailed(str(error)) from error
    return DONE


def _work(parsed: argparse.Namespace) -> int:
    del parsed
    from app.jobs.worker import main as work

    work(Settings())
    return DONE


def _add_keys(commands: Commands) -> None:
    keys = commands.add_parser(
        "keys", help="list, make and revoke API keys in the store, if no admin can authenticate"
    )
    actions = keys.add_subparsers(required=True, metavar="ACTION")
    actions.add_parser("list", help="all principals with their keys").set_defaults(
        command=_list_keys
    )
    create = actions.add_parser("create", help="make a key and print it, once")
    create.add_argument("principal", help="name or id; the first principal is `admin`")
    create.add_argument("--label", default="made by the operator", help="what the key is for")
    create.add_argument("--expires-in-days", type=int, metavar="DAYS", help="default: never")
    create.set_defaults(command=_create_key)
    revoke = actions.add_parser("revoke", help="revoke a key at once")
    revoke.add_argument("key_id", help="id of the key, as listed")
    revoke.set_defaults(command=_revoke_key)


def _list_keys(parsed: argparse.Namespace) -> int:
    del parsed
    with _store() as database, database.read() as session:
        for holder in operator.holders(session):
            row = holder.principal
            print(f"{row.id}  {row.name}  {', '.join(roles_of(row))}  {row.state}")
            for key in holder.keys:
                ends = "no expiry" if key.expires_at is None else format_time(key.expires_at)
                end = ends if key.revoked_at is None else "revoked"
                print(f"    {key.id}  {key.prefix}...  {end}  {key.label}")
    return DONE


def _create_key(parsed: argparse.Namespace) -> int:
    with _store() as database, database.write() as session:
        made = operator.make_key(
            session, parsed.principal, label=parsed.label, days=parsed.expires_in_days
        )
    print(made.secret)
    return DONE


def _revoke_key(parsed: argparse.Namespace) -> int:
    with _store() as database, database.write() as session:
        operator.end_key(session, parsed.key_id)
    return DONE


def _add_verify(commands: Commands) -> None:
    verify = commands.add_parser(
        "verify", help="check ledgers, releases, file and chunks; exit 1 if anything is wrong"
    )
    verify.add_argument(
        "--file", type=Path, help="verify the output of `halftone export` instead of the store"
    )
    verify.add_argument(
        "--certificate", type=Path, help="whether the store holds what a certificate was charged"
    )
    verify.add_argument("--ledgers-only", action="store_true", help="leave out the stored tables")
    verify.set_defaults(command=_verify)


def _verify(parsed: argparse.Namespace) -> int:
    if parsed.certificate is not None:
        return _verify_certificate(parsed.certificate)
    if parsed.file is not None:
        with parsed.file.open(encoding="utf-8") as lines:
            return _report(verify_export(lines))
    with _store() as database, database.read() as session:
        recorded = Marks.to_read(database).read()
        outcome = _report(verify_all(session, recorded))
        for account_id in missing_accounts(session, recorded):
            print(f"account {account_id}: has a high-water mark, and is not in the store")
            outcome = FOUND_PROBLEMS
        check = store.release_problems if parsed.ledgers_only else store.beyond_ledgers
        for problem in check(session):
            print(problem)
            outcome = FOUND_PROBLEMS
    print("The store is intact." if outcome == DONE else "The store is NOT intact.")
    return outcome


def _verify_certificate(path: Path) -> int:
    try:
        wire = strict_json.loads(path.read_text(encoding="utf-8"))
        entry_hash, signature = wire["ledger_row_hash"], wire.get("ledger_signature")
    except (ValueError, TypeError, KeyError) as error:
        raise CommandFailed(f"{path} is no certificate of a release.") from error
    with _store() as database, database.read() as session:
        row = ledgers.entry_of_hash(session, str(entry_hash))
        if row is None:
            print(
                "The store has no such ledger entry: it was put back to an earlier moment, or the"
                " certificate is of another store."
            )
            return FOUND_PROBLEMS
        keyring = Keyring(Settings())
        if signature != signature_of(session, keyring, row.account_id, row.sequence):
            print("The entry is there, and the certificate is not signed by this store.")
            return FOUND_PROBLEMS
    print("The store holds the entry that the certificate names.")
    return DONE


def _report(found: Iterator[Verification] | list[Verification]) -> int:
    outcome = DONE
    for one in found:
        verdict = "ok" if one.ok else "NOT INTACT"
        print(f"account {one.account_id}: {verdict}, {one.entries} entries, head {one.head_hash}")
        for problem in one.problems:
            print(f"    {problem}")
        outcome = outcome if one.ok else FOUND_PROBLEMS
    return outcome


def _add_export(commands: Commands) -> None:
    export = commands.add_parser(
        "export", help="write ledgers as JSON Lines that can be verified by themselves"
    )
    which = export.add_mutually_exclusive_group()
    which.add_argument("--dataset", metavar="DS", help="only the account of this dataset")
    which.add_argument("--account", metavar="AC", help="only this account")
    export.add_argument(
        "--output", type=Path, metavar="FILE", help="file to make; default: standard output"
    )
    export.set_defaults(command=_export)


def _export(parsed: argparse.Namespace) -> int:
    with _store() as database, database.read() as session, _output(parsed.output) as output:
        chosen = ledgers.account_ids(session)
        if parsed.dataset is not None:
            dataset = session.get(DatasetRow, parsed.dataset)
            chosen = [dataset.account_id] if dataset and dataset.account_id else []
        elif parsed.account is not None:
            chosen = [one for one in chosen if one == parsed.account]
        if not chosen and parsed.dataset:
            raise CommandFailed(f"There is no private dataset {parsed.dataset}.")
        if not chosen and parsed.account:
            raise CommandFailed(f"There is no account {parsed.account}.")
        for account_id in chosen:
            for line in export_lines(session, account_id):
                print(line, file=output)
    return DONE


@contextlib.contextmanager
def _output(path: Path | None) -> Iterator[TextIO]:
    if path is None:
        yield sys.stdout
    else:
        # "x": an earlier export is evidence and must not be overwritten.
        with path.open("x", encoding="utf-8") as file:
            yield file


def _add_backup(commands: Commands) -> None:
    save = commands.add_parser("backup", help="copy the store while it runs, and verify the copy")
    save.add_argument("target", type=Path, metavar="FILE", help="file to make; it must not exist")
    save.set_defaults(command=_back_up)


def _back_up(parsed: argparse.Namespace) -> int:
    with _store() as database:
        size_bytes = backup.back_up(database, parsed.target.absolute())
    print(f"{parsed.target}: {size_bytes} bytes, verified")
    return DONE


def _add_acknowledge(commands: Commands) -> None:
    command = commands.add_parser(
        "acknowledge",
        help="go on with an account whose store was put back to an earlier moment: charges what the"
        " store has forgotten, and notes it in the ledger",
    )
    command.add_argument("account", metavar="AC", help="id of the account, as `verify` names it")
    command.add_argument("--reason", required=True, help="why an earlier store is in place")
    command.set_defaults(command=_acknowledge)


def _acknowledge(parsed: argparse.Namespace) -> int:
    with _store() as database:
        marks = Marks.of(database, Keyring(Settings()))
        charged = acknowledge(database, marks, parsed.account, parsed.reason)
        with database.read() as session:
            account = ledgers.account(session, parsed.account)
        if account is None:
            print(f"{parsed.account} is not in the store; its mark is removed, and audited.")
            return DONE
        wire = charged.as_wire(Accountant(account.accountant))
    print(f"{parsed.account} takes charges again; charged for what was forgotten: {wire}")
    return DONE


def _add_rotation(commands: Commands) -> None:
    rotate = commands.add_parser(
        "rotate-master-key",
        help=f"put the key in {NEW_MASTER_KEY} in the place of HALFTONE_MASTER_KEY; stop the"
        " service first",
    )
    rotate.set_defaults(command=_rotate)
    sign = commands.add_parser(
        "rotate-signing-key",
        help="sign bundles and certificates with a new key; the old one's public half is kept",
    )
    sign.set_defaults(command=_rotate_signing)


def _rotate(parsed: argparse.Namespace) -> int:
    del parsed
    secret = os.environ.get(NEW_MASTER_KEY)
    if not secret:
        raise CommandFailed(f"Set {NEW_MASTER_KEY} to the new key: base64 of 32 random bytes.")
    settings = Settings()
    new = settings.model_copy(update={"master_key": SecretStr(secret)})
    with _store() as database:
        number = rotate(database, Keyring(settings), Keyring(new))
    print(f"{number} keys are wrapped under the new master key: start the service with it.")
    return DONE


def _rotate_signing(parsed: argparse.Namespace) -> int:
    del parsed
    settings = Settings()
    with _store() as database:
        require_master_key(database, settings)
        with database.write() as session:
            made = signing_keys.rotate(session, Keyring(settings))
    print(f"{made.id} signs from now on: {base64.b64encode(made.public).decode()}")
    return DONE


def _add_adapters(commands: Commands) -> None:
    adapters = commands.add_parser(
        "adapters", help="other projects' synthesizers, each library in its own virtualenv"
    )
    actions = adapters.add_subparsers(required=True, metavar="ACTION")
    actions.add_parser("list", help="the libraries, and which are installed").set_defaults(
        command=_list_adapters
    )
    add = actions.add_parser(
        "install", help="make a library's virtualenv below HALFTONE_ADAPTERS, from hashes"
    )
    add.add_argument("library", choices=sorted(LIBRARIES))
    add.set_defaults(command=_install_adapter)


def _list_adapters(parsed: argparse.Namespace) -> int:
    del parsed
    folder = Settings().adapters
    for library in LIBRARIES.values():
        state = "installed" if virtualenvs.is_installed(folder, library) else "not installed"
        print(f"{library.name}  {library.distribution} {library.version}  {state}")
    return DONE


def _install_adapter(parsed: argparse.Namespace) -> int:
    library, settings = LIBRARIES[parsed.library], Settings()
    if settings.data.resolve() in settings.adapters.resolve().parents:
        raise CommandFailed(
            "Nothing inside HALFTONE_DATA can be read by a synthesizer's process. Set"
            " HALFTONE_ADAPTERS to a folder outside it."
        )
    try:
        where = virtualenvs.install(settings.adapters, library)
    except subprocess.CalledProcessError as error:
        raise CommandFailed(
            f"{library.distribution} was not installed: a step ended with status"
            f" {error.returncode}; its output is above."
        ) from error
    print(f"{library.distribution} {library.version}: {where}")
    return DONE


@contextlib.contextmanager
def _store() -> Iterator[Database]:
    settings = Settings()
    path = make_url(settings.url).database
    if path is None or not Path(path).is_file():
        raise CommandFailed(f"There is no store at {path}. Set HALFTONE_DATA to its folder.")
    database = Database(settings.url, busy_timeout_s=settings.busy_timeout_s)
    try:
        yield database
    finally:
        database.close()


if __name__ == "__main__":
    sys.exit(main())

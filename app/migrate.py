"""Bring a store to the newest schema; the migrations are the only thing that makes tables."""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy.engine import make_url

from app.database import Database

_PACKAGE = Path(__file__).parent


def scripts_folder() -> Path:
    """The migrations: inside the installed package, or next to it in a checkout."""
    installed = _PACKAGE / "migrations"
    return installed if installed.is_dir() else _PACKAGE.parent / "migrations"


def configuration(url: str) -> Config:
    config = Config()
    # A percent sign would start an interpolation in the configuration.
    config.set_main_option("script_location", str(scripts_folder()).replace("%", "%%"))
    config.attributes["url"] = url
    return config


def to_head(url: str) -> None:
    """Create or upgrade the store at `url`; safe to call from several processes at once."""
    path = make_url(url).database
    assert path is not None
    database = Database(url)
    try:
        # The write lock, because several servers and workers may start on one store at once.
        with database.lock.held(), database.write_engine.connect() as connection:
            config = configuration(url)
            config.attributes["connection"] = connection
            command.upgrade(config, "head")
            connection.commit()
        # The log still holds what a migration erased.
        database.checkpoint()
    finally:
        database.close()

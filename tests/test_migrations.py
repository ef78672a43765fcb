"""Migrations alone make the tables, forwards and back, and equal the models."""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import inspect

from app.database import Database
from app.migrate import configuration, to_head
from app.tables import metadata


def url_in(folder: Path) -> str:
    return f"sqlite:///{folder}/store.sqlite"


def test_an_empty_store_migrated_to_head_equals_the_models(tmp_path: Path) -> None:
    to_head(url_in(tmp_path))
    database = Database(url_in(tmp_path))
    with database.read_engine.connect() as connection:
        context = MigrationContext.configure(
            connection, opts={"compare_type": True, "compare_server_default": True}
        )
        assert compare_metadata(context, metadata) == []
        migrated = checks_of(connection)
    made = Database(f"sqlite:///{tmp_path}/made.sqlite")
    metadata.create_all(made.write_engine)
    with made.read_engine.connect() as connection:
        assert migrated == checks_of(connection)
    made.close()
    database.close()


def checks_of(connection) -> dict[str, set[str]]:
    inspector = inspect(connection)
    return {
        table: {check["sqltext"] for check in inspector.get_check_constraints(table)}
        for table in inspector.get_table_names()
        if table != "alembic_version"
    }


def test_migrating_twice_changes_nothing(tmp_path: Path) -> None:
    to_head(url_in(tmp_path))
    to_head(url_in(tmp_path))


def test_a_downgrade_takes_every_table_away_and_an_upgrade_brings_it_back(tmp_path: Path) -> None:
    to_head(url_in(tmp_path))
    database = Database(url_in(tmp_path))
    with database.write_engine.connect() as connection:
        config = configuration(url_in(tmp_path))
        config.attributes["connection"] = connection
        command.downgrade(config, "base")
        connection.commit()
        assert inspect(connection).get_table_names() == ["alembic_version"]
    database.close()
    to_head(url_in(tmp_path))

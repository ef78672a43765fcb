"""Runs migrations on the connection that the caller holds, or on HALFTONE's own store."""

from __future__ import annotations

from alembic import context

from app.database import Database, UtcTime
from app.settings import get_settings
from app.tables import metadata


def render_item(kind: str, item: object, _: object) -> str | bool:
    """Own column types are written as what they are stored as: a migration never changes."""
    return "sa.String(27)" if kind == "type" and isinstance(item, UtcTime) else False


def run(connection: object) -> None:
    context.configure(
        connection=connection,  # type: ignore[arg-type]
        target_metadata=metadata,
        render_as_batch=True,
        transactional_ddl=True,
        compare_type=True,
        render_item=render_item,
        compare_server_default=True,
    )
    with context.begin_transaction():
        context.run_migrations()


held = context.config.attributes.get("connection")
if held is not None:
    run(held)
else:
    database = Database(get_settings().url)
    with database.lock.held(), database.write_engine.connect() as opened:
        run(opened)
        opened.commit()
    database.close()

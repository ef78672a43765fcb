"""Statements are compiled once in this process, and not once for each store that a test opens.

Each engine keeps what it has compiled, and each test opens two engines. Compiling was a quarter of
the time of a test over HTTP.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from sqlalchemy import create_engine
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
from sqlalchemy.util import LRUCache

from app import database


def share_compiled_statements() -> None:
    """For the whole of this process, from its start."""
    patch = pytest.MonkeyPatch()
    compiled: LRUCache[Any, Any] = LRUCache(2000)
    patch.setattr(
        database,
        "create_engine",
        partial(create_engine, execution_options={"compiled_cache": compiled}),
    )
    # What was compiled is found by the statement and the dialect. Each engine has a dialect of its
    # own, and all of the store are configured alike.
    patch.setattr(SQLiteDialect_pysqlite, "__eq__", lambda self, other: type(self) is type(other))
    patch.setattr(SQLiteDialect_pysqlite, "__hash__", lambda self: hash(type(self)))

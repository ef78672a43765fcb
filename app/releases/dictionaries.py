"""Dictionaries of datasets, read once and kept: a dataset's dictionary never changes."""

from __future__ import annotations

import threading

from app.datasets.models import DatasetRow
from app.engine.schema import Schema

_MOST_KEPT = 64
_kept: dict[str, Schema] = {}
_turn = threading.Lock()


def dictionary_of(dataset: DatasetRow) -> Schema:
    """The dataset's dictionary; the oldest of those kept gives way to a new one."""
    schema = _kept.get(dataset.id)
    if schema is None:
        schema = Schema.parse(dataset.schema)
        with _turn:
            while len(_kept) >= _MOST_KEPT:
                del _kept[next(iter(_kept))]
            _kept[dataset.id] = schema
    return schema

"""Parsed dictionaries of datasets, kept in memory: a dataset's dictionary never changes."""

from __future__ import annotations

import threading

from app.datasets.models import DatasetRow
from app.engine.schema import Schema

# Bounds the memory; few datasets are used at the same time.
_MOST_KEPT = 64
_kept: dict[str, Schema] = {}
_lock = threading.Lock()


def dictionary_of(dataset: DatasetRow) -> Schema:
    """The dataset's dictionary; a new one replaces the oldest in memory."""
    schema = _kept.get(dataset.id)
    if schema is None:
        schema = Schema.parse(dataset.schema)
        # The read above needs no lock: at worst two threads parse the same dictionary.
        with _lock:
            while len(_kept) >= _MOST_KEPT:
                del _kept[next(iter(_kept))]
            _kept[dataset.id] = schema
    return schema

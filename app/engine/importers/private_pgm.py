"""Private-PGM's `domain.json`: the number of codes of each column."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app.engine.schema.problems import ProblemLog


def import_domain(domain: Any) -> dict[str, Any]:
    """The schema of a `domain.json` such as `{"age": 85}`: codes 0 to size - 1, never missing.

    Raises `SchemaError`.
    """
    log = ProblemLog()
    if not isinstance(domain, Mapping) or not domain:
        log.add("expected an object of column sizes", 'write {"age": 85}')
        log.raise_if_any()
    fields = []
    for name, size in domain.items():
        if not isinstance(size, int) or isinstance(size, bool) or size < 1:
            log.add("a size must be a whole number from 1", "count the column's values", str(name))
            continue
        limits = {"required": True, "minimum": 0, "maximum": size - 1}
        fields.append({"name": name, "type": "integer", "constraints": limits})
    log.raise_if_any()
    return {"fields": fields, "missingValues": [""]}

"""The `parameters.json` of NIST's challenge of 2020 (sprints 1 and 3)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app.engine.schema.problems import ProblemLog

# Sprint 1 does not declare the column with the ids of individuals, but its data have it.
_ENTITY_OF_SPRINT_1 = "sim_resident"


def import_nist(parameters: Any) -> dict[str, Any]:
    """The schema of a `parameters.json` of sprint 1 (lists of codes) or sprint 3 (columns).

    Raises `SchemaError`.
    """
    schema = _schema_of(parameters)
    log = ProblemLog("/schema")
    if "periods" in schema:
        fields = _sprint_1(schema, log)
    else:
        fields = [_nist_field(name, column, log.below(name)) for name, column in schema.items()]
    log.raise_if_any()
    return {"fields": fields, "missingValues": [""]}


def import_nist_unit(parameters: Any) -> dict[str, Any]:
    """The privacy unit for `import_nist`: the individual if the table has ids, else the row."""
    entities = [field for field in import_nist(parameters)["fields"] if "role" in field]
    most = _most_records(parameters.get("runs"))
    if not entities or most is None:
        return {"kind": "row"}
    return {"kind": "entity", "column": entities[0]["name"], "max_rows": most}


def _most_records(runs: Any) -> int | None:
    """The contribution bound of the first run; None if it has no valid bound."""
    first = runs[0] if isinstance(runs, list) and runs else None
    most = first.get("max_records_per_individual") if isinstance(first, Mapping) else None
    if not isinstance(most, int) or isinstance(most, bool) or most < 1:
        return None
    return most


def _schema_of(parameters: Any) -> Mapping[str, Any]:
    schema = parameters.get("schema") if isinstance(parameters, Mapping) else None
    if not isinstance(schema, Mapping) or not schema:
        log = ProblemLog()
        log.add("expected the challenge's parameters", "give the whole parameters.json", "schema")
        log.raise_if_any()
    return schema or {}


def _nist_field(name: str, column: Any, log: ProblemLog) -> dict[str, Any]:
    if not isinstance(column, Mapping):
        log.add("expected an object", 'write {"dtype": ..., "kind": ...}')
        return {}
    kind, dtype = column.get("kind"), str(column.get("dtype", ""))
    type_name = "integer" if "int" in dtype else "number" if "float" in dtype else "string"
    field: dict[str, Any] = {"name": name, "type": type_name}
    if kind == "id":
        return field | {"role": "entity"}
    if kind == "categorical" and isinstance(column.get("values"), list):
        return field | {"constraints": {"required": True, "enum": column["values"]}}
    if kind == "numeric" and "min" in column and "max" in column:
        limits = {"required": True, "minimum": column["min"], "maximum": column["max"]}
        return field | {"constraints": limits}
    log.add("unknown kind of column", "use id, categorical with values, or numeric", "kind")
    return field


def _sprint_1(schema: Mapping[str, Any], log: ProblemLog) -> list[dict[str, Any]]:
    """Sprint 1 lists periods, and codes of neighbourhoods and incident types."""
    periods = schema["periods"]
    if not isinstance(periods, list) or not all(_is_period(period) for period in periods):
        log.add(
            "expected a list of years and months", 'write {"year": 2019, "month": 1}', "periods"
        )
        return []
    fields: list[dict[str, Any]] = [
        _codes("year", sorted({period["year"] for period in periods})),
        _codes("month", sorted({period["month"] for period in periods})),
    ]
    for name in ("neighborhood", "incident_type"):
        entries = schema.get(name)
        if not isinstance(entries, list) or not all(_is_coded(entry) for entry in entries):
            log.add("expected a list of names and codes", 'write {"name": ..., "code": 0}', name)
            continue
        fields.append(_codes(name, sorted({entry["code"] for entry in entries})))
    return [*fields, {"name": _ENTITY_OF_SPRINT_1, "type": "integer", "role": "entity"}]


def _is_period(period: Any) -> bool:
    return isinstance(period, Mapping) and all(
        isinstance(period.get(key), int) for key in ("year", "month")
    )


def _is_coded(entry: Any) -> bool:
    return isinstance(entry, Mapping) and isinstance(entry.get("code"), int)


def _codes(name: str, values: list[int]) -> dict[str, Any]:
    return {"name": name, "type": "integer", "constraints": {"required": True, "enum": values}}

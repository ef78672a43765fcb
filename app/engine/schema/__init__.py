"""The data dictionary: what is public about a table, and how its columns are stored."""

from app.engine.schema.column import Column, EntityColumn, LeftOut, QuantileBins
from app.engine.schema.problems import FieldProblem, SchemaError
from app.engine.schema.table import Schema
from app.engine.schema.unit import PrivacyUnit

__all__ = [
    "Column",
    "EntityColumn",
    "FieldProblem",
    "LeftOut",
    "PrivacyUnit",
    "QuantileBins",
    "Schema",
    "SchemaError",
]

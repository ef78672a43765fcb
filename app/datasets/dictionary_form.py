"""JSON Schemas of what a dataset declares, only for the API description.

The engine parses these forms itself, with more exact messages; here each key is described.
"""

from __future__ import annotations

from typing import Any

_VALUE: dict[str, Any] = {"type": ["string", "number", "boolean"]}


def _described(description: str, **schema: Any) -> dict[str, Any]:
    return {**schema, "description": description}


_CONSTRAINTS = _described(
    "The public domain of the column: `enum`, or `minimum` and `maximum`.",
    type="object",
    properties={
        "required": _described("Whether null is impossible; false by default.", type="boolean"),
        "enum": _described("Every public value.", type="array", items=_VALUE),
        "minimum": _described("Smallest public value.", **_VALUE),
        "maximum": _described("Largest public value.", **_VALUE),
    },
)

_FIELD_KEYS: dict[str, dict[str, Any]] = {
    "name": _described("As in the file's header.", type="string"),
    "type": _described(
        "boolean, integer, number, string, date, datetime, time or year. A string without"
        " `enum` is free text: it is left out, and so are the other types of Table Schema.",
        type="string",
    ),
    "column": _described("Place in the file from 1, in place of its name.", type="integer"),
    "title": _described("What the column is, in a few words.", type="string"),
    "description": _described("What the column is, in more words.", type="string"),
    "constraints": _CONSTRAINTS,
    "bins": _described(
        "Default grouping of numbers and dates: a number of equal cells, their edges, or"
        ' `"quantiles"` (also `{"quantiles": 40}`): bins of about equal numbers of rows, which'
        " every release that counts them measures with a part of its guarantee.",
        type=["integer", "array", "string", "object"],
        items=_VALUE,
    ),
    "special": _described("Point masses, such as 0 or -1.", type="array", items=_VALUE),
    "other": _described("The value that replaces undeclared ones.", **_VALUE),
    "undeclared": _described(
        "What undeclared values become: `other`, `null`, `clip` or `reject`.", type="string"
    ),
    "step": _described(
        "Values are rounded to multiples of this step from the minimum; days for dates, seconds for"
        " times and datetimes.",
        type="number",
    ),
    "role": _described("`entity` marks the id of the privacy unit.", type="string"),
    "values": _described(
        '`"discover"` (also `{"discover": 300}`): the values of this text column are not listed,'
        " and every release that uses it finds the frequent ones with a part of its guarantee.",
        type=["string", "object"],
    ),
    "proposed": _described(
        "Marks a field of a proposal that you have not confirmed as public.", type="boolean"
    ),
    "format": _described(
        "How a date or time is written, in strptime notation; several are tried in order.",
        type=["string", "array"],
        items={"type": "string"},
    ),
    "missingValues": _described(
        "Spellings of null in this column.", type="array", items={"type": "string"}
    ),
    "decimalChar": _described("Decimal mark of numbers.", type="string"),
    "groupChar": _described("Mark between thousands.", type="string"),
    "bareNumber": _described(
        "False: the number has characters such as $ or % around it.", type="boolean"
    ),
    "trueValues": _described("Spellings of true.", type="array", items={"type": "string"}),
    "falseValues": _described("Spellings of false.", type="array", items={"type": "string"}),
}

DICTIONARY: dict[str, Any] = {
    "type": "object",
    "description": "What is public about the columns: a Frictionless Table Schema with additional"
    " keys of Halftone.",
    "required": ["fields"],
    "properties": {
        "fields": _described(
            "The columns.",
            type="array",
            items={"type": "object", "required": ["name", "type"], "properties": _FIELD_KEYS},
        ),
        "missingValues": _described(
            "Spellings of null in every column.", type="array", items={"type": "string"}
        ),
        "constraints": _described(
            "What must hold between columns of a row: objects of a `kind`, which is `sum`"
            " (`total`, `parts`, `tolerance`), `at_least` (`column`, `sum_of`, `offset`), `order`"
            " (`columns`, `strict`), `forbidden` (`when`), `implied` (`when`, `then`) or `lookup`"
            " (`columns`, `rows`). Real rows that break one are counted and kept; synthetic rows"
            " are repaired until all hold. Constraints that no row can meet are refused.",
            type="array",
            items={"type": "object"},
        ),
        "title": _described("What the table is, in a few words.", type="string"),
        "description": _described("What the table is, in more words.", type="string"),
        "$schema": _described("Which standard the file was written for.", type="string"),
    },
}

UNIT: dict[str, Any] = {
    "properties": {
        "kind": _described(
            "`row`: adjacent tables differ by one row. `entity`: by all rows of one id.",
            type="string",
            enum=["row", "entity"],
        ),
        "column": _described("For `entity`: the column that holds the id.", type="string"),
        "max_rows": _described(
            "For `entity`: the most rows of one id that count.", type="integer", minimum=1
        ),
    }
}

FILE_OPTIONS: dict[str, Any] = {
    "properties": {
        "format": _described("csv, tsv, parquet or jsonl.", type="string"),
        "compression": _described("gzip or zstd.", type="string"),
        "encoding": _described("Such as utf-8, latin-1 or cp1252.", type="string"),
        "delimiter": _described("Between cells.", type="string"),
        "quote": _described("Around cells; empty for a file without quoting.", type="string"),
        "header": _described("Whether there are names; true by default.", type="boolean"),
        "header_rows": _described("Rows that are joined into the names.", type="integer"),
        "skip_rows": _described("Lines before the names.", type="integer"),
        "decimal": _described("Decimal mark of fields that declare none.", type="string"),
        "comment": _described("Lines that start with it are skipped.", type="string"),
    }
}

"""Options for reading a file: those that the custodian declares, and the limit of the server."""

from __future__ import annotations

import codecs
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, cast

from app.engine.schema.problems import ProblemLog

Format = Literal["csv", "tsv", "parquet", "jsonl"]
Compression = Literal["gzip", "zstd", "none"]

FORMATS: tuple[Format, ...] = ("csv", "tsv", "parquet", "jsonl")
COMPRESSIONS: tuple[Compression, ...] = ("gzip", "zstd", "none")
# Codecs of Python that are not encodings of files, that decode escapes, or in which a row could
# change how the next ones are read, by a shift that it does not take back.
_NO_FILE_ENCODINGS = {
    "hz",
    "idna",
    "mbcs",
    "oem",
    "punycode",
    "raw-unicode-escape",
    "undefined",
    "unicode-escape",
    "utf-7",
}
_MARKS = (("delimiter", None), ("quote", '"'), ("comment", None))
# Stands in a proposal for an encoding that only the custodian can know, and is refused.
OPEN_ENCODING = "?"
MOST_HEADER_ROWS = 10
MOST_SKIPPED_ROWS = 10_000
DEFAULT_MOST_BYTES = 64 * 2**30


@dataclass(frozen=True, slots=True)
class FileOptions:
    """Options for reading a file. Options that are None are not declared.

    Without `encoding` the text is UTF-8, or what its byte order mark says; without `delimiter` the
    header decides. `format` and `compression` are read off the first bytes.

    `quote` is "" for a file without quotes. The `header_rows` are joined into one name for each
    column; 0 (or `header` false) means that there are no names. `skip_rows` is the number of
    lines before them. `decimal` is the decimal character of number fields that declare none.
    Lines that start with `comment` are ignored and not counted. `max_bytes` limits the size after
    decompression. The server sets it, so it has no JSON form.
    """

    format: Format | None = None
    encoding: str | None = None
    delimiter: str | None = None
    quote: str | None = None
    header: bool = True
    header_rows: int = 1
    skip_rows: int = 0
    compression: Compression | None = None
    decimal: str | None = None
    comment: str | None = None
    max_bytes: int = DEFAULT_MOST_BYTES

    @property
    def rows_of_names(self) -> int:
        """The number of header rows; 0 without a header."""
        return self.header_rows if self.header else 0

    @property
    def is_delimited(self) -> bool:
        """Whether the options say that the file is CSV or TSV, where `format` does not."""
        declared = (self.delimiter, self.quote, self.comment)
        return (
            self.format in ("csv", "tsv")
            or any(option is not None for option in declared)
            or self.rows_of_names != 1
            or self.skip_rows > 0
        )

    @property
    def has_rows_first(self) -> bool:
        """Whether the first bytes of the file are those of a row."""
        return not self.rows_of_names and not self.skip_rows

    @classmethod
    def parse(cls, wire: Any, max_bytes: int = DEFAULT_MOST_BYTES) -> FileOptions:
        """Reads the JSON form; raises `SchemaError` with pointers below `/`."""
        log = ProblemLog()
        if not isinstance(wire, Mapping):
            log.add("file options must be an object", 'write {"format": "csv"}')
            log.raise_if_any()
        known = {field.name for field in fields(cls)} - {"max_bytes"}
        for key in wire:
            if key not in known:
                log.add("unknown key", f"use one of {', '.join(sorted(known))}", str(key))
        given = {key: value for key, value in wire.items() if value is not None and key in known}
        _check_choices(given, log)
        _check_marks(given, log)
        _check_rows(given, log)
        log.raise_if_any()
        return cls(**given, max_bytes=max_bytes)

    def to_wire(self) -> dict[str, Any]:
        """The JSON form, without defaults."""
        plain = FileOptions(max_bytes=self.max_bytes)
        return {key: value for key, value in asdict(self).items() if value != getattr(plain, key)}


def _check_choices(given: Mapping[str, Any], log: ProblemLog) -> None:
    for key, choices in (("format", FORMATS), ("compression", COMPRESSIONS)):
        if key in given and given[key] not in choices:
            log.add("unknown choice", f"use one of {', '.join(choices)}", key)
    encoding = given.get("encoding")
    if encoding == OPEN_ENCODING:
        log.add(
            "the encoding is an open question of the proposal",
            "declare the one that reads the texts rightly; the proposal's notes show them",
            "encoding",
        )
    elif encoding is not None and not (isinstance(encoding, str) and _is_text_encoding(encoding)):
        log.add("unknown encoding", "use a name such as utf-8, latin-1 or cp1252", "encoding")
    if not isinstance(given.get("header", True), bool):
        log.add("`header` is true or false", "choose one", "header")


def _is_text_encoding(name: str) -> bool:
    """Whether Python knows it as an encoding of text files."""
    try:
        found = codecs.lookup(name)
    except (LookupError, ValueError):
        return False
    has_shifts = found.name.startswith("iso2022")
    is_other = found.name in _NO_FILE_ENCODINGS or has_shifts
    return bool(cast(Any, found)._is_text_encoding) and not is_other


def _check_marks(given: Mapping[str, Any], log: ProblemLog) -> None:
    for key in ("delimiter", "quote", "decimal", "comment"):
        mark = given.get(key)
        empty_quote = key == "quote" and mark == ""
        if mark is None or empty_quote:
            continue
        if not isinstance(mark, str) or len(mark) != 1 or not (" " <= mark <= "~" or mark == "\t"):
            log.add("expected a single ASCII character", 'such as ";"', key)
    marks = [str(given.get(key, default)) for key, default in _MARKS if given.get(key, default)]
    if len(set(marks)) != len(marks):
        log.add(
            "delimiter, quote and comment must differ", "choose different characters", "delimiter"
        )


def _check_rows(given: Mapping[str, Any], log: ProblemLog) -> None:
    for key, most in (("header_rows", MOST_HEADER_ROWS), ("skip_rows", MOST_SKIPPED_ROWS)):
        rows = given.get(key, 0)
        if not isinstance(rows, int) or isinstance(rows, bool) or not 0 <= rows <= most:
            log.add(f"expected a whole number from 0 to {most}", "count the rows", key)
    if given.get("header") is False and given.get("header_rows", 0) not in (0, None):
        log.add("a file without a header cannot have header rows", "leave one out", "header_rows")

"""The proposal for a whole table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from app.engine.encoding.cells import cells_of
from app.engine.json_pointer import pointer
from app.engine.proposals.evidence import WORDS, Evidence
from app.engine.proposals.fields import data_like, describe
from app.engine.proposals.units import Ids, ids_of, names_people
from app.engine.schema.scalars import LONGEST_NAME

_SHOWN_NAME = 60


@dataclass(frozen=True, slots=True)
class Note:
    """A guess, and the place in the proposal that it is about."""

    pointer: str
    message: str


@dataclass(frozen=True, slots=True)
class Proposal:
    """The wire forms of a schema and, if ids were found, of a unit; and notes to read."""

    schema: dict[str, Any]
    unit: dict[str, Any] | None
    notes: tuple[Note, ...]


def propose(
    blocks: Iterable[pa.RecordBatch], missing: Sequence[str] = (), *, has_header: bool = True
) -> Proposal:
    """The proposal for a table. Reads all blocks in bounded memory.

    Ranges are rounded outwards to two digits or whole years. A column of more than 200 texts is
    proposed as free text, which is left out. `missing` lists the spellings of null, in place of
    common ones. With `has_header` the names come from the file.
    """
    columns: list[Evidence] = []
    names: list[str] = []
    for block in blocks:
        if not columns:
            names = list(block.schema.names)
            columns = [_evidence(missing) for _ in names]
        for place, seen in enumerate(columns):
            seen.see(cells_of(block.column(place), names[place]))
    return _Draft(names, columns, missing, has_header).proposal()


def _evidence(missing: Sequence[str]) -> Evidence:
    return Evidence(("", *missing), ()) if missing else Evidence()


class _Draft:
    def __init__(
        self,
        names: list[str],
        columns: list[Evidence],
        declared_missing: Sequence[str],
        has_header: bool,
    ) -> None:
        self._columns = columns
        self._declared_missing = declared_missing
        ids = [ids_of(name, seen) for name, seen in zip(names, columns, strict=True)]
        self._unit = _unit_place(names, ids)
        self._ids = ids
        self._described = [
            describe(seen, own, is_unit=place == self._unit)
            for place, (seen, own) in enumerate(zip(columns, ids, strict=True))
        ]
        self._is_data = has_header and data_like(names, columns, self._described)
        self._addresses = _addresses([""] * len(names) if self._is_data else names)

    def proposal(self) -> Proposal:
        missing = sorted(
            {"", *self._declared_missing}.union(
                *(self._nulls(place) for place in range(len(self._columns)))
            )
        )
        fields = []
        for place, (address, found) in enumerate(
            zip(self._addresses, self._described, strict=True)
        ):
            own = self._own_missing(place, missing)
            fields.append({**address, **found.wire, **own, "proposed": True})
        return Proposal({"fields": fields, "missingValues": missing}, *self._unit_and_notes())

    def _nulls(self, place: int) -> set[str]:
        """Spellings of null in a column; words that are categories of it are none."""
        seen = self._columns[place]
        nulls = {text for text, rows in seen.missing.items() if rows}
        return nulls if self._categories(place) & set(WORDS) else nulls | set(seen.words)

    def _categories(self, place: int) -> set[Any]:
        return set(self._described[place].wire.get("constraints", {}).get("enum", ()))

    def _own_missing(self, place: int, missing: Sequence[str]) -> dict[str, Any]:
        kept = [text for text in missing if text not in self._categories(place)]
        return {} if len(kept) == len(missing) else {"missingValues": kept}

    def _unit_and_notes(self) -> tuple[dict[str, Any] | None, tuple[Note, ...]]:
        notes = []
        if self._is_data:
            notes.append(
                Note(
                    "/file/header_rows",
                    "The first row looks like data: its cells are values of their columns. They are"
                    " not proposed as names, which are public. If it is data, send `header=false`"
                    ' (for a dataset, "file": {"header": false}); if it has names, write them into'
                    " the fields.",
                )
            )
        if any(found.wire.get("constraints", {}).get("required") for found in self._described):
            notes.append(
                Note(
                    "/schema/fields",
                    '"required": true stands where the file has no missing value. Remove it where'
                    " one may come: it says publicly that there is none.",
                )
            )
        for place, found in enumerate(self._described):
            at = pointer("schema", "fields", place)
            notes += [Note(at, message) for message in found.notes]
        unit, more = self._proposed_unit()
        return unit, (*notes, *more)

    def _proposed_unit(self) -> tuple[dict[str, Any] | None, list[Note]]:
        if self._unit is None:
            if not any(self._ids):
                return None, []
            return {"kind": "row"}, [
                Note(
                    "/unit",
                    "No id occurs in two rows, so each row is proposed as the unit. If one person"
                    " can have several rows, name the column of the person's id instead.",
                )
            ]
        ids = self._ids[self._unit]
        assert ids is not None
        name = self._addresses[self._unit]["name"]
        return {"kind": "entity", "column": name, "max_rows": ids.max_rows}, [
            Note(
                "/unit",
                f"Ids of `{name}` repeat, at most {ids.most_rows} times. `max_rows` {ids.max_rows}"
                f" keeps all rows of at least 95 % of them, and {ids.kept_rows} of the"
                f" {ids.rows} rows. It is public: choose it by what is known of such tables, not by"
                " this file.",
            )
        ]


def _unit_place(names: Sequence[str], ids: Sequence[Ids | None]) -> int | None:
    """The column of repeating ids that is named after people, or else the first one."""
    repeating = [place for place, own in enumerate(ids) if own is not None and own.repeats]
    named = [place for place in repeating if names_people(names[place])]
    return next(iter([*named, *repeating]), None)


def _addresses(names: Sequence[str]) -> list[dict[str, Any]]:
    """How each field is named and found: by name, or by position where no name would do."""
    bare = [name.strip() for name in names]
    times = Counter(bare)
    found: list[dict[str, Any]] = []
    for place, name in enumerate(bare, start=1):
        usable = name and times[name] == 1 and len(name) <= LONGEST_NAME and "\0" not in name
        if usable:
            found.append({"name": name})
        else:
            shown = name.replace("\0", "")[:_SHOWN_NAME].strip() or "column"
            found.append({"name": f"{shown} ({place})", "column": place})
    return found

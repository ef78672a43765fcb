"""Encoding blocks of a file into stored codes, and counting all cells that had to be changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from app.engine.encoding.cells import Cells, cells_of, trimmed
from app.engine.encoding.found_texts import FoundTexts
from app.engine.encoding.reading import CellReader, Meaning, Reason, whole_numbers
from app.engine.escapes import has_escapes, likely_encoding, shown
from app.engine.files.layout import TableLayout
from app.engine.rows import ProblemTally, RowProblem, quoted
from app.engine.schema import Column, EntityColumn, PrivacyUnit, Schema
from app.engine.schema.scale import Categories
from app.engine.unicode_forms import difference, equals_in_another_form

_MESSAGES = {
    Reason.MISSING: "a value is missing in a required column",
    Reason.UNREADABLE: "{cell} is not of type {type}",
    Reason.UNDECLARED: "{cell} is not declared",
    Reason.NOT_TEXT: "{cell} is not {encoding} text",
}
_REMEDIES = {
    Reason.MISSING: 'fill the cell, or declare "required": false',
    Reason.UNREADABLE: "correct the cell or the field's type and format, or declare `undeclared`",
    Reason.UNDECLARED: "correct the cell, widen the dictionary, or declare `undeclared`",
}

_FORM_REMEDY = "write the text in the dictionary as the file does, or change it in the file"


@dataclass(frozen=True)
class EncodedBlock:
    """The kept rows of a block as codes: for each column an array of `column.dtype`.

    `entity_text` is a dictionary array of id texts, None for the unit `row`. `problem_count` is
    the number of problems in this block, and `problems` are those that are listed. A block with
    problems holds placeholders and must not be stored. `numbers` has, for each column with
    discovered values, the private number of each row's text (see `FoundTexts`).
    """

    rows: int
    codes: dict[str, NDArray[Any]]
    entity_text: pa.DictionaryArray | None
    problems: tuple[RowProblem, ...]
    dropped_without_id: int
    numbers: dict[str, NDArray[np.uint32]] = field(default_factory=dict)
    problem_count: int = 0


@dataclass
class OtherForms:
    """Cells that equal a declared text only after Unicode normalisation, and how one differs."""

    difference: str
    cells: int = 0


@dataclass
class EncodeTotals:
    """Counts over all rows so far, for the custodian.

    `treated` counts cells by column and treatment (`other`, `null`, `clip`); `violations`
    counts kept rows that break each cross-column constraint, in the dictionary's order;
    `not_text` counts the cells of each column that are not text in the file's encoding, `zoned`
    those whose zone or offset was left out, and `other_forms` those that would be declared after
    Unicode normalisation.
    """

    rows_read: int = 0
    rows_kept: int = 0
    dropped_without_id: int = 0
    treated: dict[str, Counter[str]] = field(default_factory=dict)
    violations: list[int] = field(default_factory=list)
    not_text: Counter[str] = field(default_factory=Counter)
    zoned: Counter[str] = field(default_factory=Counter)
    other_forms: dict[str, OtherForms] = field(default_factory=dict)
    problems: ProblemTally = field(default_factory=ProblemTally)


class Encoder:
    """Encodes the blocks of one file in order. Columns without a field are left out.

    Rows whose id is null are dropped and counted. Raises `TableError` if the file lacks a
    declared column.
    """

    def __init__(
        self, schema: Schema, unit: PrivacyUnit, layout: TableLayout | None = None
    ) -> None:
        schema.check_unit(unit)
        self.schema = schema
        self.totals = EncodeTotals(violations=[0] * len(schema.constraints))
        self._layout = layout
        self._bound: dict[str, int] | None = None if layout is None else layout.bind(schema)
        decimal = None if layout is None else layout.decimal
        self._readers = {
            column.name: CellReader(column, _missing(schema, column), decimal)
            for column in schema.columns
        }
        self.texts = {
            column.name: FoundTexts(column)
            for column in schema.columns
            if column.discovers is not None
        }

    def encode(self, block: pa.RecordBatch | pa.Table) -> EncodedBlock:
        """The codes of a block. Its columns are text, best dictionary-encoded, or typed."""
        bound = self._bind(block)
        before = self.totals.problems.count
        kept, entity, problems = self._entity(block, bound)
        codes, numbers = {}, {}
        for column in self.schema.columns:
            cells = cells_of(block.column(bound[column.name]), column.name)
            cells = cells if kept is None else replace(cells, indices=cells.indices[kept])
            codes[column.name] = self._column(column, cells, kept, problems)
            if column.name in self.texts:
                is_null = codes[column.name] == column.null_code
                numbers[column.name] = self.texts[column.name].numbers(cells, is_null)
        rows = block.num_rows if kept is None else len(kept)
        dropped = block.num_rows - rows
        found = self.totals.problems.count - before
        self._count(block.num_rows, rows, codes, checked=not found)
        return EncodedBlock(rows, codes, entity, tuple(problems), dropped, numbers, found)

    def _bind(self, block: pa.RecordBatch | pa.Table) -> dict[str, int]:
        if self._bound is None:
            self._layout = TableLayout(tuple(block.schema.names))
            self._bound = self._layout.bind(self.schema)
        return self._bound

    def _count(
        self, read: int, kept: int, codes: dict[str, NDArray[Any]], *, checked: bool
    ) -> None:
        totals = self.totals
        totals.rows_read += read
        totals.rows_kept += kept
        totals.dropped_without_id += read - kept
        if self.schema.constraints and checked:
            for index, mask in enumerate(self.schema.violations(codes)):
                totals.violations[index] += int(mask.sum())

    def _entity(
        self, block: pa.RecordBatch | pa.Table, bound: dict[str, int]
    ) -> tuple[NDArray[np.int64] | None, pa.DictionaryArray | None, list[RowProblem]]:
        """Kept rows (None for all), their ids, and the problems found so far."""
        problems: list[RowProblem] = []
        field_ = self.schema.entity
        if field_ is None:
            return None, None, problems
        cells = cells_of(block.column(bound[field_.name]), field_.name)
        ids, null, unreadable = _ids(field_, cells, _missing(self.schema, field_))
        not_text = np.append(has_escapes(cells.texts), False)
        for reason, these in (
            (Reason.UNREADABLE, unreadable & ~not_text),
            (Reason.NOT_TEXT, not_text),
        ):
            if these.any():
                rows = np.flatnonzero(these[cells.indices])
                self._list(problems, field_, cells, rows, None, reason)
        dropped = null[cells.indices]
        kept = np.flatnonzero(~dropped) if dropped.any() else None
        indices = cells.indices if kept is None else cells.indices[kept]
        return kept, pa.DictionaryArray.from_arrays(pa.array(indices), ids), problems

    def _column(
        self,
        column: Column,
        cells: Cells,
        kept: NDArray[np.int64] | None,
        problems: list[RowProblem],
    ) -> NDArray[Any]:
        reader = self._readers[column.name]
        meaning = reader.read(cells)
        zoned = reader.zoned(cells, meaning)
        if zoned.any():
            self.totals.zoned[column.name] += int(zoned[cells.indices].sum())
        if meaning.reasons.any():
            codes = self._treat(column, cells, meaning, kept, problems)
        else:
            codes = meaning.codes
        return codes.astype(column.dtype)[cells.indices]

    def _treat(
        self,
        column: Column,
        cells: Cells,
        meaning: Meaning,
        kept: NDArray[np.int64] | None,
        problems: list[RowProblem],
    ) -> NDArray[np.int64]:
        """Codes after `undeclared` is applied; a text that still has no code is a problem."""
        codes, odd = meaning.codes.copy(), meaning.reasons != Reason.NONE
        target = {"other": column.other_code, "null": column.null_code}.get(column.undeclared)
        if target is not None:
            codes[odd] = target
        rejected = odd & (codes < 0)
        not_text = meaning.reasons == Reason.NOT_TEXT
        if not_text.any():
            self.totals.not_text[column.name] += int(not_text[cells.indices].sum())
        self._count_other_forms(column, cells, odd & ~not_text)
        treated = int((odd & ~rejected)[cells.indices].sum())
        # In a column with discovered values this count would be of all texts, and say nothing.
        if treated and column.discovers is None:
            counts = self.totals.treated.setdefault(column.name, Counter())
            counts[column.undeclared] += treated
        for reason in _MESSAGES:
            these = rejected & (meaning.reasons == reason)
            if these.any():
                rows = np.flatnonzero(these[cells.indices])
                self._list(problems, column, cells, rows, kept, reason)
        # A placeholder that fits the unsigned type of the column.
        codes[rejected] = 0
        return codes

    def _count_other_forms(self, column: Column, cells: Cells, odd: NDArray[np.bool_]) -> None:
        declared = self._readers[column.name].declared_texts
        odd = odd.copy()
        odd[-1] = False
        odd[:-1] &= equals_in_another_form(cells.texts, declared)
        rows = int(odd[cells.indices].sum())
        if not rows:
            return
        text = cells.texts[int(np.argmax(odd))].as_py()
        told = difference(text, declared.to_pylist()) or ""
        found = self.totals.other_forms.setdefault(column.name, OtherForms(told))
        found.cells += rows

    def _list(
        self,
        problems: list[RowProblem],
        field_: Column | EntityColumn,
        cells: Cells,
        rows: NDArray[np.int64],
        kept: NDArray[np.int64] | None,
        reason: Reason,
    ) -> None:
        """Counts all problems, and lists a few: rows of different cells before a cell again."""
        # A text of the block may stand in dropped rows alone.
        if not len(rows):
            return
        self.totals.problems.add(field_.name, reason.name.lower(), len(rows))
        group = self.totals.problems.group(field_.name, reason.name.lower())
        if group.room <= 0:
            return
        _, first = np.unique(cells.indices[rows], return_index=True)
        others = np.setdiff1d(np.arange(min(len(rows), group.room)), first)
        for row in rows[np.concatenate([np.sort(first), others])[: group.room]]:
            index = int(cells.indices[row])
            cell = cells.texts[index].as_py() if index < len(cells.texts) else ""
            message, remedy = self._wording(field_, reason, cell)
            number = self.totals.rows_read + int(row if kept is None else kept[row]) + 1
            offset = 2 if self._layout is None else self._layout.first_record
            problem = RowProblem(
                row=number,
                record=number + offset - 1,
                column=field_.name,
                message=message,
                remedy=remedy,
                cause=reason.name.lower(),
            )
            problems.append(problem)
            group.examples.append(problem)

    def _wording(self, field_: Column | EntityColumn, reason: Reason, cell: str) -> tuple[str, str]:
        """The message and the remedy for a cell."""
        message = _MESSAGES[reason].format(
            cell=quoted(shown(cell)), type=field_.type, encoding=self._encoding
        )
        if isinstance(field_, Column):
            declared = self._readers[field_.name].declared_texts
            form = difference(cell, declared.to_pylist())
            if form is not None:
                return f"{message}: {form}", _FORM_REMEDY
        return message, _REMEDIES.get(reason) or _encoding_remedy(field_, cell)

    @property
    def _encoding(self) -> str:
        return (self._layout.encoding if self._layout else None) or "utf-8"


def _encoding_remedy(field_: Column | EntityColumn, cell: str) -> str:
    """What to declare: an encoding that makes a declared value of the cell, or a common one."""
    scale = field_.scale if isinstance(field_, Column) else None
    declared = [str(value) for value in scale.values] if isinstance(scale, Categories) else []
    likely = likely_encoding(cell, declared)
    example = "" if likely is None else f" (in {likely[0]} the cell is {quoted(likely[1])})"
    return f'declare the file\'s "encoding"{example}, or save the file as UTF-8'


def _missing(schema: Schema, field_: Column | EntityColumn) -> tuple[str, ...]:
    own = field_.text_format.missing
    return schema.missing_values if own is None else own


def _ids(
    field_: EntityColumn, cells: Cells, missing: Iterable[str]
) -> tuple[pa.StringArray, NDArray[np.bool_], NDArray[np.bool_]]:
    """Distinct id texts, null last, and masks of those that are null or unreadable.

    An integer id is written as the integer, so that 007 and 7 are the same id.
    """
    texts = trimmed(cells.texts)
    spellings = pa.array(list(missing), pa.string())
    null = np.append(np.asarray(pc.is_in(texts, spellings)), True)
    unreadable = np.zeros(len(texts) + 1, bool)
    if field_.type in ("integer", "year"):
        values, readable = whole_numbers(texts)
        texts = pa.array(values).cast(pa.string())
        unreadable[:-1] = ~readable & ~null[:-1]
    return pa.concat_arrays([texts, pa.array([None], pa.string())]), null, unreadable

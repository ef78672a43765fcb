"""The tables of the bench in coded columns, read below HALFTONE_SHARED_DATA (`../shared/data`)."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from app.engine.schema import PrivacyUnit, Schema
from app.engine.table import PublicTable
from bench.shared_data import DATA
from bench.synthesizers.measures import Codes, quantile_edges

NOT_APPLICABLE = "N"

ADULT_NUMERIC = ("age", "fnlwgt", "capital-gain", "capital-loss", "hours-per-week")
ADULT_ORDERED = (*ADULT_NUMERIC, "education-num")
CENSUS_LEFT_OUT = "INDP"
"""233 industries; INDP_CAT has them in coarser groups."""
CENSUS_CUT = ("PINCP", "POVPIP", "PWGTP", "WGTP")
OLDEST = 94
WIDE_ORDERED = (
    *("YEAR", "HHWT", "PERWT", "AGE", "EDUC", "INCTOT", "INCWAGE", "INCWELFR", "INCINVST"),
    *("INCEARN", "POVERTY", "DEPARTS", "ARRIVES"),
)
WIDENED_TO = 100

ROW = PrivacyUnit("row")


@dataclass(frozen=True)
class CodedTable:
    """A real table for the bench: its public dictionary, and the codes of its rows.

    `wire` is the dictionary as it is sent to a server; `numeric` names the columns of more than
    20 values that the k-marginal score cuts; `target` names a column of classes 0 and 1.

    `entities` holds each row's entity on an entity unit. `public` is a public table to start from.
    `wide` names columns of so many codes that every measure cuts them, as the k-marginal score.
    """

    name: str
    wire: Mapping[str, Any]
    used: Codes
    held_out: Codes | None
    numeric: tuple[str, ...]
    target: str | None
    unit: PrivacyUnit = ROW
    entities: NDArray[np.int64] | None = None
    public: PublicTable | None = None
    wide: tuple[str, ...] = ()

    @property
    def schema(self) -> Schema:
        return Schema.parse(dict(self.wire))

    @property
    def cells(self) -> dict[str, int]:
        """Number of declared values of each column."""
        return {column.name: column.codes for column in self.schema.columns}

    @property
    def rows(self) -> int:
        return len(next(iter(self.used.values())))

    @property
    def declared_rows(self) -> int:
        """The most rows that it is declared to have: not many more than it has."""
        step = 10 ** max(len(str(self.rows)) - 2, 0)
        return int((self.rows // step + 1) * step)

    @property
    def is_plain(self) -> bool:
        """Whether it can be handed to a package that knows rows alone."""
        return self.unit.kind == "row" and self.public is None and not self.wide

    def measured(self, codes: Codes) -> Codes:
        """The codes as they are compared."""
        return {
            name: np.searchsorted(quantile_edges(self.used[name]), column, side="right")
            if name in self.wide
            else column
            for name, column in codes.items()
        }

    def decoded(self, codes: Codes) -> pd.DataFrame:
        """The declared values, as a file for upload holds them."""
        columns = self.schema.columns
        return pd.DataFrame(
            {
                each.name: each.decode(codes[each.name]).to_numpy(zero_copy_only=False)
                for each in columns
            }
        )

    def coded(self, frame: pd.DataFrame) -> Codes:
        """Codes of declared values, as downloaded; raises `ValueError` for any other value."""
        return {each.name: _codes(each, frame[each.name]) for each in self.schema.columns}


def adult() -> CodedTable:
    """UCI Adult: of 48,842 rows in a fixed random order a fifth is held out, the rest is used."""
    cells: dict[str, int] = json.loads((DATA / "adult/adult-domain.json").read_text())
    table = pd.read_csv(DATA / "adult/adult.csv")
    order = np.random.default_rng(0).permutation(len(table))
    cut = len(table) // 5
    held_out, used = (
        {name: table[name].to_numpy(np.int64)[part] for name in cells}
        for part in (order[:cut], order[cut:])
    )
    wire = _numbered(cells, ADULT_ORDERED)
    return CodedTable("adult", wire, used, held_out, ADULT_NUMERIC, "income>50K")


def census_ma() -> CodedTable:
    """The Massachusetts excerpt: 7,634 rows, 23 columns, "N" a value of its own.

    Four amounts are cut into at most 20 quantile bins of the real rows; ages run to 94.
    """
    table = pd.read_csv(DATA / "census_ma/ma2019.csv", dtype=str, keep_default_na=False)
    fields, used = [], {}
    for name in table.columns.drop(CENSUS_LEFT_OUT):
        values = table[name].to_numpy(str)
        if name == "AGEP":
            fields.append(_whole_numbers(name, OLDEST + 1))
            used[name] = values.astype(np.int64)
            continue
        texts = _cut(values) if name in CENSUS_CUT else values
        found = sorted(set(texts), key=_by_number)
        fields.append(_categories(name, found))
        used[name] = np.array([found.index(text) for text in texts], dtype=np.int64)
    return CodedTable("census_ma", {"fields": fields}, used, None, ("AGEP",), None)


def acs_wide() -> CodedTable:
    """Illinois and Ohio: 170,254 rows, 35 coded columns, all of them used."""
    cells: dict[str, int] = json.loads((DATA / "acs_wide/acs_il_oh-domain.json").read_text())
    table = pd.read_csv(DATA / "acs_wide/acs_il_oh.csv.gz")
    used = {name: table[name].to_numpy(np.int64) for name in cells}
    numeric = tuple(name for name in WIDE_ORDERED if cells[name] > 20)
    return CodedTable("acs_wide", _numbered(cells, WIDE_ORDERED), used, None, numeric, None)


def acs_100() -> CodedTable:
    """`acs_wide` made 100 columns wide: each column again as those of the row before have it
    (`AGE_1`), then as those of the row before that (`AGE_2`), as far as there is room.

    Columns of one suffix depend on each other as the real ones do.
    """
    narrow = acs_wide()
    sources = [
        (f"{name}_{shift}" if shift else name, name, shift)
        for shift in range(-(-WIDENED_TO // len(narrow.used)))
        for name in narrow.used
    ][:WIDENED_TO]
    cells = {copy: narrow.cells[name] for copy, name, _ in sources}
    used = {copy: np.roll(narrow.used[name], shift) for copy, name, shift in sources}
    ordered = {copy for copy, name, _ in sources if name in WIDE_ORDERED}
    numeric = tuple(copy for copy, name, _ in sources if name in narrow.numeric)
    return CodedTable("acs_100", _numbered(cells, ordered), used, None, numeric, None)


TABLES: Mapping[str, Callable[[], CodedTable]] = {
    "adult": adult,
    "census_ma": census_ma,
    "acs_wide": acs_wide,
    "acs_100": acs_100,
}


def _numbered(cells: Mapping[str, int], ordered: Collection[str]) -> dict[str, Any]:
    """A dictionary of columns whose values are their codes, as numbers or as names."""
    return {
        "fields": [
            _whole_numbers(name, size)
            if name in ordered
            else _categories(name, [str(code) for code in range(size)])
            for name, size in cells.items()
        ]
    }


def _whole_numbers(name: str, size: int) -> dict[str, Any]:
    constraints = {"required": True, "minimum": 0, "maximum": size - 1}
    return {"name": name, "type": "integer", "constraints": constraints}


def _categories(name: str, values: Sequence[str]) -> dict[str, Any]:
    constraints = {"required": True, "enum": list(values)}
    return {"name": name, "type": "string", "constraints": constraints}


def _cut(values: NDArray[np.str_]) -> NDArray[np.str_]:
    """Numbers of quantile bins, as texts, with "N" apart."""
    applies = values != NOT_APPLICABLE
    numbers = values[applies].astype(np.float64)
    cut = values.copy()
    cut[applies] = np.searchsorted(quantile_edges(numbers), numbers, side="right").astype(str)
    return cut


def _by_number(value: str) -> tuple[bool, float, str]:
    try:
        return False, float(value), value
    except ValueError:
        return True, 0.0, value


def _codes(column: Any, values: Iterable[Any]) -> NDArray[np.int64]:
    found, places = np.unique(np.asarray(values), return_inverse=True)
    codes = [column.code(value.item() if hasattr(value, "item") else value) for value in found]
    if None in codes:
        raise ValueError(f"`{column.name}` holds undeclared values")
    return np.array(codes, dtype=np.int64)[places.reshape(-1)]

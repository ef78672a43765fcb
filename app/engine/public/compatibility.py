"""Whether any public row fits the private dictionary, checked before a run is charged.

`check_public` of the synthesizers that cannot do without public rows. What they would find in the
run is found here from the same facts, by reading no further than to the first row that fits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.engine.method import Problem, PublicChunks
from app.engine.public.rows import NO_PLACE, POINTER, translated
from app.engine.schema import Column, Schema
from app.engine.schema.constraints import Constraint

Codes = NDArray[np.int64]


def fit_problems(
    schema: Schema,
    public: PublicChunks,
    columns: Sequence[str],
    constraints: Sequence[Constraint] = (),
) -> tuple[Problem, ...]:
    """Why no public row has a place in all of `columns`, keeping `constraints` between them.

    A column whose values are yet to be found is passed over: nobody knows what will fit.
    """
    known = [name for name in columns if schema.column(name).discovers is None]
    # Columns with few codes first: they are quickly translated, and leave fewer rows to the others.
    known.sort(key=lambda name: public.schema.column(name).codes)
    # A rule with a column that is passed over can be kept by what will be found for it.
    rules = [rule for rule in constraints if set(rule.columns) <= set(known)]
    places = [_Places(schema.column(name), public.schema.column(name)) for name in known]
    rows = 0
    for chunk in public.chunks(known) if known else ():
        codes = _fitting(places, chunk)
        if codes is not None and not _all_broken(codes, rules):
            # One row is enough for a run, so no more is read of a table that may be large.
            return ()
        rows += len(chunk[known[0]])
    return (_problem(rows, is_ruled=bool(rules)),) if rows else ()


@dataclass(frozen=True)
class _Places:
    """Private codes for the stored codes of a public column, each translated once."""

    own: Column
    other: Column
    known: dict[int, int] = field(default_factory=dict)

    def of(self, codes: NDArray[Any]) -> Codes:
        found, inverse = np.unique(codes, return_inverse=True)
        numbers = found.tolist()
        new = [number for number in numbers if number not in self.known]
        codes_of_new = translated(self.own, self.other, np.array(new, dtype=np.int64))
        self.known.update(zip(new, codes_of_new.tolist(), strict=True))
        places = np.array([self.known[number] for number in numbers], dtype=np.int64)
        return places[inverse.reshape(-1)]


def _fitting(
    places: Sequence[_Places], chunk: Mapping[str, NDArray[Any]]
) -> dict[str, Codes] | None:
    """Private codes of the chunk's rows that fit in every column; None if none does."""
    kept = np.arange(len(chunk[places[0].own.name]))
    found: dict[str, Codes] = {}
    for each in places:
        codes = each.of(chunk[each.own.name][kept])
        fits = codes != NO_PLACE
        if not fits.any():
            return None
        kept = kept[fits]
        found = {name: column[fits] for name, column in found.items()}
        found[each.own.name] = codes[fits]
    return found


def _all_broken(codes: Mapping[str, Codes], rules: Sequence[Constraint]) -> bool:
    broken = np.zeros(len(next(iter(codes.values()))), dtype=np.bool_)
    for rule in rules:
        broken |= rule.violations(codes)
    return bool(broken.all())


def _problem(rows: int, *, is_ruled: bool) -> Problem:
    rules = " and keeps its constraints" if is_ruled else ""
    return Problem(
        POINTER,
        f"of the {rows} public rows that were read, none fits the private dictionary{rules}",
        "name a public dataset of such rows, or declare what becomes of other values"
        " (`undeclared`)",
    )

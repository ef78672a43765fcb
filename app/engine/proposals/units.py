"""Columns that look like ids, and the privacy unit that they suggest."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from app.engine.proposals.evidence import MOST_CATEGORIES, Evidence

_FEWEST_ROWS = 20
# Of the rows with an id, the share with an id of their own from which it is nearly unique.
_NEARLY = 0.95
_FEWEST_ENTITIES = 20
# In a shorter table ages may well differ too.
_FEWEST_OF_A_COUNTER = 200
# Long codes of one length are ids; shorter ones may be categories or measurements.
_LONG = 7


@dataclass(frozen=True)
class Ids:
    """A column of ids: how many there are, in how many rows, and a proposed bound.

    `max_rows` keeps all rows of most ids, and `kept_rows` of the rows.
    """

    distinct: int
    rows: int
    most_rows: int
    max_rows: int
    kept_rows: int

    @property
    def repeats(self) -> bool:
        return self.most_rows > 1


def ids_of(name: str, seen: Evidence) -> Ids | None:
    """What the ids of a column are; None if it does not look like ids."""
    if seen.present < _FEWEST_ROWS or not _may_be_ids(name, seen):
        return None
    each = seen.rows_of_each
    rows, distinct = int(each.sum()), len(each)
    is_unique = distinct >= _NEARLY * rows
    repeats = distinct >= _FEWEST_ENTITIES and (
        distinct > MOST_CATEGORIES or 100 * distinct >= rows
    )
    if not is_unique and not (repeats and _is_sure(name, seen)):
        return None
    usual = int(np.quantile(each, 0.95, method="higher"))
    bound = round_up(usual)
    kept = int(np.minimum(each, bound).sum())
    return Ids(distinct, rows, int(each.max()), bound, kept)


def _may_be_ids(name: str, seen: Evidence) -> bool:
    reading = seen.reading
    if reading is None:
        return seen.looks_like_codes or seen.is_named_id(name)
    if reading.kind != "integer" or reading.wire:
        return False
    if _is_sure(name, seen):
        return True
    # Counters: nearly every whole number between the ends.
    is_dense = int(reading.high) - int(reading.low) < 2 * seen.distinct
    is_long = seen.present >= _FEWEST_OF_A_COUNTER
    return is_long and is_dense and seen.distinct >= _NEARLY * seen.present


def _is_sure(name: str, seen: Evidence) -> bool:
    if seen.is_named_id(name):
        return True
    is_long = len(seen.lengths) == 1 and min(seen.lengths) >= _LONG
    return is_long and seen.looks_like_codes


_PEOPLE = re.compile(
    r"(?i)(person|people|patient|customer|client|user|member|household|employee|student|pupil|"
    r"subject|participant|respondent|driver|citizen|account|card|policy)"
)


def names_people(name: str) -> bool:
    """Whether a column is named after those whom a unit protects, or what stands for them."""
    return bool(_PEOPLE.search(name))


def round_up(rows: int) -> int:
    """To 1, 2 or 5 times a power of ten: a number of the file itself would be private."""
    power = int("1" + "0" * (len(str(rows)) - 1))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= rows)

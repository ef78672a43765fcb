"""What a run does on a given dictionary: groups with their cells, links and totals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from app.engine.columns.axes import Axes
from app.engine.grouping import Grouping
from app.engine.method.model_file import ModelFormatError
from app.engine.privacy.declared import RowNumber
from app.engine.privacy.queries import Contribution, Count, Keys, Sum
from app.engine.schema import PrivacyUnit, Schema

Per = Literal["row", "entity"]


@dataclass(frozen=True, slots=True)
class Group:
    """Columns of one joint histogram. `ceilings` ends the codes drawn of a column's last bin.

    `is_discovered`: only cells that many entities have are counted, and these are found first.
    """

    axes: Axes
    per: Per
    ceilings: Mapping[str, int]
    is_discovered: bool = False

    def count(self, samples: int) -> Count:
        return Count(self.axes.names, self.axes.groupings, Contribution("distinct", samples))

    def keys(self, samples: int) -> Keys:
        return Keys(self.axes.names, self.axes.groupings, samples)

    def expand(
        self, cells: NDArray[np.int64], rng: np.random.Generator
    ) -> dict[str, NDArray[np.int64]]:
        """Stored codes for flat cells, uniform within each column's cell."""
        positions = np.unravel_index(cells, self.axes.shape)
        codes = {}
        for (name, grouping), position in zip(self.axes.groupings.items(), positions, strict=True):
            drawn = grouping.expand(position.astype(np.int64), rng)
            if name in self.ceilings:
                drawn = self._below_ceiling(name, grouping, drawn, rng)
            codes[name] = drawn
        return codes

    def _below_ceiling(
        self, name: str, grouping: Grouping, codes: NDArray[np.int64], rng: np.random.Generator
    ) -> NDArray[np.int64]:
        first, end = grouping.edges[-2], self.ceilings[name]
        in_last = (codes >= first) & (codes < grouping.regular)
        return np.where(in_last, rng.integers(first, end, len(codes)), codes)


@dataclass(frozen=True, slots=True)
class Link:
    """The group of `value` is ordered by the mean of `value` given the cells of `given`."""

    given: Axes
    value: str
    group: int


@dataclass(frozen=True, slots=True)
class Total:
    total: str
    parts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """`most_rows` is None on a row unit, each of whose units has one row."""

    groups: tuple[Group, ...]
    links: tuple[Link, ...]
    totals: tuple[Total, ...]
    samples: int
    most_rows: int | None

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(name for group in self.groups for name in group.axes.names)

    @property
    def output(self) -> tuple[str, ...]:
        return (*self.columns, *(total.total for total in self.totals))

    @property
    def listed(self) -> tuple[int, ...]:
        """The groups whose cells are all counted."""
        return tuple(i for i, group in enumerate(self.groups) if not group.is_discovered)

    @property
    def discovered(self) -> tuple[int, ...]:
        return tuple(i for i, group in enumerate(self.groups) if group.is_discovered)

    @property
    def cells(self) -> int:
        """How many cells are counted."""
        listed = sum(self.groups[i].axes.cells for i in self.listed)
        return listed + (self.most_rows or 0) + 1

    def questions(self) -> tuple[Count, ...]:
        """Entities, rows per entity (on an entity unit), then each group that is listed.

        On a row unit every unit has one row, so that the entities are the rows.
        """
        groups = tuple(self.groups[i].count(self.samples) for i in self.listed)
        if self.most_rows is None:
            return (Count(()), *groups)
        units = Count((), contribution=Contribution("one"))
        return (units, Count.of_units(RowNumber(self.most_rows)), *groups)

    def weights(self, unit: PrivacyUnit) -> tuple[float, ...]:
        """What the loss of each of `questions` is in proportion to, then of each group to
        discover."""
        # By squared L2 sensitivity, which is L1 here. Then all have the same scale of noise:
        # sqrt(sum of m + 2) / sqrt(2 rho), or (sum of m + 2) / epsilon.
        ones = [1.0] if self.most_rows is None else [1.0, 1.0]
        groups = (self.groups[i] for i in (*self.listed, *self.discovered))
        return (*ones, *(float(self._sensitivity(group, unit)) for group in groups))

    def _sensitivity(self, group: Group, unit: PrivacyUnit) -> int:
        return min(self.samples, unit.max_rows, group.axes.cells)

    def to_json(self) -> dict[str, Any]:
        return {
            "groups": [
                {
                    "axes": group.axes.to_json(),
                    "per": group.per,
                    "ceilings": dict(group.ceilings),
                    "discovered": group.is_discovered,
                }
                for group in self.groups
            ],
            "links": [
                {"given": li.given.to_json(), "value": li.value, "group": li.group}
                for li in self.links
            ],
            "totals": [[total.total, list(total.parts)] for total in self.totals],
            "samples": self.samples,
            "most_rows": self.most_rows,
        }

    @classmethod
    def from_json(cls, wire: Any, schema: Schema) -> Plan:
        """The plan of a stored model; raises `ModelFormatError` if it does not fit."""
        try:
            plan = cls(
                tuple(_stored_group(group, schema) for group in wire["groups"]),
                tuple(
                    Link(Axes.from_json(li["given"], schema), li["value"], int(li["group"]))
                    for li in wire["links"]
                ),
                tuple(Total(total, tuple(parts)) for total, parts in wire["totals"]),
                int(wire["samples"]),
                None if wire["most_rows"] is None else int(wire["most_rows"]),
            )
            for name in plan.output:
                schema.column(name)
            if not all(
                0 <= link.group < len(plan.groups)
                and link.value in plan.groups[link.group].axes.names
                and set(link.given.names) <= set(plan.columns)
                for link in plan.links
            ) or not all(set(total.parts) <= set(plan.columns) for total in plan.totals):
                raise ModelFormatError("the stored model links what it lacks")
            return plan
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise ModelFormatError("the stored model has no valid plan") from error


def _stored_group(wire: Any, schema: Schema) -> Group:
    axes = Axes.from_json(wire["axes"], schema)
    ceilings = {str(name): int(end) for name, end in wire["ceilings"].items()}
    for name, end in ceilings.items():
        grouping = axes.groupings[name]
        if not grouping.edges[-2] < end <= grouping.regular:
            raise ModelFormatError("the stored model has a ceiling out of range")
    if wire["per"] not in ("row", "entity"):
        raise ModelFormatError("a group is drawn per row or per entity")
    return Group(axes, wire["per"], ceilings, bool(wire["discovered"]))


@dataclass(frozen=True, slots=True)
class MeasuredMean:
    """A link whose mean is measured: clipped sums, then counts, of the same cells."""

    link: int
    low: float
    high: float

    def questions(self, plan: Plan) -> tuple[Sum, Count]:
        link = plan.links[self.link]
        given = link.given
        return (
            Sum(link.value, self.low, self.high, given.names, given.groupings),
            Count(given.names, given.groupings),
        )

"""From a form and a dictionary to a plan, with what is wrong where."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from app.engine.columns.axes import Axes, found_values_problem, quantile_bins_problem
from app.engine.grouping import Grouping
from app.engine.json_pointer import escaped
from app.engine.method import Problem
from app.engine.privacy.loss import PrivacyLoss
from app.engine.privacy.unit_budget import UnitBudget
from app.engine.schema import Column, QuantileBins, Schema
from app.engine.schema.constraints import Sum as SumRule
from app.engine.schema.scale import Linear
from app.engine.schema.values import from_wire, tick
from app.engine.synthesizers.linked_histograms.params import (
    LinkedHistogramsParams,
    LinkForm,
    SteppedBins,
    TotalForm,
)
from app.engine.synthesizers.linked_histograms.plan import (
    Group,
    Link,
    MeasuredMean,
    Per,
    Plan,
    Total,
)
from app.engine.synthesizers.linked_histograms.tuning import TUNING

MOST_GIVEN_CELLS = 1_000_000


def samples_of(params: LinkedHistogramsParams, loss: PrivacyLoss) -> int:
    """The most cells of an entity that count: as requested, or by the published rule."""
    if params.samples is not None:
        return params.samples
    border = TUNING.epsilon_of_many if loss.kind == "pure" else TUNING.rho_of_many
    return TUNING.few_samples if loss.amount < border else TUNING.many_samples


def make_plan(
    schema: Schema, params: LinkedHistogramsParams, budget: UnitBudget
) -> tuple[Plan, tuple[MeasuredMean, ...], tuple[Problem, ...]]:
    """The plan, the means to measure, and what is wrong with the form.

    With problems the plan holds what is right and must not be carried out.
    """
    known = {column.name: column for column in schema.columns}
    planner = _Planner(known, params)
    groups = planner.groups(_total_names(schema, params))
    links, means = planner.links(groups)
    totals = planner.totals(schema, groups)
    planner.check_bins(groups)
    unit = budget.unit
    most = None if unit.kind == "row" else min(params.most_rows, unit.max_rows)
    plan = Plan(groups, links, totals, samples_of(params, budget.loss), most)
    return plan, means, tuple(planner.problems)


def _total_names(schema: Schema, params: LinkedHistogramsParams) -> frozenset[str]:
    if params.totals is not None:
        return frozenset(form.total for form in params.totals)
    return frozenset(rule.total.name for rule in schema.constraints if isinstance(rule, SumRule))


class _Planner:
    """Resolves a form against the columns of a dictionary, gathering problems."""

    def __init__(self, known: Mapping[str, Column], params: LinkedHistogramsParams) -> None:
        self.problems: list[Problem] = []
        self._known = known
        self._params = params

    def _add(self, pointer: str, message: str, remedy: str) -> None:
        self.problems.append(Problem(f"/params/{pointer}", message, remedy))

    def _has(self, name: str, pointer: str) -> bool:
        if name not in self._known:
            self._add(
                pointer,
                f"there is no column `{name}`",
                "name columns of the data dictionary, without the entity column",
            )
        return name in self._known

    def groups(self, totals: frozenset[str]) -> tuple[Group, ...]:
        forms = self._params.groups
        if forms is None:
            alone = [name for name in self._known if name not in totals]
            return tuple(self._group((name,), "row") for name in alone)
        groups, seen = [], set[str]()
        for i, form in enumerate(forms):
            kept = []
            for j, name in enumerate(form.columns):
                pointer = f"groups/{i}/columns/{j}"
                if name in seen:
                    self._add(pointer, f"`{name}` is in two places", "name each column once")
                elif self._has(name, pointer):
                    kept.append(name)
                seen.add(name)
            if kept:
                groups.append(
                    self._group(tuple(kept), form.per, is_discovered=form.cells == "discovered")
                )
        if not groups:
            self._add("groups", "no column is named", "name at least one column")
        return tuple(groups)

    def _group(self, names: tuple[str, ...], per: Per, is_discovered: bool = False) -> Group:
        cut = {name: self._cut(self._known[name]) for name in names}
        ceilings = {name: end for name, (_, end) in cut.items() if end is not None}
        axes = Axes({name: grouping for name, (grouping, _) in cut.items()})
        return Group(axes, per, ceilings, is_discovered)

    def _cut(self, column: Column) -> tuple[Grouping, int | None]:
        bins = self._params.bins.get(column.name)
        if column.discovers is not None:
            problem = found_values_problem(column.name)
            self._add("groups", problem.message, "name the columns to count, without it")
        if bins is None:
            if isinstance(column.bins, QuantileBins):
                problem = quantile_bins_problem(column.name)
                self._add(f"bins/{escaped(column.name)}", problem.message, problem.remedy)
            return column.grouping, None
        try:
            if isinstance(bins, SteppedBins):
                return stepped(column, bins)
            return column.group(bins), None
        except ValueError as error:
            pointer = f"bins/{escaped(column.name)}"
            self._add(pointer, str(error), "give a number of bins, edges, or top, step and max")
            return column.grouping, None

    def check_bins(self, groups: Sequence[Group]) -> None:
        used = {name for group in groups for name in group.axes.names}
        for name in self._params.bins:
            if name not in used:
                pointer = f"bins/{escaped(name)}"
                self._add(pointer, f"`{name}` is in no group", "give bins for grouped columns only")

    def links(self, groups: tuple[Group, ...]) -> tuple[tuple[Link, ...], tuple[MeasuredMean, ...]]:
        where = {name: i for i, group in enumerate(groups) for name in group.axes.names}
        links: list[Link] = []
        means = []
        fixed: set[int] = set()
        for i, form in enumerate(self._params.links):
            link = self._link(f"links/{i}", form, groups, where, fixed)
            if link is None:
                continue
            if form.expected == "bought":
                means.append(MeasuredMean(len(links), *self._bounds(f"links/{i}", form)))
            links.append(link)
            fixed |= {link.group, *(where[name] for name in form.given)}
        return tuple(links), tuple(means)

    def _link(
        self,
        pointer: str,
        form: LinkForm,
        groups: tuple[Group, ...],
        where: Mapping[str, int],
        fixed: set[int],
    ) -> Link | None:
        before = len(self.problems)
        for name in (*form.given, form.value):
            if name not in where:
                self._add(pointer, f"`{name}` is in no group", "link columns that groups hold")
        if len(self.problems) > before:
            return None
        target = where[form.value]
        if len(set(form.given)) != len(form.given):
            self._add(f"{pointer}/given", "a column is named twice", "name each column once")
        if not self._known[form.value].ranged:
            self._add(f"{pointer}/value", "a rank needs numbers", "link a column with a range")
        if target in {where[name] for name in form.given}:
            self._add(
                pointer, "columns of one group are linked already", "link columns of two groups"
            )
        if groups[target].per == "entity":
            self._add(f"{pointer}/value", "its group is drawn once per entity", "let it be per row")
        if target in fixed:
            self._add(pointer, "its group is bound by an earlier link", "put this link first")
        given = Axes(
            {name: groups[where[name]].axes.groupings[name] for name in dict.fromkeys(form.given)}
        )
        if given.cells > MOST_GIVEN_CELLS:
            self._add(
                f"{pointer}/given",
                f"{given.cells} cells; {MOST_GIVEN_CELLS} are the most",
                "give fewer columns, or coarser `bins`",
            )
        return Link(given, form.value, target) if len(self.problems) == before else None

    def _bounds(self, pointer: str, form: LinkForm) -> tuple[float, float]:
        column = self._known[form.value]
        assert isinstance(column.scale, Linear)
        if column.type not in ("integer", "number", "year"):
            self._add(f"{pointer}/value", "only sums of numbers can be measured", "use public data")
            return 0.0, 1.0
        bins = self._params.bins.get(form.value)
        top = bins.max if isinstance(bins, SteppedBins) else float(column.scale.maximum)
        low = float(column.scale.minimum) if form.low is None else form.low
        high = top if form.high is None else form.high
        if not low < high:
            self._add(f"{pointer}/high", "the bounds are not in order", "let low be below high")
            return 0.0, 1.0
        return low, high

    def totals(self, schema: Schema, groups: Sequence[Group]) -> tuple[Total, ...]:
        grouped = {name for group in groups for name in group.axes.names}
        if self._params.totals is None:
            rules = [rule for rule in schema.constraints if isinstance(rule, SumRule)]
            found = [Total(r.total.name, tuple(part.name for part in r.parts)) for r in rules]
            return tuple(t for t in found if t.total not in grouped and set(t.parts) <= grouped)
        checked = [
            self._total(f"totals/{i}", form, grouped) for i, form in enumerate(self._params.totals)
        ]
        return tuple(total for total in checked if total is not None)

    def _total(self, pointer: str, form: TotalForm, grouped: set[str]) -> Total | None:
        before = len(self.problems)
        if form.total in grouped:
            self._add(f"{pointer}/total", "the column is in a group too", "take it out of one")
        elif self._has(form.total, f"{pointer}/total") and not self._is_number(form.total):
            self._add(f"{pointer}/total", "a sum is a number", "name a column of numbers")
        for j, part in enumerate(form.parts):
            if part not in grouped:
                self._add(f"{pointer}/parts/{j}", f"`{part}` is in no group", "group its column")
            elif not self._is_number(part):
                self._add(f"{pointer}/parts/{j}", "a part is a number", "name columns of numbers")
        return Total(form.total, form.parts) if len(self.problems) == before else None

    def _is_number(self, name: str) -> bool:
        column = self._known[name]
        return column.ranged and column.type in ("integer", "number", "year")


def stepped(column: Column, bins: SteppedBins) -> tuple[Grouping, int]:
    """The grouping of [top, step, max] bins, and the end of the codes its last bin draws.

    Raises `ValueError` for a column without a range or bounds out of order.
    """
    scale = column.scale
    if not isinstance(scale, Linear) or column.type not in ("integer", "number", "year"):
        raise ValueError(f"`{column.name}` has no numbers to cut")
    top, step, most = (tick(from_wire("number", each)) for each in (bins.top, bins.step, bins.max))
    if not scale.minimum < top <= min(most, scale.maximum):
        raise ValueError("`top` lies above the minimum, and not above `max` or the maximum")
    first = math.floor(scale.minimum / step) + 1
    last = math.ceil(top / step)
    if last - first > MOST_GIVEN_CELLS:
        raise ValueError("there are too many steps")
    places = [step * i for i in range(first, last)] + [top]
    grouping = scale.cut_at(places, column.tail)
    ceiling = math.floor((min(most, scale.maximum) - scale.minimum) / scale.step)
    return grouping, max(ceiling, grouping.edges[-2]) + 1

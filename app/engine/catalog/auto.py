"""Which synthesizer runs where a request names none: `auto`.

The choice is made from public facts alone, before anything is charged, and costs nothing. The
methods are tried in the order that did best on real tables (`docs/results/auto.md`). The first that
can run is taken, by its own forecast of memory, time and noise.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pydantic import Field

from app.engine.catalog import registry
from app.engine.catalog.registry import AUTO
from app.engine.columns.axes import Axes, ChosenColumns, OwnBins, choose_axes
from app.engine.columns.contribution import expected_error
from app.engine.method import Params, PublicFacts, Synthesizer
from app.engine.privacy.loss import PrivacyLoss
from app.engine.privacy.queries import Contribution
from app.engine.privacy.unit_budget import UnitBudget
from app.engine.schema import PrivacyUnit, Schema

__all__ = ["AUTO", "REFERENCE", "TITLE", "AutoParams", "Choice", "Request", "choices", "form_for"]

TITLE = "Picked by the service from public facts, before anything is charged"
REFERENCE = "The order found best on real tables: docs/results/auto.md"

# Of the guarantee: what `swift` spends on columns, more or less (`swift.tuning`).
_FOR_COLUMNS = 0.25


class AutoParams(Params):
    """What any method takes: name a synthesizer to set what is its own."""

    columns: ChosenColumns = None
    bins: OwnBins = Field(default_factory=dict)
    target: str | None = Field(
        None,
        description="A column whose dependence on the others matters most, as for a classifier; "
        "left out if the method that is picked has no such param.",
    )


@dataclass(frozen=True)
class Request:
    """The public facts of a request; `loss` is None where the guarantee could not be booked."""

    schema: Schema
    unit: PrivacyUnit
    params: AutoParams
    loss: PrivacyLoss | None = None
    public: PublicFacts | None = None

    @cached_property
    def axes(self) -> Axes:
        """The chosen columns that there are, as they would be counted."""
        return choose_axes(self.schema, self.params.columns, self.params.bins, measures_bins=True)[
            0
        ]

    @property
    def noise(self) -> float | None:
        """Standard deviation, in rows, of a cell's noise if all columns were counted for a quarter
        of the guarantee; None if nothing can be counted."""
        if self.loss is None or not self.axes.names:
            return None
        budget = UnitBudget(self.unit, self.loss)
        columns, _ = budget.split((_FOR_COLUMNS, 1 - _FOR_COLUMNS))
        # So many cells that no limit of a histogram lowers the noise.
        return expected_error(Contribution(), 2**62, columns.of_each(len(self.axes.names)))

    def __str__(self) -> str:
        kind = "row" if self.unit.kind == "row" else f"entity of at most {self.unit.max_rows} rows"
        facts = [f"{len(self.axes.names)} columns of {sum(self.axes.shape)} cells", f"unit: {kind}"]
        if self.noise is not None:
            facts.append(f"noise of about {self.noise:,.0f} rows in a cell of a column")
        return ", ".join(facts)


@dataclass(frozen=True, slots=True)
class Choice:
    """A synthesizer, and why it would be the one."""

    synthesizer: str
    why: str


def choices(request: Request) -> Iterator[Choice]:
    """What to try, best first."""
    columns = len(request.axes.names)
    for synthesizer in _ranked():
        reason = synthesizer.auto_reason(columns, request.unit, request.public)
        if reason is not None:
            yield Choice(synthesizer.name, f"{reason} ({request})")


def _ranked() -> list[Synthesizer]:
    """The built-ins that rank themselves, the lowest rank first."""
    built_ins = [registry.builtin(name) for name in registry.built_ins()]
    ranked = [(each.auto_rank, each) for each in built_ins if each.auto_rank is not None]
    # By name where two ranks are equal, so that the pick does not hang on the order of files.
    return [each for _, each in sorted(ranked, key=lambda pair: (pair[0], pair[1].name))]


def form_for(name: str, params: AutoParams) -> dict[str, Any]:
    """The form of that synthesizer that says what `params` say."""
    fields = registry.builtin(name).Params.model_fields
    given = params.model_dump(mode="json", exclude_none=True)
    return {field: value for field, value in given.items() if field in fields}

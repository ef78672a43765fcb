"""Which synthesizer runs where a request names none: `auto`.

The choice is made from public facts alone, before anything is charged, and costs nothing. The
order is what did best on real tables (`docs/synthesizers/auto.md`); of those in order, the first
that could run is taken.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import Field

from app.engine.schema import PrivacyUnit
from app.engine.synthesizers import registry
from app.engine.synthesizers.axes import Bins
from app.engine.synthesizers.base import Params, PublicFacts

AUTO = "auto"

_IN_ORDER: Mapping[str, str] = {
    "swift": "it came nearest to the truth on tables of every kind, in seconds",
    "mst": "it measures a single tree of pairs, and so needs less memory and time",
    "independent": "it measures each column alone, which any table allows",
}
_WITH_PUBLIC_ENTITIES = {
    "public_reweighted": "the entities of the public dataset, weighed by noisy measurements, keep "
    "what no small budget could measure"
}
_WITH_PUBLIC_ROWS = {
    "swift": "it starts from the public dataset and finds by noisy scores where that has drifted"
}


class AutoParams(Params):
    """What any method takes: name a synthesizer to set what is its own."""

    columns: tuple[str, ...] | None = Field(
        None, description="Columns of the synthetic table; all columns if omitted."
    )
    bins: dict[str, Bins] = Field(
        default_factory=dict, description="Bins of a column, in place of its dictionary's."
    )
    target: str | None = Field(
        None,
        description="A column whose dependence on the others matters most, as for a classifier; "
        "left out where the method that is picked has no such wish.",
    )


@dataclass(frozen=True, slots=True)
class Choice:
    """A synthesizer, and why it would be the one."""

    synthesizer: str
    why: str


def choices(unit: PrivacyUnit, public: PublicFacts | None) -> Iterator[Choice]:
    """What to try, best first."""
    order = dict(_IN_ORDER)
    if public is not None and unit.kind == "entity":
        order = {**_WITH_PUBLIC_ENTITIES, **order}
    elif public is not None:
        order |= _WITH_PUBLIC_ROWS
    for name, why in order.items():
        yield Choice(name, why)


def form_for(name: str, params: AutoParams) -> dict[str, Any]:
    """The form of that synthesizer that says what `params` say."""
    fields = registry.builtin(name).Params.model_fields
    told = params.model_dump(mode="json", exclude_none=True)
    return {field: value for field, value in told.items() if field in fields}

"""What the forms of methods on a junction tree have in common."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from app.engine.columns.axes import ChosenColumns, OwnBins
from app.engine.columns.contribution import ChosenRule, RuleForm
from app.engine.columns.private_bins import (
    USUAL_BINS_SHARE,
    USUAL_VALUES_SHARE,
    USUAL_WITHIN_BINS,
    BinsShare,
    ValuesShare,
    WithinBins,
)
from app.engine.entities.params import EntityForm
from app.engine.method import Params
from app.engine.prior.entities.params import PublicEntityUse

# How much an error counts beside the others'.
Weight = Annotated[float, Field(ge=1e-6, le=1e6, allow_inf_nan=False)]


class PreparationParams(Params):
    """Which cells columns are cut into, and how entities are measured."""

    columns: ChosenColumns = None
    bins: OwnBins = Field(default_factory=dict)
    bins_share: BinsShare = USUAL_BINS_SHARE
    within_bins: WithinBins = USUAL_WITHIN_BINS
    values_share: ValuesShare = USUAL_VALUES_SHARE
    contribution: RuleForm = Field(
        default_factory=ChosenRule,
        description="How much one privacy unit counts in each histogram. "
        "Scores and selections count rows; where a public dataset has entities too, scores "
        "count distinct cells.",
    )
    entities: EntityForm = Field(
        default_factory=EntityForm, description="How rows are made entities, on an entity unit."
    )


class TableParams(PreparationParams):
    """The params of `mst`, `swift` and `aim` alike."""

    rare_below: float = Field(
        2.0,
        ge=0,
        le=1000,
        description="Cells below this many standard errors are merged before marginals are "
        "counted.",
    )
    public_entities: PublicEntityUse = Field(
        "auto",
        description="On an entity unit beside a public dataset with entities: `keep` weights its "
        "entities with all their rows, `group` makes rows of a model and groups them, `auto` "
        "takes what is nearer by noisy distances.",
    )

"""A run of a method on a junction tree: its budget, and what its steps share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from app.engine.columns.estimates import ColumnEstimates, in_rows
from app.engine.constraints.structural_zeros import structural_zeros
from app.engine.graphical.preparation import PreparedTable
from app.engine.graphical.table_model import TableModel
from app.engine.inference.estimation import fit
from app.engine.inference.measurements import AxisNames, NoisyMarginal
from app.engine.inference.model import GraphicalModel
from app.engine.method import Progress, Session
from app.engine.prior.drift import PublicPrior
from app.engine.privacy.loss import PrivacyLoss
from app.engine.privacy.queries import Count
from app.engine.public.rows import PublicDataUnfit, PublicRows, read_public
from app.engine.schema import Schema
from app.engine.table import PublicTable


@dataclass(frozen=True, slots=True)
class TableBudget:
    """The loss of each step; nothing is set aside for a step that is not taken.

    prior: comparing a public model with the private table. selection: choosing marginals.
    marginals: measuring them. reserve: kept for what a method asks of its fitted model.
    """

    one_way: PrivacyLoss
    prior: PrivacyLoss
    selection: PrivacyLoss
    marginals: PrivacyLoss
    reserve: PrivacyLoss


@dataclass(frozen=True, slots=True)
class BudgetWeights:
    """What each step's loss is in proportion to; see `TableBudget`."""

    one_way: float
    prior: float = 0.0
    selection: float = 0.0
    marginals: float = 0.0
    reserve: float = 0.0

    def split(self, loss: PrivacyLoss) -> TableBudget:
        # The kernel's split gives nothing where the weight is 0, and rounds down elsewhere.
        weights = (self.one_way, self.prior, self.selection, self.marginals, self.reserve)
        return TableBudget(*loss.split(weights))


@dataclass(frozen=True, slots=True)
class PublicSource:
    """The public table that a request names (None: it names none), and those of its rows that fit
    the private dictionary (None: no row does)."""

    table: PublicTable | None = None
    rows: PublicRows | None = None

    @classmethod
    def of(cls, public: PublicTable | None, schema: Schema, columns: Sequence[str]) -> PublicSource:
        """Rows that do not fit are no error here: the release is charged already."""
        if public is None:
            return cls()
        try:
            return cls(public, read_public(public, schema, columns))
        except PublicDataUnfit:
            return cls(public)


@dataclass(frozen=True, slots=True)
class FitSettings:
    """How a model is fitted to noisy marginals; `inference.estimation.fit` says what each means.

    smoothness: None leaves neighbours among ordered cells alone.
    """

    shrinkage: float = 1.5
    smoothness: float | None = None
    tolerance: float = 0.05


@dataclass(frozen=True, slots=True)
class MeasuredMarginals:
    """What the step "select and measure" hands to the fit. `start`: a model fitted on the way."""

    marginals: Sequence[NoisyMarginal]
    settings: FitSettings
    start: GraphicalModel | None = None


@dataclass(frozen=True)
class TableRun:
    """prior: what a public table adds to the model; None without one, or where its entities take
    the place of a model of rows."""

    session: Session
    table: PreparedTable
    columns: ColumnEstimates
    budget: TableBudget
    public: PublicSource
    progress: Progress
    prior: PublicPrior | None = None

    @property
    def left(self) -> PrivacyLoss:
        """What may be spent before the model is fitted, without delta."""
        remaining = self.session.remaining
        return PrivacyLoss(remaining.kind, remaining.amount - self.budget.reserve.amount)

    @property
    def prior_cliques(self) -> tuple[AxisNames, ...]:
        """Cliques that are in the junction tree whatever is measured."""
        return () if self.prior is None else self.prior.cliques

    def measure(
        self,
        cliques: Sequence[AxisNames],
        loss: PrivacyLoss,
        weights: Sequence[float] | None = None,
    ) -> list[NoisyMarginal]:
        """Noisy histograms in merged cells, as rows: one joint release, its loss split by `weights`
        (equally without)."""
        groupings = self.columns.merged.groupings
        counts = [
            Count(names, {name: groupings[name] for name in names}, self.table.contribution)
            for names in cliques
        ]
        answers = self.session.count(counts, loss, weights)
        return [in_rows(answer, self.columns.size) for answer in answers]

    def measure_columns_again(self) -> list[NoisyMarginal]:
        """All that is left, where no marginal of several columns can be measured with it."""
        return self.measure([(name,) for name in self.columns.merged.names], self.left)

    def fit(
        self,
        marginals: Sequence[NoisyMarginal],
        settings: FitSettings,
        start: GraphicalModel | None = None,
    ) -> GraphicalModel:
        """The model of columns, `marginals`, the prior and the dictionary's structural zeros."""
        columns = self.columns
        cliques = [*self.prior_cliques, *(each.axes for each in marginals)]
        smoothness = settings.smoothness
        return fit(
            columns.shape,
            [*columns.marginals, *marginals],
            columns.total,
            base=None if self.prior is None else self.prior.factors,
            zeros=structural_zeros(self.session.schema, columns.merged.groupings, cliques),
            start=start,
            shrinkage=settings.shrinkage,
            ordered=None if smoothness is None else columns.ordered,
            smoothness=0.0 if smoothness is None else smoothness,
            tolerance=settings.tolerance,
        )

    def model(self, method: str, graph: GraphicalModel) -> TableModel:
        """A graph over merged cells as the model of a table."""
        entities, columns = self.table.entities, self.columns
        return TableModel(
            method,
            columns.axes,
            columns.compressions,
            graph,
            columns.size,
            columns.densities,
            None if entities is None else entities.entities,
        )

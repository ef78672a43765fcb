"""One way through for methods on a junction tree: what each supplies, and what it is given."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest
from public_tables import CELLS, SCHEMA, contrary, pair_distance, public_of, rows_of
from small_tables import EXACT, LIMITS, ROW, session_on

from app.engine.columns.axes import Axes
from app.engine.graphical.method import GraphicalMethod
from app.engine.graphical.params import TableParams
from app.engine.graphical.preparation import PreparationPlan, PreparedTable
from app.engine.graphical.run import (
    BudgetWeights,
    FitSettings,
    MeasuredMarginals,
    PublicSource,
    TableRun,
)
from app.engine.graphical.table_model import TableModel
from app.engine.method import Case, Needs, PublicFacts
from app.engine.method.model_file import ModelFormatError
from app.engine.prior.drift import PriorLimits
from app.engine.privacy.loss import PrivacyLoss
from app.engine.table import PublicTable, generator


class Neighbours(GraphicalMethod):
    """Measures each column with the next one, and keeps a tenth for the end."""

    name = "neighbours"
    title = "Each column with the next"

    def __init__(self) -> None:
        self.runs: list[TableRun] = []
        self.left_at_end = 0

    def weights(self, table: PreparedTable, params: Any, public: PublicSource) -> BudgetWeights:  # noqa: ARG002
        prior = 0.2 if public.rows is not None else 0.0
        return BudgetWeights(one_way=0.4, prior=prior, marginals=0.5 - prior, reserve=0.1)

    def marginal_needs(self, case: Case, plan: PreparationPlan, params: Any) -> Needs:  # noqa: ARG002
        return Needs(cells=100, memory_bytes=1000, draws=100) + plan.noise([1.0])

    def prior_tree_cells(self, axes: Axes, params: Any) -> int:  # noqa: ARG002
        return 10_000

    def prior_limits(self, run: TableRun, params: Any) -> PriorLimits:  # noqa: ARG002
        return PriorLimits(tree=10_000, pair=1000)

    def select_and_measure(self, run: TableRun, params: Any) -> MeasuredMarginals:  # noqa: ARG002
        self.runs.append(run)
        pairs = list(zip(run.columns.shape, list(run.columns.shape)[1:], strict=False))
        return MeasuredMarginals(run.measure(pairs, run.left), FitSettings(shrinkage=0.5))

    def finished(self, run: TableRun, params: Any, model: TableModel) -> TableModel:  # noqa: ARG002
        self.left_at_end = run.session.remaining.amount
        return model


def quiet(fraction: float, stage: str) -> None:
    assert 0 <= fraction <= 1
    assert stage


def fit(
    method: Neighbours, public: PublicTable | None = None, loss: PrivacyLoss = EXACT
) -> TableModel:
    session = session_on(SCHEMA, rows_of(3000, 1), loss)
    model: TableModel = method.fit(session, TableParams(), public, 7, quiet)
    return model


def test_a_method_supplies_one_step_and_makes_a_table() -> None:
    table = fit(Neighbours()).sample(3000, generator(0))
    private = rows_of(3000, 1)
    for one, other in (("a", "b"), ("b", "c")):
        counts = [
            np.bincount(t[one] * CELLS[other] + t[other], minlength=CELLS[one] * CELLS[other])
            for t in (private, table.codes)
        ]
        assert np.abs(counts[0] - counts[1]).sum() < 60
    assert pair_distance(private, table.codes) < 0.1


@pytest.mark.parametrize("is_public", [False, True])
def test_the_reserve_is_left_for_the_end(is_public: bool) -> None:
    method = Neighbours()
    loss = PrivacyLoss.zcdp(10**12)
    fit(method, public_of(rows_of(3000, 2)) if is_public else None, loss)
    (run,) = method.runs
    assert run.budget.reserve.amount == pytest.approx(0.1 * loss.amount, rel=1e-6)
    assert method.left_at_end == pytest.approx(run.budget.reserve.amount, abs=20)


def test_a_step_is_given_what_a_public_table_adds() -> None:
    method = Neighbours()
    fit(method)
    fit(method, public_of(rows_of(3000, 2)))
    fit(method, public_of(contrary(rows_of(3000, 2))))
    without, alike, drifted = method.runs
    assert without.prior is None
    assert without.prior_cliques == ()
    assert alike.prior is not None
    assert any({"a", "b"} <= set(clique) for clique in alike.prior_cliques)
    assert drifted.prior is not None
    assert drifted.prior.factors is None
    assert drifted.prior_cliques == ()
    assert set(drifted.prior.gains) == set(combinations(CELLS, 2))


def test_a_public_table_of_which_no_row_fits_is_none() -> None:
    method = Neighbours()
    codes = {name: column[:0] for name, column in rows_of(10, 2).items()}
    fit(method, public_of(codes))
    (run,) = method.runs
    assert run.public.table is not None
    assert run.public.rows is None
    assert run.prior is None


def test_a_stored_model_is_of_its_own_method() -> None:
    method = Neighbours()
    data = fit(method).dump()
    assert method.load(SCHEMA, ROW, data).dump() == data
    other = Neighbours()
    other.name = "others"
    with pytest.raises(ModelFormatError):
        other.load(SCHEMA, ROW, data)


def test_needs_are_those_of_the_columns_the_step_and_the_public_table() -> None:
    facts = PublicFacts(SCHEMA, 5000)
    alone, beside = (
        Neighbours().check(SCHEMA, ROW, TableParams(), EXACT, public, LIMITS)
        for public in (None, facts)
    )
    assert alone.problems == beside.problems == ()
    assert alone.cells == beside.cells == sum(CELLS.values()) + 100
    assert beside.memory_bytes > alone.memory_bytes + 5000 * 8 * len(CELLS)
    assert alone.expected_error == 1.0


def test_what_no_public_table_has_cannot_be_kept() -> None:
    params = TableParams(public_entities="keep")
    (problem,) = Neighbours().check(SCHEMA, ROW, params, EXACT, None, LIMITS).problems
    assert problem.pointer == "/params/public_entities"

"""The evaluation of a release for its custodian: exact figures, from both tables.

Work and memory are bounded: models and distances use rows that a public seed draws.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from app.engine.schema import Column, PrivacyUnit, Schema
from app.reports.evaluation.closeness import closest_records, exact_matches
from app.reports.evaluation.drawn import DrawnRows, NotMade, WholeTable, drawn
from app.reports.evaluation.figures import (
    Evaluation,
    Prediction,
    Propensity,
    RealRows,
    Regression,
    Subgroups,
)
from app.reports.evaluation.form import ReportIn
from app.reports.evaluation.prediction import prediction
from app.reports.evaluation.propensity import propensity
from app.reports.evaluation.regression import regression
from app.reports.evaluation.subgroups import subgroups

_Figure = TypeVar("_Figure")

# Of each table: six trees and two boosted models then take seconds.
MOST_ROWS = 20_000

# Called with a fraction in [0, 1] and the stage; may raise, to stop.
Progress = Callable[[float, str], None]


def evaluated(
    real: WholeTable,
    synthetic: WholeTable,
    schema: Schema,
    unit: PrivacyUnit,
    columns: Sequence[str],
    form: ReportIn,
    progress: Progress,
) -> Evaluation:
    """columns: those of the synthetic rows, at least one. The form was checked."""
    evaluating = _Evaluating(real, synthetic, schema, unit, columns, progress)
    stated = {column.name: column for column in evaluating.columns}
    return Evaluation(
        propensity=evaluating.propensity(),
        prediction=evaluating.prediction(form, stated),
        regression=evaluating.regression(form, stated),
        subgroups=evaluating.subgroups(form, stated),
        real_rows=evaluating.real_rows(),
        not_made=evaluating.not_made,
    )


class _Evaluating:
    def __init__(
        self,
        real: WholeTable,
        synthetic: WholeTable,
        schema: Schema,
        unit: PrivacyUnit,
        columns: Sequence[str],
        progress: Progress,
    ) -> None:
        progress(0.0, "drawing rows")
        self.columns = [schema.column(name) for name in columns]
        self.not_made: list[str] = []
        self._whole = real, synthetic
        self._entities = unit.kind == "entity"
        self._progress = progress
        self._drawn: tuple[DrawnRows, DrawnRows] = (
            drawn(real, columns, MOST_ROWS, entities=self._entities),
            drawn(synthetic, columns, MOST_ROWS, entities=self._entities),
        )

    def propensity(self) -> Propensity | None:
        return self._made(
            lambda: propensity(*self._drawn, self.columns, self._at(0.1, "propensity"))
        )

    def prediction(self, form: ReportIn, columns: dict[str, Column]) -> Prediction | None:
        if form.target is None or not self._modelled("prediction", [form.target], columns):
            return None
        target, check = columns[form.target], self._at(0.4, "prediction")
        return self._made(lambda: prediction(*self._drawn, target, self.columns, check))

    def regression(self, form: ReportIn, columns: dict[str, Column]) -> Regression | None:
        if form.regression is None:
            return None
        names = [form.regression.outcome, *form.regression.predictors]
        if not self._modelled("regression", names, columns):
            return None
        self._at(0.7, "regression")()
        outcome, *predictors = (columns[name] for name in names)
        return self._made(lambda: regression(*self._drawn, outcome, predictors))

    def subgroups(self, form: ReportIn, columns: dict[str, Column]) -> Subgroups | None:
        names = form.subgroups or []
        if not names or not self._modelled("subgroups", names, columns):
            return None
        self._at(0.75, "subgroups")()
        found, left_out = subgroups(*self._whole, [columns[name] for name in names], self.columns)
        self.not_made += left_out
        return found

    def real_rows(self) -> RealRows:
        check = self._at(0.85, "matches")
        check()
        names = [column.name for column in self.columns]
        return RealRows(
            matches=exact_matches(*self._whole, names, entities=self._entities),
            closest=closest_records(*self._drawn, self.columns, check),
        )

    def _at(self, fraction: float, stage: str) -> Callable[[], None]:
        return lambda: self._progress(fraction, stage)

    def _made(self, make: Callable[[], _Figure]) -> _Figure | None:
        try:
            return make()
        except NotMade as error:
            self.not_made.append(str(error))
            return None

    def _modelled(self, what: str, names: Sequence[str], columns: dict[str, Column]) -> bool:
        missing = [name for name in names if name not in columns]
        if missing:
            self.not_made.append(f"{what}: the release does not model {', '.join(missing)}")
        return not missing

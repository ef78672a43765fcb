"""Train on synthetic, test on real: would a model of the synthetic rows be of use?

The real rows are split into halves, by entity on an entity unit. One model learns from synthetic
rows and one from the first half, as many rows each; both predict the second half.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from app.engine.schema import Column
from app.reports.evaluation.drawn import (
    SEED,
    DrawnRows,
    Floats,
    NotMade,
    first_half,
    generator,
    numbers,
)
from app.reports.evaluation.figures import Prediction, Score, Used
from app.reports.evaluation.form import is_numeric

LEAST_ROWS = 20
# Each round grows a tree for each class.
_MOST_TREES = 300
_MOST_ROUNDS = 100
# What the trees take as categories; a column with more is taken in the order of its codes.
_MOST_CATEGORIES = 255


def prediction(
    real: DrawnRows,
    synthetic: DrawnRows,
    target: Column,
    columns: Sequence[Column],
    check: Callable[[], None],
) -> Prediction:
    """`check` is called before each model is trained and may raise."""
    others = [column for column in columns if column.name != target.name]
    first = first_half(real.rows, real.owner)
    ours, tested = (_known(real.at(half), target) for half in (first, ~first))
    theirs = _known(synthetic, target)
    if min(each.rows for each in (ours, tested, theirs)) < LEAST_ROWS:
        raise NotMade(
            f"prediction: fewer than {LEAST_ROWS} rows with a value of `{target.name}` in the"
            " synthetic table or in a half of the real one"
        )
    rows = min(ours.rows, theirs.rows)
    ours, theirs = (_some(each, rows) for each in (ours, theirs))
    task = _Task(target, others, tested)
    check()
    trained_on_synthetic = task.score(theirs)
    check()
    return Prediction(
        target=target.name,
        trained_on_synthetic=trained_on_synthetic,
        trained_on_real=task.score(ours),
        constant=task.constant(ours),
        used=Used(real=rows, synthetic=rows),
        tested=tested.rows,
        split="rows" if real.owner is None else "entities",
    )


def _known(table: DrawnRows, target: Column) -> DrawnRows:
    codes = table.codes[target.name]
    return table if target.null_code is None else table.at(codes != target.null_code)


def _some(table: DrawnRows, rows: int) -> DrawnRows:
    if table.rows <= rows:
        return table
    return table.at(np.sort(generator().choice(table.rows, rows, replace=False)))


class _Task:
    """Predicting the target in the rows of a test table."""

    def __init__(self, target: Column, others: Sequence[Column], tested: DrawnRows) -> None:
        self._target = target
        self._others = others
        self._rows = tested.matrix(others)
        self._truth = self._values(tested)
        self._by_value = not is_numeric(target)

    def score(self, training: DrawnRows) -> Score:
        values = self._values(training)
        if len(np.unique(values)) == 1:
            return self._of_constant(values[0], values)
        model = self._model(len(np.unique(values)))
        # Threads that wait for each other take longer than one where workers share processors.
        with threadpool_limits(1, "openmp"):
            model.fit(training.matrix(self._others), values)
        predicted = model.predict(self._rows)
        if not self._by_value:
            return Score(accuracy=None, auc=None, r2=self._r2(predicted))
        scores = model.predict_proba(self._rows)
        return Score(
            accuracy=float(np.mean(predicted == self._truth)),
            auc=self._auc(model.classes_, scores),
            r2=None,
        )

    def constant(self, training: DrawnRows) -> Score:
        values = self._values(training)
        found, times = np.unique(values, return_counts=True)
        best = found[times.argmax()] if self._by_value else values.mean()
        return self._of_constant(best, found)

    def _of_constant(self, value: Any, seen: NDArray[Any]) -> Score:
        if not self._by_value:
            predicted = np.full(len(self._truth), float(value))
            return Score(accuracy=None, auc=None, r2=self._r2(predicted))
        # Equal scores for all rows order nothing.
        tested = np.unique(self._truth)
        ranks = len(tested) > 1 and set(tested) <= set(np.unique(seen))
        return Score(
            accuracy=float(np.mean(self._truth == value)), auc=0.5 if ranks else None, r2=None
        )

    def _values(self, table: DrawnRows) -> NDArray[Any]:
        codes = table.codes[self._target.name]
        if is_numeric(self._target):
            return numbers(self._target, codes)
        return codes.astype(np.int64)

    def _model(self, classes: int) -> Any:
        from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

        listed = [
            place
            for place, column in enumerate(self._others)
            if not column.has_numbers and column.codes <= _MOST_CATEGORIES
        ]
        options: dict[str, Any] = {
            "categorical_features": listed or None,
            "early_stopping": False,
            "random_state": SEED,
        }
        if not self._by_value:
            return HistGradientBoostingRegressor(max_iter=_MOST_ROUNDS, **options)
        trees = 1 if classes == 2 else classes
        rounds = min(_MOST_ROUNDS, _MOST_TREES // trees)
        return HistGradientBoostingClassifier(max_iter=rounds, **options)

    def _r2(self, predicted: Floats) -> float | None:
        with np.errstate(over="ignore", invalid="ignore"):
            spread = float(((self._truth - self._truth.mean()) ** 2).sum())
            missed = float(((self._truth - predicted) ** 2).sum())
        # Without spread there is nothing to explain, and the squares of huge numbers overflow.
        if not (spread > 0 and math.isfinite(spread) and math.isfinite(missed)):
            return None
        return 1 - missed / spread

    def _auc(self, classes: NDArray[Any], scores: Floats) -> float | None:
        from sklearn.metrics import roc_auc_score

        tested = np.unique(self._truth)
        if len(tested) < 2 or not set(tested) <= set(classes):
            return None
        kept = scores[:, np.isin(classes, tested)]
        if len(tested) == 2:
            return float(roc_auc_score(self._truth == tested[1], kept[:, 1] - kept[:, 0]))
        totals = kept.sum(axis=1, keepdims=True)
        shares = np.where(totals > 0, kept / np.where(totals > 0, totals, 1), 1 / len(tested))
        return float(roc_auc_score(self._truth, shares, multi_class="ovo", labels=tested))

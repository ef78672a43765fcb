"""One regression fitted to real and to synthetic rows, its coefficients side by side.

Intervals overlap as in Karr, Kohnen, Oganian, Reiter and Sanil (2006), "A framework for
evaluating the utility of data altered to protect confidentiality", The American Statistician 60.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.engine.grouping import Grouping
from app.engine.schema import Column
from app.engine.schema.scale import Categories
from app.reports.evaluation.drawn import DrawnRows, Floats, NotMade, numbers
from app.reports.evaluation.figures import Coefficient, Regression, Used
from app.reports.evaluation.form import family_of

# Half the width of a 95 % interval in standard errors.
_DEVIATIONS = 1.959963984540054
_MOST_STEPS = 50
_SMALL_STEP = 1e-8
# Share of a term's length that must not be a sum of the terms before it.
_OWN_PART = 1e-7
INTERCEPT = "intercept"


@dataclass(frozen=True)
class _Design:
    """terms: names; rows: shape (rows, terms), intercept first; owner: clusters, if any."""

    terms: tuple[str, ...]
    rows: Floats
    outcome: Floats
    owner: NDArray[np.int64] | None

    def only(self, kept: NDArray[np.bool_]) -> _Design:
        terms = tuple(term for term, keep in zip(self.terms, kept, strict=True) if keep)
        return _Design(terms, self.rows[:, kept], self.outcome, self.owner)


@dataclass(frozen=True)
class _Fit:
    coefficients: Floats
    errors: Floats
    converged: bool


def regression(
    real: DrawnRows, synthetic: DrawnRows, outcome: Column, predictors: Sequence[Column]
) -> Regression:
    """Rows with a missing value in any of the columns are left out."""
    ours, theirs = (_design(table, outcome, predictors) for table in (real, synthetic))
    if min(len(ours.rows), len(theirs.rows)) <= len(ours.terms):
        raise NotMade(
            f"regression: not more than {len(ours.terms)} rows, the number of coefficients, have no"
            " missing value in these columns"
        )
    # Both tables are measured in one unit for each term, so that no digits are lost.
    scale = np.maximum(_largest(ours.rows), _largest(theirs.rows))
    kept = _independent(ours.rows / scale) & _independent(theirs.rows / scale)
    dropped = [term for term, keep in zip(ours.terms, kept, strict=True) if not keep]
    family = family_of(outcome)
    fits = [_fitted(design.only(kept), scale[kept], family) for design in (ours, theirs)]
    coefficients = list(_beside(ours.only(kept).terms, *fits))
    overlaps = [each.overlap for each in coefficients if each.overlap is not None]
    return Regression(
        outcome=outcome.name,
        family=family or "linear",
        used=Used(real=len(ours.rows), synthetic=len(theirs.rows)),
        errors="classical" if ours.owner is None else "clustered by entity",
        coefficients=coefficients,
        mean_overlap=math.fsum(overlaps) / len(overlaps) if overlaps else None,
        dropped=dropped,
        converged=all(fit.converged for fit in fits),
    )


def overlap(first: tuple[float, float], second: tuple[float, float]) -> float | None:
    """Of two intervals, 0 where they do not meet; None where one has no width."""
    widths = [high - low for low, high in (first, second)]
    if not all(width > 0 and math.isfinite(width) for width in widths):
        return None
    common = min(first[1], second[1]) - max(first[0], second[0])
    return max(common, 0.0) * (1 / widths[0] + 1 / widths[1]) / 2


def _beside(terms: Sequence[str], real: _Fit, synthetic: _Fit) -> Iterator[Coefficient]:
    for place, term in enumerate(terms):
        values = [float(fit.coefficients[place]) for fit in (real, synthetic)]
        errors = [float(fit.errors[place]) for fit in (real, synthetic)]
        if not all(map(math.isfinite, (*values, *errors))):
            raise NotMade("regression: its numbers are too large to be fitted")
        ends = [
            (value - _DEVIATIONS * error, value + _DEVIATIONS * error)
            for value, error in zip(values, errors, strict=True)
        ]
        yield Coefficient(
            term=term,
            real=values[0],
            real_error=errors[0],
            synthetic=values[1],
            synthetic_error=errors[1],
            overlap=overlap(ends[0], ends[1]),
        )


def _design(table: DrawnRows, outcome: Column, predictors: Sequence[Column]) -> _Design:
    values = numbers(outcome, table.codes[outcome.name])
    if family_of(outcome) == "logistic":
        codes = [code for code in range(outcome.codes) if code != outcome.null_code]
        found = table.codes[outcome.name]
        values = np.where(np.isnan(values), np.nan, found == codes[1])
    terms, columns = [INTERCEPT], [np.ones(table.rows)]
    for predictor in predictors:
        for term, column in _terms(predictor, table.codes[predictor.name]):
            terms.append(term)
            columns.append(column)
    rows = np.stack(columns, axis=1)
    whole = ~(np.isnan(rows).any(axis=1) | np.isnan(values))
    owner = None if table.owner is None else table.owner[whole]
    return _Design(tuple(terms), rows[whole], values[whole], owner)


def _terms(column: Column, codes: NDArray[Any]) -> Iterator[tuple[str, Floats]]:
    if column.has_numbers and not isinstance(column.scale, Categories):
        yield column.name, numbers(column, codes)
        return
    labels = column.labels(Grouping.identity(column.regular, column.tail))
    null = np.zeros(len(codes), np.bool_)
    if column.null_code is not None:
        null = codes == column.null_code
    values = [code for code in range(column.codes) if code != column.null_code]
    for code in values[1:]:
        yield f"{column.name} = {labels[code]}", np.where(null, np.nan, codes == code)


def _largest(rows: Floats) -> Floats:
    largest: Floats = np.abs(rows).max(axis=0)
    return np.where(largest > 0, largest, 1.0)


def _independent(rows: Floats) -> NDArray[np.bool_]:
    """The terms that are no linear combination of terms before them."""
    triangle = np.linalg.qr(rows, mode="r")
    own = np.abs(np.diag(triangle))
    whole = np.linalg.norm(triangle, axis=0)
    kept: NDArray[np.bool_] = own > _OWN_PART * np.maximum(whole, np.finfo(float).tiny)
    return kept


def _fitted(design: _Design, scale: Floats, family: str | None) -> _Fit:
    rows = design.rows / scale
    fit = _logistic(rows, design) if family == "logistic" else _linear(rows, design)
    return _Fit(fit.coefficients / scale, fit.errors / scale, fit.converged)


def _linear(rows: Floats, design: _Design) -> _Fit:
    with np.errstate(over="ignore", invalid="ignore"):
        orthogonal, triangle = np.linalg.qr(rows)
        coefficients = np.linalg.solve(triangle, orthogonal.T @ design.outcome)
        residuals = design.outcome - rows @ coefficients
        inverse = np.linalg.inv(triangle)
        bread = inverse @ inverse.T
        if design.owner is None:
            variance = float((residuals**2).sum()) / (len(rows) - len(coefficients))
            covariance = bread * variance
        else:
            covariance = _clustered(bread, rows * residuals[:, None], design.owner)
    return _Fit(coefficients, np.sqrt(np.diag(covariance)), True)


def _logistic(rows: Floats, design: _Design) -> _Fit:
    """Newton's method. Where the outcome is separated, it stops after some steps."""
    coefficients = np.zeros(rows.shape[1])
    converged = False
    for _ in range(_MOST_STEPS):
        chances = _chances(rows, coefficients)
        step = _inverse(_information(rows, chances)) @ (rows.T @ (design.outcome - chances))
        coefficients = coefficients + step
        if np.abs(step).max() < _SMALL_STEP:
            converged = True
            break
    chances = _chances(rows, coefficients)
    covariance = _inverse(_information(rows, chances))
    if design.owner is not None:
        scores = rows * (design.outcome - chances)[:, None]
        covariance = _clustered(covariance, scores, design.owner)
    return _Fit(coefficients, np.sqrt(np.maximum(np.diag(covariance), 0)), converged)


def _chances(rows: Floats, coefficients: Floats) -> Floats:
    # Beyond 30 a chance is 0 or 1 to all digits that a step needs.
    chances: Floats = 1 / (1 + np.exp(-np.clip(rows @ coefficients, -30, 30)))
    return chances


def _information(rows: Floats, chances: Floats) -> Floats:
    information: Floats = (rows * (chances * (1 - chances))[:, None]).T @ rows
    return information


def _inverse(information: Floats) -> Floats:
    """Also of a matrix that separated outcomes left without an inverse."""
    return np.asarray(np.linalg.pinv(information, hermitian=True), dtype=np.float64)


def _clustered(bread: Floats, scores: Floats, owner: NDArray[np.int64]) -> Floats:
    """The sandwich estimator: rows of one entity depend on each other."""
    _, number = np.unique(owner, return_inverse=True)
    entities = int(number.max()) + 1
    sums = np.zeros((entities, scores.shape[1]))
    np.add.at(sums, number.reshape(-1), scores)
    small = entities / (entities - 1) if entities > 1 else 1.0
    covariance: Floats = bread @ (sums.T @ sums) @ bread * small
    return covariance

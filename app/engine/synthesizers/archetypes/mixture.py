"""A Gaussian mixture fitted on public rows, as the arrays that the kernel evaluates."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from app.engine.privacy.declared import MixtureMode
from app.engine.public.rows import PublicRows
from app.engine.schema import Schema

MOST_FITTED_ROWS = 100_000
"""A mixture of a few columns is settled by far fewer rows; more would only take time."""

_SMALLEST_WEIGHT = 1e-12
_MOST_STEPS = 200
_SECONDS_PER_STEP = 2e-7
"""Of a row and a component, for a few columns, on a busy two-core machine."""


def fitting_seconds(public_rows: int, components: int) -> float:
    """The longest that a fit may take."""
    rows = min(public_rows, MOST_FITTED_ROWS)
    return rows * components * _MOST_STEPS * _SECONDS_PER_STEP


def fit_mixture(
    public: PublicRows,
    schema: Schema,
    features: Sequence[str],
    components: int,
    covariance: Literal["full", "diag"],
    regularisation: float,
    rng: np.random.Generator,
) -> MixtureMode:
    """Expectation-maximisation (scikit-learn) on the standardised values of public rows.

    Rows with a null in a feature are left out, as the kernel leaves them out. There are at
    most as many components as distinct rows. The same rows and `rng` give the same arrays
    on one machine: the fit runs on one thread, since sums over several differ by chance.
    """
    # Imported here: most processes that list the synthesizers never fit a mixture.
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.mixture import GaussianMixture
    from threadpoolctl import threadpool_limits

    values = _values(public, schema, features)
    if len(values) > MOST_FITTED_ROWS:
        values = values[rng.choice(len(values), MOST_FITTED_ROWS, replace=False)]
    centre, scale = values.mean(axis=0), values.std(axis=0)
    scale = np.where(scale > 0, scale, 1.0)
    standardised = (values - centre) / scale
    components = min(components, len(np.unique(standardised, axis=0)))
    mixture = GaussianMixture(
        n_components=components,
        covariance_type=covariance,
        reg_covar=regularisation,
        max_iter=_MOST_STEPS,
        random_state=int(rng.integers(2**32)),
    )
    with threadpool_limits(limits=1), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # an unfinished fit is still a mixture
        mixture.fit(standardised)
    return MixtureMode(
        tuple(features),
        centre,
        scale,
        np.maximum(mixture.weights_, _SMALLEST_WEIGHT),
        mixture.means_,
        mixture.precisions_cholesky_,
    )


def _values(public: PublicRows, schema: Schema, features: Sequence[str]) -> NDArray[np.float64]:
    """Shape (rows without a null, features), at least the two rows that scikit-learn takes."""
    places = [schema.column(name).places(public.codes[name]) for name in features]
    whole = ~np.any([null for _, null in places], axis=0)
    values: NDArray[np.float64] = np.column_stack(
        [place.astype(np.float64) for place, _ in places]
    )[whole]
    if not len(values):
        values = np.zeros((1, len(features)))
    return np.vstack([values, values]) if len(values) == 1 else values

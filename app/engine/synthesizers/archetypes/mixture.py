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
from app.engine.synthesizers.archetypes.tuning import TUNING

# For a row and a component, with a few columns, on a busy two-core machine.
_SECONDS_PER_STEP = 2e-7


def fitting_seconds(public_rows: int, components: int) -> float:
    """The longest that a fit may take."""
    rows = min(public_rows, TUNING.most_fitted_rows)
    return rows * components * TUNING.most_steps * _SECONDS_PER_STEP


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
    most as many components as distinct rows.
    """
    # Imported here: most processes that list the synthesizers never fit a mixture.
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.mixture import GaussianMixture
    from threadpoolctl import threadpool_limits

    values = _values(public, schema, features)
    if len(values) > TUNING.most_fitted_rows:
        values = values[rng.choice(len(values), TUNING.most_fitted_rows, replace=False)]
    centre, scale = values.mean(axis=0), values.std(axis=0)
    scale = np.where(scale > 0, scale, 1.0)
    standardised = (values - centre) / scale
    components = min(components, len(np.unique(standardised, axis=0)))
    mixture = GaussianMixture(
        n_components=components,
        covariance_type=covariance,
        reg_covar=regularisation,
        max_iter=TUNING.most_steps,
        random_state=int(rng.integers(2**32)),
    )
    # On one thread: sums over several differ in their last digits from run to run.
    with threadpool_limits(limits=1), warnings.catch_warnings():
        # A fit that has not converged is still a mixture.
        warnings.simplefilter("ignore", ConvergenceWarning)
        mixture.fit(standardised)
    return MixtureMode(
        tuple(features),
        centre,
        scale,
        np.maximum(mixture.weights_, TUNING.least_weight),
        mixture.means_,
        mixture.precisions_cholesky_,
    )


def _values(public: PublicRows, schema: Schema, features: Sequence[str]) -> NDArray[np.float64]:
    """Shape (rows without a null, features), at least the two rows that scikit-learn takes."""
    numbers = [schema.column(name).places(public.codes[name]) for name in features]
    whole = ~np.any([null for _, null in numbers], axis=0)
    values: NDArray[np.float64] = np.column_stack(
        [values.astype(np.float64) for values, _ in numbers]
    )[whole]
    if not len(values):
        values = np.zeros((1, len(features)))
    return np.vstack([values, values]) if len(values) == 1 else values

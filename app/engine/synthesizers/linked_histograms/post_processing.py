"""From noisy answers to the model: what is done with the counts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from app.engine.privacy.queries import Discovered, Measurement
from app.engine.public.rows import PublicRows
from app.engine.schema import Schema
from app.engine.synthesizers.linked_histograms.expected import public_counts, rows_behind
from app.engine.synthesizers.linked_histograms.model import LinkedHistogramsModel
from app.engine.synthesizers.linked_histograms.plan import Group, Plan
from app.engine.synthesizers.linked_histograms.weights import (
    Weights,
    clipped,
    independent,
    pooled_with_prior,
    projected,
    smoothed,
    total_between,
)


@dataclass(frozen=True, slots=True)
class PostProcessing:
    """What is done with noisy counts: pooled with `prior` rows if any, else clipped as
    published, or pooled with counts of independent columns, or projected."""

    clips: bool
    assumes_independence: bool
    prior: PublicRows | None
    rng: np.random.Generator

    def lengths(self, noisy: Measurement, entities: int) -> NDArray[np.float64]:
        """Weights of entities with 1, 2, ... rows."""
        values = noisy.values.astype(np.float64)
        if self.clips and self.prior is None:
            return clipped(values)
        if self.prior is None:
            return smoothed(values, noisy.standard_error, entities)
        numbers = np.minimum(self.prior.rows_per_entity(), len(values)) - 1
        found = np.bincount(numbers, minlength=len(values)).astype(np.float64)
        expected = found * self._growth(entities)
        return smoothed(values, noisy.standard_error, entities, expected)

    def group(
        self, group: Group, noisy: Measurement, samples: int, least: float, most: float
    ) -> NDArray[np.float64]:
        """Weights of a group's cells, whose true total lies between `least` and `most`."""
        shaped = noisy.values.astype(np.float64)
        values = shaped.ravel()
        if self.prior is not None:
            public = public_counts(group, self.prior, samples)
            expected = public * self._growth(int(least))
            pooled = pooled_with_prior(values, noisy.standard_error, expected)
            return (
                pooled if group.per == "entity" else pooled * rows_behind(group, self.prior, public)
            )
        if self.clips:
            return clipped(values)
        if self.assumes_independence and shaped.ndim > 1:
            total = total_between(values, noisy.standard_error, least, most)
            expected = independent(shaped, total).ravel()
            return pooled_with_prior(values, noisy.standard_error, expected)
        return projected(values, noisy.standard_error, least, most)

    def found(self, group: Group, found: Discovered) -> Weights:
        """Weights of discovered cells."""
        cells = np.zeros(0, dtype=np.int64)
        if len(found.keys):
            cells = np.ravel_multi_index(tuple(found.keys.T), group.axes.shape).astype(np.int64)
        return Weights.of_found(cells, found.values.astype(np.float64), group.axes.cells, self.rng)

    def _growth(self, entities: int) -> float:
        assert self.prior is not None
        return entities / max(self.prior.entities, 1)


def fitted_model(
    schema: Schema,
    plan: Plan,
    answers: tuple[Measurement, ...],
    found: dict[int, Discovered],
    expected: tuple[NDArray[np.float64], ...],
    post_processing: PostProcessing,
) -> LinkedHistogramsModel:
    """The model of noisy answers to `plan.questions()`, and of the cells `found` of each group to
    discover."""
    entities = max(0, int(answers[0].values))
    lengths, most = None, float(entities)
    if plan.most_rows is not None:
        lengths = post_processing.lengths(answers[1], entities)
        numbers = np.minimum(np.arange(1, len(lengths) + 1), plan.samples)
        most = max(most, float(lengths @ numbers))
    weights = {i: post_processing.found(plan.groups[i], each) for i, each in found.items()}
    histograms = answers[len(answers) - len(plan.listed) :]
    for i, noisy in zip(plan.listed, histograms, strict=True):
        counts = post_processing.group(plan.groups[i], noisy, plan.samples, float(entities), most)
        weights[i] = Weights.of(counts)
    ordered = tuple(weights[i] for i in range(len(plan.groups)))
    return LinkedHistogramsModel(schema, plan, entities, lengths, ordered, expected)

"""A sample is counted as the kernel counts a private table, up to the kernel's draws."""

from __future__ import annotations

import numpy as np
import pytest
from small_tables import digits

from app.engine.privacy.bounding import bound_rows
from app.engine.privacy.contributions import Histogram, exact_histograms
from app.engine.privacy.queries import Contribution
from app.engine.privacy.sensitivity import GRID
from app.engine.privacy.source import ArraySource
from app.engine.schema import PrivacyUnit
from app.engine.statements.counting import SampleCounts
from app.engine.statements.sample import KeptRows, SampleRows
from app.engine.table import Table

SCHEMA = digits({"x": 5, "y": 3})
UNIT = PrivacyUnit("entity", "id", 4)
RULES = [
    Contribution(),
    Contribution("distinct", limit=2),
    Contribution("one"),
    Contribution("clipped", norm=1.5),
]


def rows() -> SampleRows:
    rng = np.random.default_rng(2)
    owner = np.repeat(np.arange(60), rng.integers(1, 6, 60))
    codes = {"x": rng.integers(0, 5, len(owner)), "y": rng.integers(0, 3, len(owner))}
    return SampleRows(codes, len(owner), len(owner), owner)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.rule)
def test_expected_counts_are_the_mean_of_the_kernels_draws(rule: Contribution) -> None:
    sample = rows()
    names = ("x", "y")
    groupings = tuple(SCHEMA.column(name).grouping for name in names)
    found = SampleCounts(sample, 10).counts(names, groupings, rule)
    source = ArraySource(SCHEMA, PrivacyUnit("entity", "id", 10), sample.codes, sample.owner)
    histogram = Histogram(names, groupings, rule)
    draws = [exact_histograms(source, bound_rows(source), [histogram])[0] for _ in range(60)]
    mean = np.mean(draws, axis=0) / (GRID if rule.rule == "clipped" else 1)
    assert np.abs(found.ravel() - mean).max() < 1.5
    assert found.sum() == pytest.approx(mean.sum(), rel=0.02)


def test_rows_beyond_the_bound_weigh_less() -> None:
    sample = rows()
    counted = SampleCounts(sample, 2).counts(("x",), (SCHEMA.column("x").grouping,), Contribution())
    assert counted.sum() == pytest.approx(np.minimum(np.bincount(sample.owner), 2).sum())


def test_rows_of_one_entity_are_fewer_independent_draws() -> None:
    sample = rows()
    assert SampleCounts(sample, 10).independent_draws < sample.rows
    alone = SampleRows(sample.codes, sample.rows, sample.rows, None)
    assert SampleCounts(alone, 1).independent_draws == sample.rows


def test_of_a_large_sample_every_second_row_is_kept_and_so_on() -> None:
    kept = KeptRows(SCHEMA, most_values=500)
    for first in range(0, 1000, 100):
        x = np.arange(first, first + 100) % 5
        kept.see(Table({"x": x, "y": x % 3}, 100))
    found = kept.rows(entities=False)
    assert (found.made, found.owner) == (1000, None)
    assert 125 <= found.rows <= 250
    assert set(found.codes["x"].tolist()) == set(range(5))


def test_of_a_large_sample_whole_entities_are_kept() -> None:
    kept = KeptRows(SCHEMA, most_values=100)
    owner = np.repeat(np.arange(50), 3)
    kept.see(Table({"x": owner % 5, "y": owner % 3}, 150, owner))
    found = kept.rows(entities=True)
    assert found.owner is not None
    assert set(np.bincount(found.owner).tolist()) == {0, 3}

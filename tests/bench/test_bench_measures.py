"""The bench's measures, on cases worked out by hand."""

import numpy as np
import pytest

from bench.synthesizers import measures


def table(**columns):
    return {name: np.array(codes, dtype=np.int64) for name, codes in columns.items()}


def test_the_distance_of_a_column_is_half_the_sum_of_the_differences_of_its_shares():
    real, made = table(a=[0, 0, 1, 1]), table(a=[0, 1, 1, 2])
    assert measures.one_way(real, made) == pytest.approx(0.25)


def test_tables_of_different_lengths_are_compared_by_shares():
    assert measures.one_way(table(a=[0, 1]), table(a=[0, 0, 1, 1])) == 0


def test_one_way_and_pairs_are_means_over_all_choices():
    real = table(a=[0, 0, 1, 1], b=[0, 0, 1, 1], c=[0, 1, 0, 1])
    made = table(a=[0, 0, 1, 1], b=[0, 1, 0, 1], c=[0, 0, 1, 1])
    assert measures.one_way(real, made) == 0
    # (a, b): equal against independent; (a, c): independent against equal; (b, c): both spread
    assert measures.pairs(real, made) == pytest.approx((0.5 + 0.5 + 0) / 3)


def test_a_relation_of_three_columns_shows_in_triples_alone():
    real = table(a=[0, 0, 1, 1], b=[0, 1, 0, 1], c=[0, 1, 1, 0])
    made = table(a=[0, 0, 1, 1], b=[0, 1, 0, 1], c=[1, 0, 0, 1])
    assert measures.pairs(real, made) == 0
    assert measures.triples(real, made) == 1
    assert measures.k_marginal(real, made) == 0


def test_marginals_of_many_cells_are_told_apart_without_counting_them_all(monkeypatch):
    rng = np.random.default_rng(0)
    real, made = (table(**{name: rng.integers(0, 9, 200) for name in "abc"}) for _ in range(2))
    counted = measures.triples(real, made)
    monkeypatch.setattr(measures, "MOST_COUNTED_CELLS", 1)
    assert measures.triples(real, made) == pytest.approx(counted)


def test_the_same_hundred_different_triples_are_taken_every_time():
    names = [f"c{number}" for number in range(14)]
    chosen = measures.sampled_triples(names)
    assert len(set(chosen)) == 100
    assert chosen == measures.sampled_triples(names)
    assert len(measures.sampled_triples("abcd")) == 4


def test_the_score_of_many_columns_is_over_as_many_triples_as_can_be_waited_for():
    names = [f"c{number}" for number in range(41)]
    assert len(measures.scored_triples(names[:40])) == 40 * 39 * 38 // 6
    chosen = measures.scored_triples(names)
    assert len(set(chosen)) == 5000
    assert chosen == measures.scored_triples(names)


def test_the_k_marginal_score_looks_at_quantile_bins_of_the_real_numbers():
    real = table(a=range(100), b=[0] * 100, c=[1] * 100)
    within_bins = table(a=[5 * (value // 5) for value in range(100)], b=[0] * 100, c=[1] * 100)
    assert measures.k_marginal(real, within_bins, ["a"]) == pytest.approx(1000)
    assert measures.k_marginal(real, within_bins) == pytest.approx(200)


def test_quantile_edges_that_coincide_count_once():
    edges = measures.quantile_edges(np.array([0] * 90 + list(range(1, 11))))
    assert len(edges) == len(set(edges)) <= 3


def test_auc_is_one_where_the_synthetic_rows_teach_the_truth_and_nought_where_they_reverse_it():
    rng = np.random.default_rng(0)
    feature = rng.integers(0, 2, 400)
    held_out = table(x=feature, y=feature)
    assert measures.auc(table(x=feature, y=feature), held_out, "y") == 1
    assert measures.auc(table(x=feature, y=1 - feature), held_out, "y") == 0


def test_auc_of_rows_with_one_class_is_that_of_a_guess():
    held_out = table(x=[0, 1], y=[0, 1])
    assert measures.auc(table(x=[0, 1], y=[1, 1]), held_out, "y") == 0.5


def test_a_table_without_a_target_has_no_auc():
    real = table(a=[0, 1], b=[0, 1], c=[0, 1])
    assert measures.quality(real, real) == measures.Quality(0, 0, 0, 1000, None)

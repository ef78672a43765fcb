"""What the benches tell of runs: their mean, and of more than one its standard error."""

import pytest

from bench.challenge.fitting import with_error


def test_one_run_alone_has_a_mean_and_no_error():
    assert with_error([0.04321], ".4f", ".4f") == "0.0432"


def test_of_more_runs_the_standard_error_of_the_mean_is_told():
    assert with_error([0.04, 0.06], ".4f", ".4f") == "0.0500 ± 0.0100"


@pytest.mark.parametrize(("scores", "told"), [([715.4], "715"), ([714.0, 716.0], "715 ± 1.0")])
def test_scores_are_whole_and_their_errors_have_one_decimal(scores, told):
    assert with_error(scores) == told

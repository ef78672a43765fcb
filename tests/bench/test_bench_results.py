"""Results that survive an interruption, and their means."""

import pytest

from bench.synthesizers.results import Results, Run, summaries


def a_run(**changes):
    fields = {"table": "adult", "implementation": "mst", "epsilon": "1", "seed": 0}
    return Run(**(fields | {"seconds": 2.0, "pairs": 0.1} | changes))


def test_a_folder_without_results_has_no_runs(tmp_path):
    assert Results(tmp_path / "none").runs() == []


def test_runs_are_read_as_they_were_appended(tmp_path):
    results = Results(tmp_path / "new")
    first, second = a_run(), a_run(seed=1, failure="not done after 900 s", seconds=None)
    results.append(first)
    results.append(second)
    assert Results(tmp_path / "new").runs() == [first, second]


def test_a_line_cut_short_is_as_if_the_run_had_not_been(tmp_path):
    results = Results(tmp_path)
    results.append(a_run())
    with (tmp_path / "runs.jsonl").open("a") as file:
        file.write('{"table": "adu')
    assert results.runs() == [a_run()]


def test_a_run_after_a_line_cut_short_is_kept(tmp_path):
    results = Results(tmp_path)
    tmp_path.joinpath("runs.jsonl").write_text('{"table": "adu')
    results.append(a_run())
    assert results.runs() == [a_run()]


def test_a_run_made_again_takes_the_place_of_the_first(tmp_path):
    results = Results(tmp_path)
    for run in (a_run(), a_run(seed=1), a_run(seconds=3.0)):
        results.append(run)
    assert results.runs() == [a_run(seconds=3.0), a_run(seed=1)]


def test_a_summary_is_the_mean_of_the_runs_that_did_not_fail():
    (summary,) = summaries(
        [a_run(), a_run(seed=1, seconds=4.0), a_run(seed=2, seconds=None, failure="late")]
    )
    assert summary.runs == 2
    assert summary.means["seconds"] == pytest.approx(3)
    assert summary.means["auc"] is None
    assert summary.failures == ("late",)


def test_each_table_implementation_and_epsilon_has_a_summary_of_its_own():
    runs = [a_run(), a_run(epsilon="10"), a_run(table="census_ma"), a_run(seed=1)]
    assert [(each.table, each.epsilon, each.runs) for each in summaries(runs)] == [
        ("adult", "1", 2),
        ("adult", "10", 1),
        ("census_ma", "1", 1),
    ]

"""One run of the bench from an implementation to its measures."""

import numpy as np
import pytest

from bench.synthesizers import __main__ as bench
from bench.synthesizers import plan
from bench.synthesizers.implementations import Made, RunFailed
from bench.synthesizers.library import InProcess
from bench.synthesizers.references import REFERENCES
from bench.synthesizers.results import Results
from bench.synthesizers.tables import CodedTable

FIELDS = [
    {"name": name, "type": "integer", "constraints": {"required": True, "minimum": 0, "maximum": 2}}
    for name in "abc"
]


def a_table(rows=300):
    rng = np.random.default_rng(0)
    used = {name: rng.integers(0, 3, rows) for name in "abc"}
    return CodedTable("small", {"fields": FIELDS}, used, None, (), None)


class Fails:
    name, group, private = "fails", "peers", True

    def make(self, *_asked):
        raise RunFailed("too wide")


class Copies:
    name, group, private = "copies", "peers", True

    def make(self, table, *_asked):
        return Made(table.used, 1.5, 200_000_000, 50_000_000)


def test_a_run_holds_what_was_measured():
    run = bench.run(Copies(), a_table(), "1", 3)
    assert run.key == ("small", "copies", "1", 3)
    assert (run.seconds, run.peak_mb, run.child_mb, run.rows) == (1.5, 200, 50, 300)
    assert (run.one_way, run.pairs, run.triples, run.k_marginal, run.auc) == (0, 0, 0, 1000, None)


def test_a_failed_run_holds_the_reason_alone():
    run = bench.run(Fails(), a_table(), "1", 0)
    assert (run.failure, run.seconds, run.pairs) == ("too wide", None, None)


@pytest.mark.parametrize("reference", REFERENCES, ids=lambda each: each.name)
def test_a_reference_is_near_the_real_rows(reference):
    run = bench.run(reference, a_table(), "", 0)
    assert run.one_way < 0.1
    assert run.rows == 300


def test_a_synthesizer_of_ours_runs_in_this_process_under_a_guarantee():
    run = bench.run(InProcess("independent"), a_table(3000), "10", 0)
    assert run.implementation == "independent (library)"
    assert run.one_way < 0.05


def test_one_that_needs_public_rows_fails_on_a_table_without():
    run = bench.run(InProcess("public_reweighted"), a_table(), "1", 0)
    assert run.failure == "the table comes with no public table"


def test_runs_are_planned_seed_by_seed_and_a_reference_has_no_epsilon():
    chosen = {"copies": Copies(), REFERENCES[0].name: REFERENCES[0]}
    seeds, epsilons = plan.seeds(["1", "copies=2"]), plan.epsilons(["0.1", "1"])
    planned = [
        (implementation.name, epsilon, seed)
        for _, implementation, epsilon, seed in bench.planned(chosen, ["adult"], epsilons, seeds)
    ]
    assert planned == [
        ("copies", "0.1", 0),
        ("copies", "1", 0),
        (REFERENCES[0].name, "", 0),
        ("copies", "0.1", 1),
        ("copies", "1", 1),
    ]


def test_the_table_and_the_pictures_are_made_from_the_lines_of_the_folder(tmp_path):
    results = Results(tmp_path)
    results.append(bench.run(Fails(), a_table(), "1", 0))
    bench.write(results, tmp_path)
    assert "too wide" in (tmp_path / "results.md").read_text()
    assert not (tmp_path / "small.svg").exists()

"""What the bench's options ask for."""

from pathlib import Path

import pytest

from bench.synthesizers import plan

PLACES = plan.Places(Path("stores"), Path("virtualenvs"), 900, 3, in_process=False)


def test_a_group_takes_the_compared_synthesizers():
    assert tuple(plan.implementations(["halftone"], PLACES)) == plan.COMPARED


def test_all_groups_are_run_when_none_is_named():
    chosen = plan.implementations([], PLACES)
    assert {each.group for each in chosen.values()} == set(plan.GROUPS)
    assert {"mst", "dpmm-mst", "smartnoise-mst", "resampled-rows"} <= chosen.keys()


def test_any_other_built_in_is_there_by_name():
    assert list(plan.implementations(["independent"], PLACES)) == ["independent"]


def test_an_unknown_name_is_refused_with_those_that_there_are():
    with pytest.raises(plan.NotUnderstood, match=r"no implementation 'dpgan'.*dpmm-mst"):
        plan.implementations(["dpgan"], PLACES)


def test_in_process_ours_are_told_apart_from_served_ones():
    places = plan.Places(Path("stores"), Path("virtualenvs"), 900, 3, in_process=True)
    assert plan.implementations(["mst"], places)["mst"].name == "mst (library)"
    assert plan.implementations(["mst"], PLACES)["mst"].name == "mst"


def test_seeds_and_epsilons_differ_by_implementation_where_told():
    seeds, epsilons = plan.seeds(["3", "dpmm-aim=1"]), plan.epsilons(["1", "dpmm-aim=0.10,10"])
    assert (seeds.of("mst"), seeds.of("dpmm-aim")) == (3, 1)
    assert (epsilons.of("mst"), epsilons.of("dpmm-aim")) == (("1",), ("0.1", "10"))


def test_the_usual_ones_hold_where_nothing_is_told():
    assert plan.seeds(["dpmm-aim=1"]).of("mst") == 5
    assert plan.epsilons([]).of("mst") == ("0.1", "1", "10")


@pytest.mark.parametrize("words", [["0"], ["-1"], ["two"], ["1", "2"]])
def test_seeds_are_one_whole_number(words):
    with pytest.raises(plan.NotUnderstood):
        plan.seeds(words)


@pytest.mark.parametrize("word", ["0", "-1", "nan", "inf", "much"])
def test_an_epsilon_is_a_finite_number_above_nought(word):
    with pytest.raises(plan.NotUnderstood):
        plan.epsilons([word])

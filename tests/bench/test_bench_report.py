"""The bench's tables and pictures."""

from xml.etree import ElementTree

import pytest

from bench.synthesizers import picture, report
from bench.synthesizers.results import Run, summaries

SVG = "{http://www.w3.org/2000/svg}"


def a_run(implementation="mst", epsilon="1", **changes):
    fields = {"table": "adult", "seed": 0, "seconds": 2.0, "pairs": 0.05} | changes
    return Run(implementation=implementation, epsilon=epsilon, **fields)


def rows(text):
    return [
        [cell.strip() for cell in line.split("|")[1:-1]]
        for line in text.splitlines()
        if "|" in line
    ]


def test_each_table_of_data_has_a_section():
    text = report.markdown(summaries([a_run(), a_run(table="census_ma")]))
    assert [line for line in text.splitlines() if line.startswith("##")] == [
        "## adult",
        "## census_ma",
    ]


def test_seconds_are_compared_with_those_of_the_yardstick_at_the_same_epsilon():
    runs = [a_run(), a_run("dpmm-mst", seconds=80.0), a_run(epsilon="10")]
    head, _, *lines = rows(report.markdown(summaries(runs)))
    assert head[-1] == "dpmm-mst / seconds"
    assert [line[-1] for line in lines] == ["40.0", "1.0", ""]


def test_what_was_not_measured_stays_empty_and_a_failure_is_told():
    text = report.markdown(summaries([a_run(seconds=None, pairs=None, failure="out of memory")]))
    assert rows(text)[2][:4] == ["mst", "1", "0 (some failed)", ""]
    assert "- mst, epsilon 1: out of memory" in text


def test_the_load_that_seconds_were_measured_under_is_told():
    runs = [a_run(load=0.4), a_run(seed=1, load=2.31), a_run(seed=2, failure="late", load=9.0)]
    text = report.markdown(summaries(runs))
    assert "Highest load average when a run began: 2.3." in text


def test_every_row_has_a_cell_for_each_head():
    text = report.markdown(summaries([a_run(), a_run("resampled-rows", "", seconds=0.0)]))
    assert len({len(row) for row in rows(text)}) == 1


def test_a_picture_has_a_line_for_each_implementation_and_a_label_for_each_epsilon():
    runs = [a_run(), a_run(epsilon="10", pairs=0.02), a_run("a<b", "0.1", seconds=70.0)]
    drawn = ElementTree.fromstring(picture.svg(summaries(runs), "adult"))
    lines = [line.get("points").split() for line in drawn.iter(f"{SVG}polyline")]
    assert [len(points) for points in lines] == [2, 1]
    texts = [text.text for text in drawn.iter(f"{SVG}text")]
    assert {"mst", "a<b", "ε 0.1", "ε 1", "ε 10"} <= set(texts)


def test_quicker_is_further_left_and_nearer_is_further_down():
    runs = [a_run(seconds=1.0, pairs=0.1), a_run(epsilon="10", seconds=9.0, pairs=0.01)]
    drawn = ElementTree.fromstring(picture.svg(summaries(runs), "adult"))
    (line,) = drawn.iter(f"{SVG}polyline")
    (x1, y1), (x2, y2) = (map(float, point.split(",")) for point in line.get("points").split())
    assert x1 < x2
    assert y1 < y2


def test_references_and_failed_runs_are_not_drawn():
    runs = [a_run(epsilon=""), a_run(seconds=None, pairs=None, failure="late")]
    assert picture.svg(summaries(runs), "adult") is None


def test_ticks_are_round_numbers_on_the_axis():
    axis = picture.Axis(0.8, 25, 0, 100)
    assert axis.ticks() == pytest.approx([1, 2, 5, 10, 20])
    assert axis.pixel(0.8) == 0
    assert axis.pixel(25) == pytest.approx(100)

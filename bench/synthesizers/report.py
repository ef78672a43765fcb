"""The Markdown tables of the bench."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from bench.synthesizers.results import Summary

YARDSTICK = "dpmm-mst"
"""Whose seconds the others' are compared with, at the same epsilon."""

FORMATS: Mapping[str, tuple[str, str]] = {
    "seconds": ("seconds", ".1f"),
    "peak_mb": ("peak MB", ",.0f"),
    "child_mb": ("child's part", ",.0f"),
    "cap_s": ("cap, seconds", ",.0f"),
    "cap_mb": ("cap, MB", ",.0f"),
    "one_way": ("1-way", ".4f"),
    "pairs": ("pairs", ".4f"),
    "triples": ("triples", ".4f"),
    "k_marginal": ("k-marginal", ".0f"),
    "auc": ("AUC", ".3f"),
}
UNKNOWN = ""


def markdown(summaries: Iterable[Summary]) -> str:
    """A section with a table for each table of data; a failed cell names the reason below."""
    by_table: dict[str, list[Summary]] = {}
    for summary in summaries:
        by_table.setdefault(summary.table, []).append(summary)
    return "\n".join(_section(name, group) for name, group in by_table.items())


def _section(name: str, group: Sequence[Summary]) -> str:
    yardstick = {
        each.epsilon: each.means["seconds"] for each in group if each.implementation == YARDSTICK
    }
    heads = [
        "implementation",
        "epsilon",
        "runs",
        *(head for head, _ in FORMATS.values()),
        f"{YARDSTICK} / seconds",
    ]
    lines = [f"## {name}", "", _row(heads), "|" + "---|" * len(heads)]
    lines += [_row(_cells(each, yardstick)) for each in group]
    failures = [
        f"- {each.implementation}, epsilon {each.epsilon}: {reason}"
        for each in group
        for reason in each.failures
    ]
    load = max(each.highest_load for each in group)
    lines += ["", f"Highest load average when a run began: {load:.1f}."]
    return "\n".join([*lines, *(["", "Failed:", "", *failures] if failures else []), ""])


def _cells(summary: Summary, yardstick: Mapping[str, float | None]) -> list[str]:
    runs = str(summary.runs) if not summary.failures else f"{summary.runs} (some failed)"
    told = [summary.implementation, summary.epsilon, runs]
    for measure, (_, form) in FORMATS.items():
        value = summary.means[measure]
        told.append(UNKNOWN if value is None else format(value, form))
    return [*told, _ratio(yardstick.get(summary.epsilon), summary.means["seconds"])]


def _ratio(theirs: float | None, ours: float | None) -> str:
    return f"{theirs / ours:.1f}" if theirs and ours else UNKNOWN


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"

"""What a statement says in words beside its figures."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from app.engine.privacy.queries import Contribution
from app.engine.statements.evidence import Answers, Evidence
from app.engine.statements.sample import SampleRows
from app.engine.statements.statement import CONFIDENCE, Basis, StatedDistance

NO_COUNTS = "no question of the release counted this column"
NO_PAIR = (
    "no question of the release counted this pair; an interval holds what its columns and the"
    " method's own questions say"
)
TOO_MANY_CELLS = "counted in more cells than are compared here"
OWN_BOUND = "the method measured how far its model is off, and not the counts themselves"


def of_rule(rule: Contribution) -> str | None:
    """What was counted, where an entity does not count with all its rows."""
    match rule.rule:
        case "distinct":
            return f"each entity counts once in each of at most {rule.limit} cells that it has"
        case "one":
            return "each entity counts once, in its most frequent cell"
        case "clipped":
            return f"the counts of each entity are scaled down to norm {rule.norm:g}"
    return None


def of_numbers(evidence: Evidence | None) -> tuple[Basis, str | None]:
    """The basis of a figure of rows, and why it has no interval if it has none."""
    if evidence is None:
        return "implied by the model", "no question of the release counted this"
    if not evidence.counts_rows:
        return (
            "implied by the model",
            "the noisy counts are not of rows: " + str(of_rule(evidence.noisy.rule)),
        )
    return "measured", None


def of_release(
    answers: Answers,
    columns: Mapping[str, Evidence | None],
    sample: SampleRows,
    pairs: Sequence[StatedDistance],
) -> Iterator[str]:
    """What a reader has to know of all figures."""
    yield f"Each interval holds by itself with {CONFIDENCE:.0%} confidence, all together with less."
    yield (
        "Distances are total variation distances between the first sample and the private table,"
        " over the cells that were counted. A further sample differs from the first by about"
        " `sampling_error`."
    )
    if answers.unit.kind == "entity":
        yield (
            f"At most {answers.unit.max_rows} rows of each entity count. Rows beyond that are in no"
            " noisy answer, so nothing is stated of them."
        )
        yield from _taken_away(answers, columns)
    if len(pairs) and any(each.basis != "measured" for each in pairs):
        yield (
            "A pair that was not measured follows from the model: how its columns depend on each"
            " other was not compared with the private table."
        )
    if sample.rows < sample.made:
        yield f"Compared are {sample.rows} of the sample's {sample.made} rows, evenly chosen."


def _taken_away(answers: Answers, columns: Mapping[str, Evidence | None]) -> Iterator[str]:
    """How much of the rows' weight remains under each rule, from noisy totals."""
    rows = answers.rows()
    if rows is None or rows[0] <= 2 * math.sqrt(rows[1]):
        return
    by_rule: dict[Contribution, list[float]] = {}
    for each in columns.values():
        if each is not None and not each.counts_rows:
            share = each.noisy.total[0] / rows[0]
            by_rule.setdefault(each.noisy.rule, []).append(min(max(share, 0.0), 1.0))
    for rule, shares in by_rule.items():
        low, high = (f"{end:.0%}" for end in (min(shares), max(shares)))
        kept = low if low == high else f"{low} to {high}, by column,"
        yield (
            f"Under the rule `{rule.rule}` ({of_rule(rule)}) about {kept} of the rows' weight"
            " remained, by noisy totals. Entities with many rows weigh less in these distances than"
            " in the table; the sample is counted in the same way."
        )

"""Turns the facts of a release into HTML: one file that needs nothing from anywhere."""

from __future__ import annotations

from collections import Counter
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from app.engine.statements import Pictures
from app.reports.page import heat
from app.reports.page.facts import Facts

# The page runs no script and loads nothing.
CSP = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'"
# Above these, a heat map is a PNG: one map alone, and all of a page together.
MOST_SVG_CELLS = 2000
_MOST_SVG_CELLS_IN_ALL = 16_000
# Cells in the table behind a heat map, so that a page of many pairs stays small.
_LISTED_CELLS = 10
_VERDICTS = ("good", "usable", "weak", "not measured")

_templates = Environment(
    loader=PackageLoader("app.reports.page"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_templates.globals.update(shades=heat.SHADES, zip=zip)


def render(facts: Facts) -> str:
    """The page; the same facts always give the same text."""
    statement = facts.statement or {"columns": [], "pairs": [], "numbers": [], "notes": []}
    verdicts = Counter(each["verdict"] for each in statement["columns"])
    pair_verdicts = Counter(each["verdict"] for each in statement["pairs"])
    return _templates.get_template("report.html").render(
        facts=facts,
        statement=statement,
        columns=_columns(facts),
        pairs=_pairs(facts),
        counts=[(word, verdicts[word], pair_verdicts[word]) for word in _VERDICTS],
        associations=_associations(facts.pictures),
        correlations=[each for each in statement["numbers"] if len(each["columns"]) == 2],
    )


def _columns(facts: Facts) -> list[dict[str, Any]]:
    stated = {each["column"]: each for each in (facts.statement or {}).get("columns", ())}
    numbers: dict[str, list[Any]] = {}
    for each in (facts.statement or {}).get("numbers", ()):
        if len(each["columns"]) == 1:
            numbers.setdefault(each["columns"][0], []).append(each)
    pictures = facts.pictures.columns if facts.pictures is not None else ()
    shown = []
    for picture in pictures:
        reach = max([*picture.synthetic, *(picture.measured or ()), 1e-9])
        shown.append(
            {
                "name": picture.column,
                "picture": picture,
                "reach": reach,
                "stated": stated.get(picture.column),
                "numbers": numbers.get(picture.column, []),
            }
        )
    return shown


def _pairs(facts: Facts) -> list[dict[str, Any]]:
    if facts.pictures is None:
        return []
    stated = {tuple(each["columns"]): each for each in (facts.statement or {}).get("pairs", ())}
    pictures = facts.pictures.pairs
    in_all = sum(len(each.rows) * len(each.across) for each in pictures)
    shown = []
    for picture in pictures:
        most = max(max(map(max, picture.synthetic)), max(map(max, picture.measured)))
        maps = [heat.levels(shares, most) for shares in (picture.synthetic, picture.measured)]
        as_svg = maps[0].size <= MOST_SVG_CELLS and in_all <= _MOST_SVG_CELLS_IN_ALL
        shown.append(
            {
                "columns": picture.columns,
                "picture": picture,
                "most": most,
                "stated": stated.get(tuple(picture.columns)),
                "maps": [
                    {"paths": list(heat.paths(each)), "png": None}
                    if as_svg
                    else {"paths": [], "png": heat.png(each)}
                    for each in maps
                ],
                "largest": heat.largest(
                    picture.rows,
                    picture.across,
                    picture.synthetic,
                    picture.measured,
                    most=_LISTED_CELLS,
                ),
            }
        )
    return shown


def _associations(pictures: Pictures | None) -> dict[str, Any] | None:
    if pictures is None or len(pictures.columns) < 2:
        return None
    names = [each.column for each in pictures.columns]
    return {
        "names": names,
        "values": pictures.associations,
        "paths": list(heat.paths(heat.levels(pictures.associations, 1.0))),
    }

"""Tables as statistics offices have them, through the whole service.

    python -m bench.real_tables [census] [undeclared] [purchases] [--runs N] [--systems auto mst]

census: the Massachusetts excerpt with nulls, numbers and codes as they are, its dictionary
imported from NIST's JSON; NIST k-marginal score at epsilon 1 and 10, delta 1e-7.
undeclared: incidents with their neighbourhoods found, Adult with private bins, at (1, 1e-6) and
(10, 1e-6): what the certificate says was measured and its cost, next to the truth.
purchases: 1.47 million rows of 2,469 households (`max_rows` 200) at (2, 1e-6), by `auto` unless
others are named; seconds, memory, and how far households are from the real ones, as made and with
each row dealt to a household at random.

Reads the tables below HALFTONE_SHARED_DATA (default `../shared/data`).
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from bench import shared_data
from bench.real_tables import census, purchases, undeclared

PARTS = ("census", "undeclared", "purchases")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.real_tables")
    parser.add_argument(
        "parts",
        nargs="*",
        choices=[*PARTS, []],
        metavar="PART",
        help=f"{', '.join(PARTS)}; all if none is named",
    )
    parser.add_argument("--runs", type=int, default=1, help="releases of each kind")
    parser.add_argument(
        "--systems", nargs="+", help="of census (auto, mst, aim) and of purchases (auto)"
    )
    asked = parser.parse_args()
    shared_data.must_be_there()
    for part in asked.parts or PARTS:
        for line in _lines(part, asked):
            print(line, flush=True)


def _lines(part: str, asked: argparse.Namespace) -> Iterator[str]:
    if part == "census":
        return census.report(asked.runs, asked.systems or census.SYNTHESIZERS)
    if part == "purchases":
        return purchases.report(asked.runs, asked.systems or purchases.SYNTHESIZERS)
    return undeclared.report(asked.runs)


if __name__ == "__main__":
    main()

"""Tables as statistics offices have them, through the whole service.

    python -m bench.real_tables [census] [undeclared] [purchases] [--runs N]

census: the Massachusetts excerpt with nulls, numbers and codes as they are, its dictionary
imported from NIST's JSON; NIST k-marginal score at epsilon 1 and 10, delta 1e-7.
undeclared: incidents with their neighbourhoods found, Adult with bins bought, at (1, 1e-6) and
(10, 1e-6): what the certificate says was bought and its cost, beside the truth.
purchases: 1.47 million rows of 2,469 households (`max_rows` 200) by `auto` at (2, 1e-6); seconds
and memory. Reads the tables below HALFTONE_SHARED_DATA (default `../shared/data`).
"""

from __future__ import annotations

import argparse

from bench.real_tables import census, purchases, undeclared

PARTS = {
    "census": census.report,
    "undeclared": undeclared.report,
    "purchases": purchases.report,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.real_tables")
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="all if none is named")
    parser.add_argument("--runs", type=int, default=1, help="releases of each kind")
    asked = parser.parse_args()
    for part in asked.parts or PARTS:
        for line in PARTS[part](asked.runs):
            print(line, flush=True)


if __name__ == "__main__":
    main()

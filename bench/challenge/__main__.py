"""Scores every system as its challenge did, and prints Markdown tables.

    python -m bench.challenge [trips] [incidents] [--runs N] [--only SYSTEM ...]

Trips: K, P, H and their mean (Sprint 3) at epsilon 1 and 10, delta 2.5e-5. Incidents: the map
score (Sprint 1) of `histogram`. Rows go to standard error as they come.
"""

from __future__ import annotations

import argparse

from bench import shared_data
from bench.challenge import incidents, taxi

PARTS = ("trips", "incidents")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.challenge")
    parser.add_argument("parts", nargs="*", help="trips, incidents; both if none is named")
    parser.add_argument("--runs", type=int, default=1, help="runs whose scores are averaged")
    parser.add_argument("--only", nargs="*", help="names of systems")
    asked = parser.parse_args()
    shared_data.must_be_there()
    parts = set(asked.parts) or set(PARTS)
    systems = {entrant.system for entrant in taxi.ENTRANTS}
    for names, known in ((parts, PARTS), (asked.only or (), systems)):
        if unknown := set(names) - set(known):
            parser.error(
                f"there is no {', '.join(sorted(unknown))} among {', '.join(sorted(known))}"
            )
    if "trips" in parts:
        print(taxi.table(asked.runs, asked.only))
    if "incidents" in parts:
        print(incidents.table(asked.runs))


if __name__ == "__main__":
    main()

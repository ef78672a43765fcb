"""Runs the package pac-synth, in the virtualenv that has it, on a table of small codes.

    python peer.py TABLE.csv OUT.csv EPSILON DELTA LENGTH

Every cell becomes a text, so that no zero is taken for nothing. Prints seconds as JSON.
"""

import csv
import json
import sys
import time

import pacsynth


def main(table: str, out: str, epsilon: str, delta: str, length: str) -> None:
    with open(table, newline="") as file:
        header, *rows = csv.reader(file)
    data = pacsynth.Dataset([header, *([f"v{cell}" for cell in row] for row in rows)])
    form = pacsynth.DpAggregateSeededParametersBuilder()
    form = form.reporting_length(int(length)).epsilon(float(epsilon)).delta(float(delta))
    synthesizer = pacsynth.DpAggregateSeededSynthesizer(form.build())
    started = time.perf_counter()
    synthesizer.fit(data)
    aggregated = time.perf_counter()
    made = synthesizer.sample()
    done = time.perf_counter()
    with open(out, "w", newline="") as file:
        csv.writer(file).writerows([[cell.removeprefix("v") for cell in row] for row in made])
    print(json.dumps({"aggregate_s": aggregated - started, "synthesise_s": done - aggregated}))


if __name__ == "__main__":
    main(*sys.argv[1:])

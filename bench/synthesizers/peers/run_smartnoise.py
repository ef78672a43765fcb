"""Runs a method of the package smartnoise-synth, in the virtualenv that has it.

    python run_smartnoise.py METHOD TABLE.csv CELLS.json OUT.csv EPSILON DELTA SEED

METHOD is AIM or MST, each with its own defaults. The table holds codes; its transformer learns
the public number of codes of each column, so that nothing is read off the table.
"""

import json
import sys

import numpy as np
import pandas as pd
from snsynth.aim import AIMSynthesizer
from snsynth.mst import MSTSynthesizer
from snsynth.transform import LabelTransformer, TableTransformer

METHODS = {"AIM": AIMSynthesizer, "MST": MSTSynthesizer}


def transformer(cells: dict[str, int]) -> TableTransformer:
    """Maps codes to themselves; rows that hold every declared code make all of them known."""
    every = range(max(cells.values()))
    domain = pd.DataFrame(
        {name: [min(code, size - 1) for code in every] for name, size in cells.items()}
    )
    made = TableTransformer([LabelTransformer(nullable=False) for _ in cells])
    made.fit(domain)
    return made


def main(
    method: str, table: str, cells: str, out: str, epsilon: str, delta: str, seed: str
) -> None:
    np.random.seed(int(seed))
    rows = pd.read_csv(table)
    with open(cells) as file:
        domain = json.load(file)
    synthesizer = METHODS[method](epsilon=float(epsilon), delta=float(delta))
    synthesizer.fit(rows, transformer=transformer({name: domain[name] for name in rows.columns}))
    made = synthesizer.sample(len(rows))
    pd.DataFrame(made)[list(rows.columns)].to_csv(out, index=False)


if __name__ == "__main__":
    main(*sys.argv[1:])

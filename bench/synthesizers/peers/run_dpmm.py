"""Runs a method of the package dpmm, in the virtualenv that has it.

    python run_dpmm.py METHOD TABLE.csv CELLS.json OUT.csv EPSILON DELTA SEED

METHOD is AIM, MST or PrivBayes, each with its own defaults. The table holds codes; the public
number of codes of each column is given, so that nothing is read off the table.
"""

import json
import sys

import pandas as pd
from dpmm.models.aim import AIMGM
from dpmm.models.mst import MSTGM
from dpmm.models.priv_bayes import PrivBayesGM
from numpy.random import RandomState

METHODS = {"AIM": AIMGM, "MST": MSTGM, "PrivBayes": PrivBayesGM}


def main(
    method: str, table: str, cells: str, out: str, epsilon: str, delta: str, seed: str
) -> None:
    rows = pd.read_csv(table)
    with open(cells) as file:
        domain = json.load(file)
    model = METHODS[method](epsilon=float(epsilon), delta=float(delta), n_jobs=1)
    model.set_random_state(RandomState(int(seed)))
    model.generator.set_random_state(RandomState(int(seed)))
    model.set_domain(domain)
    model.fit(rows)
    model.generate(n_records=len(rows))[list(rows.columns)].to_csv(out, index=False)


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Records the golden runs anew: `python tests/golden/record.py [part of a request's name ...]`.

Do so only for a change that is meant to alter what a method asks or makes, and read the diff of
`records/` before it is committed: it is the list of what changed.
"""

from __future__ import annotations

import sys
import time

from golden_requests import REQUESTS
from golden_runs import run, write_model, write_record


def main(parts: list[str]) -> None:
    for request in REQUESTS:
        if not parts or any(part in request.name for part in parts):
            begun = time.process_time()
            made = run(request)
            write_record(request.name, made.record)
            write_model(request, made)
            spent = time.process_time() - begun
            asked = len(made.record["questions"])
            print(f"{request.name}: {asked} questions, {len(made.model)} bytes, {spent:.2f} s")


if __name__ == "__main__":
    main(sys.argv[1:])

"""Records anew: `python tests/golden/record.py [checks] [part of a request's name ...]`.

`checks` records the preflights and their messages; without an argument everything is recorded.

Do so only for a change that is meant to alter what a method asks or makes, and read the diff of
`records/` before it is committed: it is the list of what changed.
"""

from __future__ import annotations

import sys
import time

from golden_checks import CHECKS, FORMS, ROW_CHECKS, refused, told, told_of_rows
from golden_records import write_record
from golden_requests import REQUESTS
from golden_runs import run, write_model


def record_checks() -> None:
    found = {asked.name: told(asked) for asked in CHECKS}
    write_record("checks", {name: numbers for name, (numbers, _) in found.items()})
    write_record("messages", {name: said for name, (_, said) in found.items() if said})
    forms = [[method, dict(form), refused(method, form)] for method, form in FORMS]
    write_record("forms", forms)
    write_record("public_rows", {asked.name: told_of_rows(asked) for asked in ROW_CHECKS})
    print(f"checks: {len(found)}, of which {sum(bool(said) for _, said in found.values())} refuse")


def main(parts: list[str]) -> None:
    if not parts or "checks" in parts:
        record_checks()
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

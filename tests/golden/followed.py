"""Which files a fit really goes through: those of the engine whose functions it calls.

    python tests/golden/followed.py mst

Printed for each of the method's recorded requests, without the rooms that any method calls (schema,
privacy, inference) and the loader of compiled loops.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType

from golden_requests import REQUESTS, Request
from golden_runs import quiet
from golden_session import RecordingSession, seeded_noise
from golden_tables import private_source, public_table

import app.engine
from app.engine.catalog import registry

ENGINE = Path(app.engine.__file__).parent
NOT_FOLLOWED = {"schema", "privacy", "inference", "compiled.py", "machine_code.py"}


def followed(request: Request) -> list[str]:
    """The files of `app/engine`, in order."""
    synthesizer = registry.builtin(request.method)
    schema, unit = request.schema, request.unit
    params = synthesizer.Params.model_validate(request.form)
    public = public_table(schema, unit) if request.public else None
    seen: set[str] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        # A module is imported late here and there: its own code is no step of the fit.
        if event == "call" and frame.f_code.co_name not in ("<module>", "<lambda>"):
            seen.add(frame.f_code.co_filename)

    with seeded_noise(request.seed) as noise:
        session = RecordingSession(private_source(schema, unit), request.loss, noise)
        sys.setprofile(note)
        try:
            synthesizer.fit(session, params, public, request.seed, quiet)
        finally:
            sys.setprofile(None)
    inside = [Path(name) for name in seen if Path(name).is_relative_to(ENGINE)]
    files = sorted(str(path.relative_to(ENGINE)) for path in inside)
    return [name for name in files if Path(name).parts[0] not in NOT_FOLLOWED]


def main(method: str) -> None:
    for request in REQUESTS:
        if request.method == method:
            files = followed(request)
            print(f"{request.name}: {len(files)}", *files, sep="\n  ")


if __name__ == "__main__":
    main(sys.argv[1])

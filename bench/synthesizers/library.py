"""Halftone's synthesizers in this process, on a session of the library: no server, no child."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import ClassVar

from app.engine.catalog import registry
from app.engine.privacy.library import open_session
from app.engine.table import generator
from bench.synthesizers.guarantee import guarantee
from bench.synthesizers.implementations import Made, RunFailed
from bench.synthesizers.tables import CodedTable


@dataclass(frozen=True, slots=True)
class InProcess:
    """Seconds are those of fitting and of drawing as many rows as the noisy count says."""

    synthesizer: str
    group: ClassVar[str] = "halftone"
    private: ClassVar[bool] = True

    @property
    def name(self) -> str:
        return f"{self.synthesizer} (library)"

    def make(self, table: CodedTable, epsilon: str, seed: int) -> Made:
        synthesizer = registry.builtin(self.synthesizer)
        session = open_session(
            table.used, table.schema, table.unit, guarantee(epsilon), entities=table.entities
        )
        use = synthesizer.uses_public
        public = table.public if use != "no" else None
        if public is None and use == "required":
            raise RunFailed("the table comes with no public table")
        started = time.perf_counter()
        model = synthesizer.fit(session, synthesizer.Params(), public, seed, _silent)
        codes = model.sample(None, generator(seed)).codes
        return Made(codes, time.perf_counter() - started)


def _silent(fraction: float, stage: str) -> None:
    del fraction, stage

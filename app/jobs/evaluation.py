"""Asking the kernel how far a release's rows are from the private ones.

The rows are public: they were released. Their marginals become the references of one question of
scores, after the number of rows. The questions go through the same pipe as a synthesizer's, so
every answer is in the journal before it is used, and a run after a lost worker asks the same again.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from app.engine.marginals import Marginal
from app.engine.privacy.journal import Journal
from app.engine.privacy.queries import Candidate, Count, SessionError
from app.engine.privacy.session import (
    Admission,
    Answering,
    ProgressListener,
    RemoteSession,
    SessionServer,
)
from app.engine.privacy.session_base import Session
from app.engine.privacy.wire import FrameError
from app.engine.table import Table
from app.releases import evaluations

A = TypeVar("A", bound=Admission)


class SyntheticMarginals:
    """Counts of the rows of a sample that comes in parts."""

    def __init__(self, marginals: Sequence[Marginal]) -> None:
        self.marginals = tuple(marginals)
        self._counts = [np.zeros(each.cells, dtype=np.int64) for each in self.marginals]

    def see(self, part: Table) -> None:
        for marginal, counts in zip(self.marginals, self._counts, strict=True):
            cells = np.zeros(part.rows, dtype=np.int64)
            for name, grouping in marginal.groupings.items():
                cells = cells * grouping.cells + grouping.cell_of(part.codes[name])
            counts += np.bincount(cells, minlength=len(counts))

    def references(self, rows: float) -> list[NDArray[np.float64]]:
        """The shares of each marginal's cells times `rows`, in the marginal's shape."""
        made = []
        for marginal, counts in zip(self.marginals, self._counts, strict=True):
            shape = [grouping.cells for grouping in marginal.groupings.values()]
            in_rows = counts.astype(np.float64) * (rows / max(int(counts.sum()), 1))
            made.append(in_rows.reshape(shape))
        return made


def measure(
    kernel: Answering[A],
    journal: Journal,
    synthetic: SyntheticMarginals,
    on_progress: ProgressListener,
) -> None:
    """Have the kernel answer both questions; the answers are in the journal afterwards."""
    ours, theirs = socket.socketpair()
    asking = threading.Thread(target=_ask, args=(theirs, synthetic), name="evaluation")
    server = SessionServer(ours, kernel, journal, on_progress)
    # Either end closes its socket however it ends, so that the other never waits for it.
    with ours:
        asking.start()
        server.run()
    asking.join()


def _ask(connection: socket.socket, synthetic: SyntheticMarginals) -> None:
    # `FrameError`: the other end has gone, and its own error says why.
    with connection, contextlib.suppress(FrameError):
        session = RemoteSession(connection)
        try:
            _measure(session, synthetic)
        except SessionError as error:
            session.fail(str(error))
        else:
            session.finish(b"")


def _measure(session: Session, synthetic: SyntheticMarginals) -> None:
    for_total, for_distances = session.allowance.split(evaluations.PARTS)
    (total,) = session.count((Count(),), for_total)
    counts = evaluations.counts_of(synthetic.marginals)
    references = synthetic.references(evaluations.size(total))
    candidates = [
        Candidate(count, (reference,)) for count, reference in zip(counts, references, strict=True)
    ]
    session.scores(candidates, for_distances)

"""The certificate of a release as readers get it: what the run stored, with names and hashes.

What the run stored never changes, and neither does what is added here: so the certificate of a
release and of the same samples is always the same, up to its signature after a change of the key.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy.orm import Session

from app.database import format_time
from app.datasets.models import DatasetRow
from app.ledger import proof
from app.releases import repository, results, samples
from app.releases.models import ReleaseRow, SampleRow
from app.signing.canonical import sha256_of

FORMAT = "halftone-certificate-1"
# What the first version stored has no name of its dataset, and may lack a field that came later.
_STORED = (
    "unit",
    "neighbours",
    "guarantee",
    "accountant",
    "charge",
    "session",
    "mechanisms",
    "synthesizer",
    "assurance",
    "ledger_row_hash",
    "ledger_signature",
    "versions",
)


def certificate(
    session: Session,
    release: ReleaseRow,
    dataset: DatasetRow,
    chosen: Sequence[SampleRow] | None = None,
    *,
    shows_totals: bool = False,
) -> dict[str, Any]:
    """The certificate that names these samples; by default the first one, if it is still there.

    `shows_totals`: with the release's position in the budget. Raises `NotReady` or `Conflict`.
    """
    stored = results.certificate(release)
    if chosen is None:
        chosen = repository.made_samples(session, release.id, [samples.first_id(release.id)])
    return {
        "format": FORMAT,
        "release": {
            "id": release.id,
            "requested_at": format_time(release.created_at),
            "made_at": None if release.finished_at is None else format_time(release.finished_at),
        },
        "dataset": {
            **stored.get("dataset", {"id": dataset.id, "name": dataset.name}),
            "dictionary_sha256": sha256_of(dataset.schema),
        },
        "samples": [
            {
                "id": sample.id,
                "kind": sample.kind,
                "rows": sample.rows,
                "parquet_sha256": sample.content_sha256,
            }
            for sample in chosen
        ],
        "in_words": _in_words(stored),
        **{name: stored[name] for name in _STORED if name in stored},
        "position": (
            proof.position(session, release.account_id, release.ledger_sequence)
            if shows_totals
            else None
        ),
    }


def _in_words(stored: Mapping[str, Any]) -> str:
    """The unit, adjacency and guarantee in sentences."""
    guarantee = stored.get("guarantee", {})
    protected = (
        "one row" if stored.get("unit", {}).get("kind") == "row" else "all rows of one entity"
    )
    delta = guarantee.get("delta", "0")
    if "epsilon" in guarantee:
        bound = (
            f"at most e^{guarantee['epsilon']} times as likely with a table as with an adjacent one"
        )
        bound += "" if delta == "0" else f", plus {delta}"
    else:
        bound = (
            f"told apart, between adjacent tables, by at most rho = {guarantee.get('rho')}"
            " (zero-concentrated differential privacy)"
        )
    return (
        f"It protects {protected}: adjacent tables differ by adding or removing {protected}. Each"
        f" outcome of this release is {bound}. The guarantee is of this release alone; what the"
        " same people are in besides adds up."
    )

"""What a release publishes in addition to its samples, as the API page describes it.

Certificates are sent as they were stored, and tables as they are read: neither passes through
these models.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field


class Sensitivity(BaseModel):
    """How far one privacy unit can move the exact counts."""

    l1: float | None = Field(description="In the sum of absolute differences.")
    l2: float | None = Field(description="In the root of the sum of squared differences.")


class AxisOut(BaseModel):
    """One column of a noisy table."""

    name: str = Field(description="Name of the column.")
    cells: list[str] = Field(description="Labels of its cells, in the order of `values`.")


class CandidateOut(BaseModel):
    """One table whose distance from a reference was measured.

    The reference was made of earlier answers; it is not published.
    """

    columns: list[str] = Field(description="Columns of the table; none: a total.")
    contribution: dict[str, Any] = Field(description="How much of each unit counts.")
    reference_total: float = Field(description="The counts that its reference sums to.")
    standard_error: float = Field(description="Standard deviation of its value's noise.")


class QuantileOut(BaseModel):
    """A quantile, drawn from a public list of points; nearer points are more likely."""

    of: str = Field(
        description="Name of the column; or, where `number` of `contribution` says so, the `rows`"
        " or `tuples` of each unit."
    )
    q: float = Field(description="Which quantile: 0.5 is the median.")
    point: str = Field(description="The point that was drawn.")
    points: int = Field(description="How many points there were to draw from.")
    rank_error: float = Field(
        description="With 95 % confidence, the most values that lie between the point and the"
        " quantile, beyond what the best point of the list would leave."
    )


class MeasurementOut(BaseModel):
    """One noisy answer that the release measured."""

    question: int = Field(
        description="Number of the question that it answers, from 0, as in the certificate."
    )
    loss: dict[str, str] = Field(description="What it cost of the session's loss.")
    columns: list[AxisOut] = Field(description="Its columns; none: a total, scores or a quantile.")
    values: list[int] = Field(
        description="Noisy counts or sums, flat, in C order of `columns`; of scores, the noisy"
        " distance of each of `candidates` from its reference: the sum, over its cells, of"
        " absolute differences. A quantile has none."
    )
    noise: str = Field(
        description="`discrete gaussian` or `discrete laplace`; of a quantile `gumbel` or"
        " `permute-and-flip`."
    )
    scale: float = Field(
        description="Sigma, or b of Laplace noise, in counts; of scores, the smallest; of a"
        " quantile, in numbers below it."
    )
    standard_error: float | None = Field(
        description="Standard deviation of each value's noise; of scores, the smallest; null for"
        " a quantile, which has a `rank_error`."
    )
    sensitivity: Sensitivity = Field(description="What the scale was chosen for.")
    contribution: dict[str, Any] = Field(
        description="How much of each unit counts: a `rule`, with `limit` or `norm` where it"
        " takes one; and what is counted, where that is not cells of `columns`: `function`,"
        " `sum_of`, or `tuples` of a `length`. Of scores, how many `scores` there are."
    )
    listed: list[dict[str, str]] | None = Field(
        None,
        description="Of tuples and discovered keys: the cell of each column that a value is about.",
    )
    threshold: int | None = Field(
        None, description="Of discovered keys: the least noisy count that was kept."
    )
    step: float | None = Field(
        None,
        description="Of sums and scores: what 1 of `values`, `scale`, `standard_error` and"
        " `sensitivity` stands for.",
    )
    candidates: list[CandidateOut] | None = Field(
        None, description="Of scores: what each of `values` is about."
    )
    quantile: QuantileOut | None = Field(None, description="Of a quantile: what was drawn.")


class MeasurementsOut(BaseModel):
    """Every noisy answer of a release. Reading them costs nothing more."""

    release_id: str = Field(description="Id of the release.")
    measurements: list[MeasurementOut] = Field(description="In the order they were measured.")


class MechanismOut(BaseModel):
    """One use of noise: what it looked at, how far one unit moves it, what it cost."""

    question: int = Field(description="Number of the question that it answered, from 0.")
    mechanism: str = Field(
        description="`histogram`, `clipped sum`, `counts of tuples`, a quantile, key discovery,"
        " scores of candidates, or what selected among them."
    )
    columns: list[list[str]] = Field(description="Columns of each table that it looked at.")
    contributions: list[dict[str, Any]] = Field(description="How much of each unit counted.")
    noise: str = Field(description="Law of the noise.")
    scale: float | None = Field(description="Scale of the noise, in counts.")
    sensitivity: Sensitivity = Field(description="How far one unit moves what was measured.")
    loss: dict[str, str] = Field(description="Its share of the session's loss.")


class SessionOut(BaseModel):
    """The privacy loss that the synthesizer could spend, and did."""

    allowed: dict[str, str] = Field(description="What the session was opened with.")
    spent: dict[str, str] = Field(description="What its questions cost, at most `allowed`.")


class CertifiedRelease(BaseModel):
    """The release that a certificate is of."""

    id: str = Field(description="Id of the release.")
    requested_at: str = Field(description="When it was requested (UTC).")
    made_at: str | None = Field(description="When it was made (UTC).")


class CertifiedDataset(BaseModel):
    """The dataset that a release was made from."""

    id: str = Field(description="Id of the dataset.")
    name: str = Field(description="Its name when the release was made.")
    dictionary_sha256: str = Field(
        description="SHA-256 of its data dictionary in canonical form (as the signature's)."
    )


class CertifiedSample(BaseModel):
    """A synthetic table of the release."""

    id: str = Field(description="Id of the sample.")
    kind: Literal["rows", "counts"] = Field(description="Rows, or counts of cells.")
    rows: int | None = Field(description="How many rows it has.")
    parquet_sha256: str | None = Field(description="SHA-256 of its Parquet form.")


class Position(BaseModel):
    """Where the release stood in the budget of its account."""

    spent_after: dict[str, str] = Field(description="The account's total after the charge.")
    cap: dict[str, str] = Field(description="The account's cap at that moment.")


class Signature(BaseModel):
    """By the service's signing key, over the canonical form of all the rest of the document."""

    algorithm: Literal["Ed25519"] = Field(description="Always `Ed25519`.")
    key_id: str = Field(description="The key, as `/v1/keys/signing` lists it.")
    public_key: str = Field(description="Its public half in base64, for convenience.")
    value: str = Field(description="The signature, 64 bytes in base64.")


class CertificateOut(BaseModel):
    """What a release can show for its privacy, from public facts and its own answers."""

    format: str = Field(description="`halftone-certificate-1`.")
    release: CertifiedRelease = Field(description="What was certified.")
    dataset: CertifiedDataset = Field(description="What it was made from.")
    samples: list[CertifiedSample] = Field(
        description="The first sample, if it still exists; in a bundle, those that it holds."
    )
    in_words: str = Field(description="Unit, adjacency and guarantee in sentences.")
    position: Position | None = Field(
        description="Null unless it was asked for by someone who sees the totals."
    )
    signature: Signature = Field(description="Who vouches for it.")
    unit: dict[str, Any] = Field(description="The privacy unit: who is protected.")
    neighbours: str = Field(
        description="Adjacent datasets: the pairs that the guarantee makes hard to distinguish."
    )
    guarantee: dict[str, str] = Field(description="As requested.")
    accountant: Literal["basic", "zcdp"] = Field(description="Of the account it was charged to.")
    charge: dict[str, str] = Field(description="What the account booked, in its own terms.")
    session: SessionOut = Field(description="The loss of the run itself.")
    mechanisms: list[MechanismOut] = Field(
        description="Every use of noise. A divided loss rounds down, by less than 1e-12 a part, so"
        " these may add up to a little less than was charged, and never to more."
    )
    synthesizer: dict[str, Any] = Field(
        description="Name, version and params; the public dataset, if one was named."
    )
    assurance: Literal["enforced", "declared"] = Field(
        description="`enforced`: it learned only what the kernel answered. `declared`: it read the"
        " bounded table, and its author vouches for its privacy."
    )
    ledger_row_hash: str = Field(description="Hash of the ledger entry of the charge.")
    ledger_signature: str | None = Field(
        None,
        description="The service's signature of that entry and its place in the ledger, by which"
        " `halftone verify --certificate` finds that a store was put back to an earlier moment.",
    )
    versions: dict[str, str] = Field(description="Of the software that made it.")


Verdict = Literal["good", "usable", "weak", "not measured"]
Basis = Literal["measured", "implied by the model", "not measured"]
_INTERVAL = "Lower and upper end, of 90 % confidence; null where nothing is known."


class DistanceOut(BaseModel):
    """How far the sample is from the private table in some columns: total variation distance."""

    distance: float | None = Field(
        description="Expected distance, from 0 to 1; null if it was not measured.", examples=[0.021]
    )
    interval: list[float] | None = Field(description=_INTERVAL, examples=[[0.008, 0.034]])
    verdict: Verdict = Field(description="In a word, by `rules`.", examples=["good"])
    basis: Basis = Field(
        description="`measured`: noisy counts of these columns, or a noisy distance. `implied by"
        " the model`: other columns were measured.",
        examples=["measured"],
    )
    cells: int = Field(description="Cells that the distance is taken over.", examples=[24])
    sampling_error: float | None = Field(
        description="Expected distance between the model and a sample of this many rows: about as"
        " much a further sample differs.",
        examples=[0.004],
    )
    note: str | None = Field(
        description="What was counted, where that is not rows; or what is known otherwise.",
        examples=[None],
    )


class StatedColumnOut(DistanceOut):
    """The distance in one column."""

    column: str = Field(description="Name of the column.", examples=["fare"])


class StatedPairOut(DistanceOut):
    """The distance in two columns together."""

    columns: list[str] = Field(description="Both columns.", examples=[["shift", "fare"]])


class StatedNumberOut(BaseModel):
    """A figure of the first sample, and where the same figure of the private table lies."""

    statistic: Literal["mean", "quantile", "correlation"] = Field(description="Which figure.")
    columns: list[str] = Field(description="Of which column, or two.", examples=[["fare"]])
    q: float | None = Field(description="Of a quantile: 0.5 is the median.", examples=[0.5])
    value: float | None = Field(
        description="In the sample; null where it has no number.", examples=[11.25]
    )
    interval: list[float] | None = Field(
        description=f"Of the private table's figure. {_INTERVAL} The range of each bin is in it in"
        " full.",
        examples=[[10.0, 15.0]],
    )
    basis: Basis = Field(description="What the interval is made of.", examples=["measured"])
    note: str | None = Field(description="Why there is no interval.", examples=[None])


class StatementOut(BaseModel):
    """How good a release is, from its noisy answers and its first sample alone."""

    release_id: str = Field(description="The release.", examples=["rl_k3v9xq2mzt7hsd4nw8cb"])
    confidence: float = Field(description="Of each interval by itself.", examples=[0.9])
    unit: Literal["rows", "entities"] = Field(description="What one privacy unit is.")
    rows: int = Field(description="Rows of the first sample.", examples=[10000])
    rules: dict[str, str] = Field(description="When each verdict is given.")
    columns: list[StatedColumnOut] = Field(description="Each column of the sample.")
    pairs: list[StatedPairOut] = Field(
        description="Each pair of them; beyond 2,016 pairs, only those that were measured."
    )
    numbers: list[StatedNumberOut] = Field(
        description="Mean and quantiles of each numeric column, correlation of each two."
    )
    notes: list[str] = Field(
        description="What holds for all figures, such as what bounding took away."
    )

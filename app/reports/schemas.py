"""Reports as the API sends them: a part for all who see the release, and an exact part.

`Exact` is stored as it is sent.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field

from app.releases.schemas import Moment, RepairsOut
from app.reports.evaluation.figures import Evaluation

NOTICE: Literal["not private: do not publish"] = "not private: do not publish"

ReportState = Literal["queued", "running", "succeeded", "failed"]

_COLUMNS = ["age", "region"]
_RELEASE_ID = "rl_k3v9xq2mzt7hsd4nw8cb"
_DATASET_ID = "ds_p6wqj3ytm8kz5hvc2nxd"


class Expected(BaseModel):
    """What the model states about its own error, from the noisy answers alone."""

    columns: list[str] = Field(description="Columns of the marginal.", examples=[_COLUMNS])
    distance: float = Field(
        ge=0,
        le=1,
        description="The total variation distance between the model's marginal and the exact one"
        " is at most this, with the stated confidence.",
        examples=[0.021],
    )
    confidence: float = Field(
        gt=0, lt=1, description="Probability with which the bound holds.", examples=[0.95]
    )


class Public(BaseModel):
    """What follows from the release alone; it may be published, and costs nothing."""

    expected_errors: list[Expected] = Field(
        description="The model's own bounds on its errors; empty for a synthesizer that states"
        " none."
    )
    repairs: RepairsOut | None = Field(
        description="How the rows of the first sample were changed to meet the dictionary's"
        " constraints, and how much that changed each column. Null if the dictionary declares"
        " nothing between columns of the sample, and after that sample was deleted."
    )


class Distance(BaseModel):
    """How far the synthetic rows are from the real ones on some columns."""

    columns: list[str] = Field(description="Columns of the marginal.", examples=[_COLUMNS])
    cells: int = Field(description="Cells of the marginal.", examples=[36])
    distance: float = Field(description="Total variation distance, in [0, 1].", examples=[0.0153])


class MeasuredDistance(Distance):
    """A marginal that the release measured."""

    noisy: float | None = Field(
        description="Total variation distance of the noisy table itself, with negative counts"
        " as 0: the error of the noise, before the model. Null where it does not count rows.",
        examples=[0.0121],
    )


class Distances(BaseModel):
    """Distances over many choices of columns."""

    possible: int = Field(description="Choices that there are.", examples=[91])
    compared: int = Field(
        description="Choices that were compared: all of them, or as many as are drawn with a"
        " public seed.",
        examples=[91],
    )
    mean: float | None = Field(description="Mean distance; null for none.", examples=[0.021])
    worst: Distance | None = Field(description="The largest distance; null for none.")
    listed: list[Distance] = Field(description="The largest distances, largest first.")


class ExpectedAndExact(Expected):
    """A stated bound and the exact distance, on the cells of the model that the bound is for."""

    exact: float = Field(
        description="Total variation distance between the synthetic and the real rows. It includes"
        " the error of drawing a finite number of rows, in addition to the model's.",
        examples=[0.013],
    )


class Rows(BaseModel):
    """Exact numbers of rows."""

    real: int = Field(description="Real rows that count, under the unit's bound.", examples=[5000])
    synthetic: int = Field(description="Rows of the release's first sample.", examples=[4987])


class DistinctValues(BaseModel):
    """Difference in how many distinct cells of a column an entity has."""

    column: str = Field(description="The column.", examples=["shift"])
    distance: float = Field(
        description="Total variation distance of the numbers of distinct cells of an entity.",
        examples=[0.08],
    )


class Entities(BaseModel):
    """Comparison of entities."""

    real: int = Field(description="Real entities.", examples=[300])
    synthetic: int = Field(description="Synthetic entities.", examples=[291])
    rows_per_entity: float = Field(
        description="Total variation distance of the numbers of rows of an entity.",
        examples=[0.11],
    )
    distinct_values: list[DistinctValues] = Field(description="For each column that was compared.")


class Broken(BaseModel):
    """Rows that break a declared constraint."""

    number: int = Field(description="Place of the constraint in the dictionary, from 0.")
    columns: list[str] = Field(description="Columns that it is about.", examples=[_COLUMNS])
    real: int = Field(description="Real rows that break it.", examples=[3])
    synthetic: int = Field(description="Synthetic rows that break it.", examples=[0])


class Combinations(BaseModel):
    """Combinations of cells of one length, compared with those of the real table.

    Counts are of entities on an entity unit, else of rows.
    """

    length: int = Field(description="Cells of a combination.", examples=[2])
    original: int = Field(description="Combinations that really occur.", examples=[1200])
    reported: int = Field(description="Combinations that are reported.", examples=[900])
    suppressed: float = Field(
        description="Share of the original ones that are not reported.", examples=[0.3]
    )
    fabricated: float = Field(
        description="Share of the reported ones that do not occur.", examples=[0.07]
    )
    mean_error: float = Field(
        description="Mean absolute error of the counts of the original ones that are reported.",
        examples=[4.1],
    )
    mean_count: float = Field(description="Mean of their original counts.", examples=[52.0])
    combination_error: float = Field(
        description="The mean error in proportion to the mean count.", examples=[0.079]
    )


class CombinationFigures(BaseModel):
    """Suppressed, fabricated and combination error by length, of `aggregate_seeded`."""

    aggregates: list[Combinations] = Field(description="Of the released noisy counts.")
    rows: list[Combinations] = Field(description="Of the synthetic rows.")


class Exact(BaseModel):
    """Comparison of the release's first sample with the exact table, for its custodian alone."""

    notice: Literal["not private: do not publish"] = Field(
        NOTICE, description="Exact figures, computed from the private rows without noise."
    )
    rows: Rows = Field(description="How many rows were compared.")
    columns: list[Distance] = Field(
        description="Each column alone, in the cells of the dictionary."
    )
    pairs: Distances = Field(description="Pairs of columns.")
    triples: Distances = Field(
        description="Up to 100 triples of columns, drawn with a public seed; only a few are listed."
    )
    measured: list[MeasuredDistance] = Field(
        description="Each marginal that the release measured, on the cells that it used."
    )
    expected: list[ExpectedAndExact] = Field(description="The stated bounds with the exact errors.")
    entities: Entities | None = Field(description="On an entity unit.")
    constraints: list[Broken] = Field(description="Declared constraints on these columns.")
    combinations: CombinationFigures | None = Field(
        description="Of releases that publish counts of combinations (`aggregate_seeded`)."
    )
    evaluation: Evaluation | None = Field(
        # Exact parts that were stored before there were evaluations have none.
        None,
        description="What users of the rows would find: can rows be told apart, do models and"
        " regressions agree, are real rows in it?",
    )
    left_out: list[str] = Field(
        description="What was not compared, and why.",
        examples=[["columns that the release does not model: fare"]],
    )


class ReportOut(BaseModel):
    """How good a release is: a public part for everyone, an exact one for the custodian."""

    release_id: str = Field(description="The release that it is about.", examples=[_RELEASE_ID])
    dataset_id: str = Field(description="The dataset of that release.", examples=[_DATASET_ID])
    state: ReportState = Field(
        description="State of the exact part, for the dataset's custodian. It is `succeeded` if no"
        " exact part was requested, and always for everyone else: the public part is available"
        " with the release.",
        examples=["succeeded"],
    )
    public: Public = Field(description="May be published.")
    exact: Exact | None = Field(
        description="For the dataset's custodian alone, after it was requested and made; null for"
        " everyone else. Not private: do not publish."
    )
    failure: str | None = Field(
        description="Set for the custodian if the exact part could not be made.", examples=[None]
    )
    private_detail: str | None = Field(
        description="Why, for the custodian alone. Not private: do not publish.", examples=[None]
    )
    created_at: Moment | None = Field(
        description="When the exact part was requested (UTC); null for everyone but the custodian."
    )
    finished_at: Moment | None = Field(
        description="When it was made or failed (UTC); null for everyone but the custodian."
    )

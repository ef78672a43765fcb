"""The figures of an evaluation as the API sends them: a part of a report's exact part."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field

from app.reports.evaluation.form import Family

Compared = Literal["rows", "entities"]

ABOUT_MATCHES = (
    "A match alone discloses nothing: common rows match by chance, as the held-out part shows, and"
    " whoever sees a synthetic row cannot know whether a person has it. What protects people is"
    " the release's differential privacy: it bounds how much the presence of any one unit changes"
    " the probability of every result, whatever else somebody knows. It does not promise that no"
    " synthetic row equals a real one. Matches and distances to the closest record prove neither"
    " privacy nor its absence: a method without any protection can have large distances, and a"
    " protected one small ones. Read them to find faults, such as rows that were copied."
)


class Used(BaseModel):
    """How many rows an evaluation used."""

    real: int = Field(description="Real rows.", examples=[20000])
    synthetic: int = Field(description="Synthetic rows.", examples=[20000])


class TellingColumn(BaseModel):
    """A column by which the classifier tells real from synthetic rows."""

    column: str = Field(description="The column.", examples=["fare"])
    importance: float = Field(
        description="Its share of what the classifier gains by its splits.", examples=[0.31]
    )


class Propensity(BaseModel):
    """How well a classifier tells real from synthetic rows (Snoke et al. 2018)."""

    classifier: Literal["CART"] = Field(
        "CART", description="One classification tree on all columns."
    )
    used: Used = Field(description="Rows that it was fitted to.")
    pmse: float = Field(
        description="Mean squared difference between the estimated probability that a row is"
        " synthetic and the share of synthetic rows; 0 if nothing tells them apart.",
        examples=[0.0041],
    )
    null_mean: float = Field(
        description="Mean of the same over random permutations of which rows are synthetic: what"
        " rows of the same population would have.",
        examples=[0.0024],
    )
    permutations: int = Field(description="How many of them.", examples=[5])
    permuted: Compared = Field(description="What was permuted: rows, or entities with their rows.")
    ratio: float | None = Field(
        description="`pmse / null_mean`: 1 if the rows cannot be told apart. Null if no tree finds"
        " a split.",
        examples=[1.7],
    )
    columns: list[TellingColumn] = Field(
        description="The columns that tell most, at most ten, most important first."
    )


class Score(BaseModel):
    """How well a model predicts real rows that it has not seen."""

    accuracy: float | None = Field(
        description="Share of correct predictions; null for a target of numbers.", examples=[0.81]
    )
    auc: float | None = Field(
        description="Area under the ROC curve; with more than two values the mean over all pairs of"
        " them (Hand and Till 2001). Null for a target of numbers, and where a value is missing"
        " in the training rows or in the test rows.",
        examples=[0.87],
    )
    r2: float | None = Field(
        description="Coefficient of determination R²; null for a target of values.", examples=[None]
    )


class Prediction(BaseModel):
    """Training on synthetic rows, testing on real ones."""

    target: str = Field(description="The column that was predicted.", examples=["payment_type"])
    model: Literal["histogram gradient boosting"] = Field(
        "histogram gradient boosting", description="The model, of scikit-learn."
    )
    trained_on_synthetic: Score = Field(description="Of the model that synthetic rows trained.")
    trained_on_real: Score = Field(description="Of the model that one half of the rows trained.")
    constant: Score = Field(
        description="Of always predicting the most frequent value, or the mean, of the real"
        " training half."
    )
    used: Used = Field(description="Rows that trained each model.")
    tested: int = Field(description="Real rows of the other half.", examples=[10000])
    split: Compared = Field(description="What was split into halves: rows, or whole entities.")


class Coefficient(BaseModel):
    """One coefficient of both fits."""

    term: str = Field(
        description="`intercept`, a column, or a column with a value.", examples=["distance"]
    )
    real: float = Field(description="Fitted to the real rows.", examples=[1.92])
    real_error: float = Field(description="Its standard error.", examples=[0.021])
    synthetic: float = Field(description="Fitted to the synthetic rows.", examples=[1.87])
    synthetic_error: float = Field(description="Its standard error.", examples=[0.022])
    overlap: float | None = Field(
        description="Overlap of the two 95 % intervals, as the mean of its shares of each (Karr et"
        " al. 2006): 1 for the same interval, 0 for intervals that do not meet. Null where an"
        " interval has no width.",
        examples=[0.72],
    )


class Regression(BaseModel):
    """Coefficients of one regression, fitted to real and to synthetic rows."""

    outcome: str = Field(description="The column that is explained.", examples=["fare"])
    family: Family = Field(
        description="`linear`: least squares. `logistic`: maximum likelihood, of the second value."
    )
    used: Used = Field(description="Rows without a missing value in any of the columns.")
    errors: Literal["classical", "clustered by entity"] = Field(
        description="How the standard errors are estimated. Those of the synthetic fit treat its"
        " rows as if they were real: they do not include the noise of the release."
    )
    coefficients: list[Coefficient] = Field(description="Intercept first.")
    mean_overlap: float | None = Field(description="Mean of the overlaps.", examples=[0.64])
    dropped: list[str] = Field(
        description="Terms that were left out of both fits: constant, or a sum of others, in the"
        " real or in the synthetic rows."
    )
    converged: bool = Field(
        description="False if a logistic fit did not converge; its coefficients mean little then."
    )


class SubgroupCell(BaseModel):
    """How far one column is off within one subgroup."""

    subgroup: str = Field(description="The column of the subgroup.", examples=["region"])
    value: str = Field(description="Its value or range.", examples=["north"])
    column: str = Field(description="The column that was compared there.", examples=["age"])
    real: int = Field(description="Real rows of the subgroup.", examples=[812])
    synthetic: int = Field(description="Synthetic rows of the subgroup.", examples=[790])
    distance: float = Field(
        description="Total variation distance of the column within the subgroup; 1 if only one"
        " table has the subgroup.",
        examples=[0.14],
    )
    by_chance: float = Field(
        description="About the mean distance of two samples of these sizes from one population.",
        examples=[0.03],
    )


class Subgroups(BaseModel):
    """The worst columns of all subgroups."""

    compared: int = Field(description="Subgroups times columns that were compared.", examples=[140])
    worst: list[SubgroupCell] = Field(
        description="At most 100, by how far the distance is beyond the one by chance, farthest"
        " first."
    )


class Matches(BaseModel):
    """Records that equal a record of another part in all columns that the release models."""

    records: int = Field(description="Records that were looked up.", examples=[10000])
    among: int = Field(description="Real records that they were looked up in.", examples=[5000])
    matching: int = Field(description="Records that equal at least one of them.", examples=[311])
    unique: int = Field(description="Records that equal exactly one of them.", examples=[12])


class ExactMatches(BaseModel):
    """Are real records in the synthetic table? The held-out half gives the rate by chance."""

    of: Compared = Field(
        description="`rows`: single rows. `entities`: all rows of an entity together, in any order."
    )
    synthetic: Matches = Field(description="Synthetic records in one half of the real ones.")
    held_out: Matches = Field(description="Records of the other real half in the same half.")
    synthetic_in_all: Matches = Field(description="Synthetic records in the whole real table.")


class ClosestQuantile(BaseModel):
    """A quantile of the distances to the closest record."""

    q: float = Field(description="Share of records that are at most so far away.", examples=[0.05])
    synthetic: float = Field(description="From synthetic rows.", examples=[0.04])
    held_out: float = Field(description="From held-out real rows.", examples=[0.05])


class ClosestRecords(BaseModel):
    """Distances to the closest real row, from synthetic and from held-out real rows.

    The distance of two rows is the mean over the columns: 0 or 1 for values of a list, and for
    numbers the share of real rows that lie between them.
    """

    synthetic: int = Field(description="Synthetic rows that were looked up.", examples=[1000])
    held_out: int = Field(description="Held-out real rows that were looked up.", examples=[1000])
    among: int = Field(
        description="Real rows of the other half that they were looked up in.", examples=[10000]
    )
    quantiles: list[ClosestQuantile] = Field(description="From the closest to the median.")


class RealRows(BaseModel):
    """Are real rows in it? Matches and near matches, beside those of held-out real rows."""

    matches: list[ExactMatches] = Field(
        description="Of rows, and on an entity unit of entities too."
    )
    closest: ClosestRecords | None = Field(description="Null where a part has no rows.")
    meaning: str = Field(
        ABOUT_MATCHES, description="What these figures and differential privacy say, and what not."
    )


class Evaluation(BaseModel):
    """What users of the synthetic rows would find, compared with the real ones.

    At most 20,000 rows of each table, which a public seed draws, unless a figure says otherwise.
    """

    propensity: Propensity | None = Field(description="Null for tables too small to tell.")
    prediction: Prediction | None = Field(description="Null without `target`.")
    regression: Regression | None = Field(description="Null without `regression`.")
    subgroups: Subgroups | None = Field(
        description="Null without `subgroups`. All rows are compared."
    )
    real_rows: RealRows = Field(
        description="Exact matches are looked up for all rows, closest records for a part of them."
    )
    not_made: list[str] = Field(description="What could not be evaluated, and why.", examples=[[]])

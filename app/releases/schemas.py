"""Releases and samples as the API sends and receives them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, WithJsonSchema

from app.database import format_time
from app.engine.catalog.auto import AUTO
from app.engine.method import Params
from app.ledger.schemas import EpsilonAmounts, GuaranteeIn
from app.releases.openapi import with_forms
from app.releases.samples import LARGEST_SEED

ReleaseState = Literal["queued", "running", "cancelling", "succeeded", "failed", "cancelled"]
SampleState = Literal["queued", "running", "succeeded", "failed"]
Visibility = Literal["requester", "grantees", "public"]

_RELEASE_ID = "rl_k3v9xq2mzt7hsd4nw8cb"
_DATASET_ID = "ds_p6wqj3ytm8kz5hvc2nxd"
_SAMPLE_ID = "sm_k3v9xq2mzt7hsd4nw8cb"
_AMOUNTS = {"rho": "0.024356", "delta": "0"}


def _whole(value: object) -> object:
    """Only whole numbers: text, fractions and booleans are refused."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise ValueError("a whole number is expected")


Whole = Annotated[int, BeforeValidator(_whole, json_schema_input_type=int)]


# A time of fixed width, so that the length of a response reveals nothing.
Moment = Annotated[
    datetime,
    PlainSerializer(format_time, return_type=str),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]


class Form(Params):
    """A request body: unknown fields are refused, null is the same as omitted."""


class SampleIn(Form):
    """What a further sample should be."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"rows": 5000, "seed": 7}, {"kind": "counts"}]}
    )

    kind: Literal["rows", "counts"] = Field(
        "rows",
        description="`rows`: synthetic rows. `counts`: the post-processed histogram itself, one "
        "row for each cell, for synthesizers that make one.",
    )
    rows: Whole | None = Field(
        None, ge=1, description="How many rows; omitted: the noisy count of rows."
    )
    seed: Whole | None = Field(
        None,
        ge=0,
        le=LARGEST_SEED,
        description="The same seed gives the same rows; omitted: drawn by the service.",
    )


class VisibilityIn(Form):
    """Who should see a release besides its requester and the dataset's custodian."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"visibility": "grantees"}]})

    visibility: Visibility = Field(
        description="`requester`: nobody else. `grantees`: every analyst with a grant on the"
        " dataset. `public`: every principal of the service."
    )


class SampleBrief(BaseModel):
    """A sample as its release lists it."""

    id: str = Field(description="Id of the sample.", examples=[_SAMPLE_ID])
    rows: int | None = Field(
        description="Rows of the table; null while the noisy count is not yet applied.",
        examples=[10000],
    )
    state: SampleState = Field(
        description="Data can be downloaded once `succeeded`.", examples=["succeeded"]
    )


class RuleRepairOut(BaseModel):
    """Rows that broke one declared constraint before repair."""

    number: int = Field(description="Place of the constraint in the dictionary, from 0.")
    rows: int = Field(description="Rows that broke it as the model made them.", examples=[104])


class ColumnRepairOut(BaseModel):
    """How far repair moved one column."""

    name: str = Field(description="Name of the column.", examples=["trip_total"])
    distance: float = Field(
        description="Total variation distance between its one-way shares before and after"
        " repair, over the dictionary's own cells.",
        examples=[0.0131],
    )


class RepairsOut(BaseModel):
    """What was changed so that the rows meet every declared constraint; counts synthetic rows."""

    rows: int = Field(description="Rows that were given other values.", examples=[121])
    redrawn: int = Field(
        description="Of these, rows that took the values of another row, since no smaller change"
        " would do.",
        examples=[0],
    )
    constraints: list[RuleRepairOut] = Field(
        description="The constraints whose columns the sample has."
    )
    columns: list[ColumnRepairOut] = Field(description="The columns that they are about.")


class SampleOut(BaseModel):
    """A synthetic table: made from the release's model and a seed, at no privacy cost."""

    id: str = Field(description="Id of the sample.", examples=[_SAMPLE_ID])
    release_id: str = Field(
        description="The release whose model it is drawn from.", examples=[_RELEASE_ID]
    )
    dataset_id: str = Field(description="The dataset of that release.", examples=[_DATASET_ID])
    kind: Literal["rows", "counts"] = Field(
        description="`rows`: synthetic rows. `counts`: the post-processed histogram itself.",
        examples=["rows"],
    )
    rows: int | None = Field(
        description="Rows asked for, or made; null while the noisy count is not yet applied.",
        examples=[5000],
    )
    seed: int = Field(description="The same seed gives the same rows.", examples=[7])
    state: SampleState = Field(description="Data can be downloaded once `succeeded`.")
    stored: bool = Field(
        description="False if the rows were dropped after their time; asking for the data makes "
        "them again from the seed.",
        examples=[True],
    )
    size_bytes: int | None = Field(description="Bytes of its Parquet form.", examples=[81920])
    repairs: RepairsOut | None = Field(
        description="How its rows were changed to meet the dictionary's constraints, which hold"
        " in every row that is sent. Null until the rows are made, for `counts`, and where the"
        " dictionary declares nothing between columns of the sample."
    )
    created_at: Moment = Field(description="When it was asked for (UTC).")
    finished_at: Moment | None = Field(description="When it was made or failed (UTC).")


class ReleaseOut(BaseModel):
    """One request to run one synthesizer under one guarantee, and its result."""

    id: str = Field(description="Id of the release.", examples=[_RELEASE_ID])
    dataset_id: str = Field(description="The dataset it was made from.", examples=[_DATASET_ID])
    synthesizer: str = Field(description="Its method: see `/v1/synthesizers`.", examples=["mst"])
    synthesizer_version: str = Field(
        description="Version of the distribution that the method came from, at admission.",
        examples=["0.1.0"],
    )
    assurance: Literal["enforced", "declared"] = Field(
        description="`enforced`: it learned only what the kernel answered. `declared`: a third "
        "party that the admin allowed to read the bounded table; its author vouches for it.",
        examples=["enforced"],
    )
    params: dict[str, Any] = Field(description="Its form, with defaults.", examples=[{}])
    guarantee: dict[str, str] = Field(
        description="As requested.", examples=[{"epsilon": "1", "delta": "0.000001"}]
    )
    charge: dict[str, str] = Field(
        description="What the account booked, in its own terms: epsilon and delta, or rho and "
        "delta. Fixed from public facts when the release was admitted.",
        examples=[_AMOUNTS],
    )
    charge_as_epsilon: EpsilonAmounts | None = Field(
        description="On `zcdp` accounts: the same in epsilon, as it was asked for; for a request in"
        " rho, at a delta of 1e-6."
    )
    rows: int | None = Field(
        description="Rows asked for; null stands for the noisy count.", examples=[10000]
    )
    evaluates: str | None = Field(
        description="Of an evaluation: the release whose rows it measures.", examples=[None]
    )
    public_dataset: str | None = Field(
        description="The public dataset that was named to start from.", examples=[None]
    )
    state: ReleaseState = Field(
        description="`succeeded` once its first sample can be downloaded. `failed` and a cancel"
        " after the start keep the charge.",
        examples=["succeeded"],
    )
    progress: float = Field(
        ge=0, le=1, description="Fraction done, derived from public facts.", examples=[1.0]
    )
    stage: str = Field(description="Stage reached, derived from public facts.", examples=["done"])
    samples: list[SampleBrief] = Field(
        description="Its synthetic tables, oldest first, at most 100; the list of its samples has"
        " them all."
    )
    visibility: Visibility = Field(
        description="Who sees it besides its requester and the dataset's custodian. `requester`:"
        " nobody. `grantees`: every analyst with a grant on the dataset. `public`: every principal"
        " of the service.",
        examples=["requester"],
    )
    visibility_requested: Visibility | None = Field(
        description="What its requester asked the custodian for; null once the custodian has"
        " decided, and for everyone but these two.",
        examples=[None],
    )
    refunded: bool = Field(
        description="Whether the charge was given back: only by a cancel before any worker "
        "claimed the job.",
        examples=[False],
    )
    failure: str | None = Field(
        description="Set if the release failed; the same for every cause.", examples=[None]
    )
    private_detail: str | None = Field(
        description="Why it failed, for the dataset's custodian alone. Not private in the sense "
        "of the guarantee: do not publish.",
        examples=[None],
    )
    created_at: Moment = Field(description="When it was admitted (UTC).")
    started_at: Moment | None = Field(description="When a worker started it (UTC).")
    finished_at: Moment | None = Field(description="When it ended (UTC).")


class ProblemOut(BaseModel):
    """What is wrong, where (JSON pointer), and how to correct it."""

    pointer: str = Field(description="JSON pointer into the body.", examples=["/params/columns"])
    message: str = Field(
        description="What is wrong there.",
        examples=["the histogram would have 12000000 cells; 10000000 are the most"],
    )
    remedy: str = Field(
        description="How to correct it.", examples=["choose fewer columns, or coarser `bins`"]
    )


class RefusalOut(BaseModel):
    """Why the budget would refuse a release now, as the 409 of the release would state it."""

    detail: str = Field(
        description="In words.",
        examples=[
            "The release costs rho 0.024355970359 (epsilon 1 at delta 0.000001). Your allowance has"
            " rho 0.00485 (epsilon 0.423036853062 at delta 0.000001) left."
        ],
    )
    scope: Literal["account", "grant"] | None = Field(
        description="What has too little left: your allowance, which comes first if both have,"
        " or the account. Null, with all that follows, if nothing is admitted for another reason,"
        " which `detail` states.",
        examples=["grant"],
    )
    limited_by: Literal["epsilon", "delta", "rho"] | None = Field(
        description="Which amount has too little left; null where the budget of the account is not"
        " shown.",
        examples=["rho"],
    )
    spent: dict[str, str] | None = Field(
        description="What that scope has spent; null where the budget of the account is not shown.",
        examples=[{"rho": "1.534428763866", "delta": "0"}],
    )
    spent_as_epsilon: EpsilonAmounts | None = Field(
        description="On `zcdp` accounts: the same in epsilon, at the request's own delta, or at"
        " 1e-6 if it has none."
    )
    remaining: dict[str, str] | None = Field(
        description="What that scope has left; null where the budget of the account is not shown.",
        examples=[{"rho": "0.00485", "delta": "0"}],
    )
    remaining_as_epsilon: EpsilonAmounts | None = Field(
        description="On `zcdp` accounts: the largest epsilon of one release that this covers, at"
        " the same delta."
    )
    largest_epsilon: str | None = Field(
        description="What would fit at the request's own delta; null if nothing would, or where the"
        " budget of the account is not shown.",
        examples=["0.423036853062"],
    )


class PreflightOut(BaseModel):
    """What a release would cost and need, from public facts alone; nothing is charged."""

    fits: bool = Field(
        description="Whether it would be admitted now: the budget covers it and there are no"
        " problems. Where the budget of the account is not shown, whether your own allowance covers"
        " it; whether the budget does shows when the release is requested.",
        examples=[True],
    )
    synthesizer: str | None = Field(
        description="What would run: the one named, or the one picked. Null if neither exists.",
        examples=["swift"],
    )
    why: str | None = Field(
        description="Why it was picked, and why those before it could not run; null where"
        " the request names it, and where no method can run because of `problems`.",
        examples=[
            "`swift` had the least error on most kinds of tables that were measured, in seconds (14"
            " columns of 588 cells, unit: row, noise of about 34 rows in a cell of a column)"
        ],
    )
    charge: dict[str, str] | None = Field(
        description="What would be booked, in the account's terms; null if the guarantee cannot "
        "be booked.",
        examples=[_AMOUNTS],
    )
    charge_as_epsilon: EpsilonAmounts | None = Field(
        description="On `zcdp` accounts: the same in epsilon, as it was asked for; for a request in"
        " rho, at a delta of 1e-6."
    )
    remaining_after: dict[str, str] | None = Field(
        description="What the account would have left; of the grant alone where its budget is "
        "not shown. Null if it does not fit, or if the grant has no allowance of its own.",
        examples=[{"rho": "1.51492", "delta": "0"}],
    )
    remaining_after_as_epsilon: EpsilonAmounts | None = Field(
        description="On `zcdp` accounts: the largest epsilon of one more release after this one, at"
        " the request's own delta, or at 1e-6 if it has none. Epsilon does not add up over"
        " releases, and rho does."
    )
    cells: int | None = Field(description="Cells that would be measured.", examples=[1200])
    memory_bytes: int | None = Field(
        description="Memory that the run would take.", examples=[190000000]
    )
    expected_error: float | None = Field(
        description="Standard deviation of the noise in one measured cell, in counts. If a run"
        " on entities still has to choose how much each entity counts (`contribution` `auto`), this"
        " is the error under the rule with the most noise, where all rows of an entity count. The"
        " run usually chooses a rule with less, nearer to `expected_error_at_least`.",
        examples=[4.53],
    )
    expected_error_at_least: float | None = Field(
        description="The same under the rule with the least noise that the run may choose, where an"
        " entity counts as about one row. Equal to `expected_error` if the rule is already known.",
        examples=[4.53],
    )
    refusal: RefusalOut | None = Field(
        description="Why the budget would refuse it; null where it would cover the charge, where"
        " there is no charge, and where only an account would refuse it whose budget is not shown.",
        examples=[None],
    )
    problems: list[ProblemOut] = Field(
        description="Why it would be refused, apart from the budget, which `refusal` is about."
    )


class ReleaseIn(Form):
    """What to release: a synthesizer, its form, and the guarantee to keep."""

    model_config = ConfigDict(json_schema_extra=with_forms)

    synthesizer: str = Field(
        AUTO,
        min_length=1,
        max_length=64,
        description="Its registered name, see `/v1/synthesizers`. `auto`, also if omitted: one is "
        "picked from public facts, and the preflight says which and why.",
    )
    params: dict[str, Any] = Field(
        default_factory=dict,
        description="The synthesizer's own form: see `/v1/synthesizers/{name}`. With `auto`: "
        "`columns`, `bins` and `target`.",
    )
    guarantee: GuaranteeIn = Field(
        description="The guarantee to keep: epsilon, epsilon and delta, rho, or rho and delta. It"
        " is what the release costs."
    )
    rows: Whole | None = Field(
        None,
        ge=1,
        description="Rows of the first sample; omitted: the noisy count of rows.",
    )
    public_dataset: str | None = Field(
        None,
        max_length=64,
        description="A public dataset to start from. One that the synthesizer does not use is "
        "named in the certificate as unused.",
    )

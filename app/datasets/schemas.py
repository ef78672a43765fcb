"""Datasets as the API sends and receives them."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, model_validator

from app.amounts import Amount
from app.database import format_time
from app.datasets.dictionary_form import DICTIONARY, FILE_OPTIONS, UNIT

LONGEST_NAME = 200
LONGEST_REASON = 2000
# Far beyond any table, and small enough that row counts never overflow 64 bits.
MOST_ROWS = 10**12

State = Literal["awaiting_data", "ingesting", "ready", "damaged", "rejected", "erased"]
Moment = Annotated[datetime, PlainSerializer(format_time, return_type=str)]

SCHEMA_EXAMPLE: dict[str, Any] = {
    "fields": [
        {"name": "taxi_id", "type": "string", "role": "entity"},
        {"name": "shift", "type": "integer", "constraints": {"minimum": 0, "maximum": 20}},
        {
            "name": "payment_type",
            "type": "string",
            "constraints": {"enum": ["Cash", "Credit Card"]},
            "other": "Other",
        },
        {
            "name": "fare",
            "type": "number",
            "constraints": {"minimum": 0, "maximum": 100, "required": False},
            "bins": 20,
            "special": [0],
        },
    ],
    "missingValues": [""],
}
UNIT_EXAMPLE: dict[str, Any] = {"kind": "entity", "column": "taxi_id", "max_rows": 200}
SPEC_EXAMPLE: dict[str, Any] = {
    "name": "taxi",
    "visibility": "private",
    "schema": SCHEMA_EXAMPLE,
    "unit": UNIT_EXAMPLE,
    "max_total_rows": 1_000_000,
    "budget": {"epsilon": 10, "delta": 1e-6},
    "accountant": "zcdp",
    "delta_for_approximate": 0,
}


def _whole(value: object) -> object:
    if isinstance(value, Decimal) and value == value.to_integral_value():
        return int(value)
    # In Python a boolean is an integer too.
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError("expected a whole number")
    return value


def _name(value: object) -> object:
    if isinstance(value, str) and not value.strip().isprintable():
        raise ValueError("a name has no control characters")
    return value.strip() if isinstance(value, str) else value


Whole = Annotated[int, BeforeValidator(_whole)]
Name = Annotated[str, BeforeValidator(_name), Field(min_length=1, max_length=LONGEST_NAME)]


class _Form(BaseModel):
    """Unknown fields are refused; null means omitted."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=False)

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, form: Any) -> Any:
        if not isinstance(form, dict):
            return form
        return {name: value for name, value in form.items() if value is not None}


class BudgetIn(_Form):
    """Total privacy loss allowed to all releases of the account together."""

    epsilon: Amount = Field(description="Total epsilon.")
    delta: Amount = Field(Decimal(0), description="0, the default, admits pure releases only.")


class NewPopulationIn(_Form):
    """The custodian's statement that a table of known content is about other people; audited."""

    reason: str = Field(
        min_length=1, max_length=LONGEST_REASON, description="Who they are, and how you know."
    )


class DatasetIn(_Form):
    """A dataset as declared. `schema` is a Frictionless Table Schema with Halftone's keys."""

    model_config = ConfigDict(json_schema_extra={"examples": [SPEC_EXAMPLE]})

    name: Name = Field(description="A name to show; need not be unique.")
    visibility: Literal["private", "public"] = Field(
        "private",
        description="`public` asserts that the rows are public: no budget, usable as a public"
        " prior. Cannot be changed later.",
    )
    dictionary: dict[str, Any] = Field(
        alias="schema",
        description="The data dictionary: what is public about the columns.",
        json_schema_extra=DICTIONARY,
    )
    unit: dict[str, Any] | None = Field(
        None,
        description='Who is protected: `{"kind": "row"}`, or `{"kind": "entity", "column": ...,'
        ' "max_rows": k}`. Needed for private datasets.',
        json_schema_extra=UNIT,
    )
    max_total_rows: Whole | None = Field(
        None, ge=1, le=MOST_ROWS, description="Public upper bound on rows; default: a setting."
    )
    budget: BudgetIn | None = Field(
        None, description="Needed for a private dataset, unless it shares a budget."
    )
    accountant: Literal["basic", "zcdp"] | None = Field(
        None, description="How losses add up; `basic` by default. Cannot be changed later."
    )
    delta_for_approximate: Amount | None = Field(
        None, description="Part of a `zcdp` budget's delta set aside for approximate steps."
    )
    file_options: dict[str, Any] | None = Field(
        None,
        alias="file",
        description="How to read the file: `format`, `encoding` (UTF-8 by default), `delimiter`"
        " (by default the one that finds the declared names in the header), `quote`, `header`,"
        " `header_rows`, `skip_rows`, `compression`, `decimal`, `comment`. No row decides how"
        " others are read.",
        json_schema_extra=FILE_OPTIONS,
    )
    shares_budget_with: str | None = Field(
        None,
        max_length=32,
        description="A dataset of yours (it may be erased) whose account this one joins. For entity"
        " units you thereby declare that equal ids in both mean the same entity.",
    )
    new_population: NewPopulationIn | None = Field(
        None, description="Why the same content is about other people."
    )


class DatasetPatch(_Form):
    """What can be changed about a dataset."""

    name: Name = Field(description="The new name.")


class OwnGrantOut(BaseModel):
    """The caller's own permission to use the dataset."""

    id: str = Field(description="Id of the grant.")
    state: str = Field(description="`active`: a revoked one shows no dataset.")
    show_budget: bool = Field(description="Whether the account's totals are shown.")


class NoteOut(BaseModel):
    """Something about the declaration that its custodian should know."""

    pointer: str = Field(description="The field of the declaration that it is about.")
    message: str = Field(description="What will not work, or what will happen.")
    remedy: str = Field(description="The call that mends it.")


class CustodianFacts(BaseModel):
    """For the dataset's custodian alone."""

    account_id: str | None = Field(description="The account it draws on; null if public.")
    closed: bool = Field(
        description="A newer dataset of yours has the content of this one, or of one that shares"
        " its budget: that budget is closed, and new releases are refused."
    )
    rows: int | None = Field(description="Exact; not private: do not publish.")
    stored_bytes: int = Field(description="Bytes that the encoded table takes.")
    new_population: str | None = Field(
        description="The reason that was given why known content is about other people."
    )
    ready_at: Moment | None = Field(description="When it was first ready (UTC).")
    erased_at: Moment | None = Field(description="When it was erased (UTC).")
    notes: list[NoteOut] = Field(
        default_factory=list,
        description="What the declaration asks for and its account does not allow (columns whose"
        " values are discovered need delta), and which earlier dataset is closed if the table"
        " that comes is the same.",
    )


class DatasetOut(BaseModel):
    """A dataset as the caller may see it; only `custodian` depends on its rows."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "id": "ds_k3v7a9m2q4w8e6r5t3y2",
                    "name": "taxi",
                    "state": "ready",
                    "visibility": "private",
                    "role": "analyst",
                    "schema": SCHEMA_EXAMPLE,
                    "unit": UNIT_EXAMPLE,
                    "max_total_rows": 1_000_000,
                    "created_at": "2026-01-31T12:00:00.000000Z",
                    "grant": {"id": "gr_a", "state": "active", "show_budget": False},
                    "custodian": None,
                }
            ]
        }
    )

    id: str = Field(description="Id of the dataset.")
    name: str = Field(description="A name to show; need not be unique.")
    state: State = Field(
        description="`awaiting_data`: declared, nothing uploaded. `ingesting`: uploaded, being"
        " read. `ready`: takes releases. `rejected`: the upload has faults that the ingest"
        " report lists; send another. `erased`: its rows are permanently deleted."
    )
    visibility: Literal["private", "public"] = Field(
        description="`private`: within a budget. `public`: readable by every principal, no"
        " budget, usable as a public prior."
    )
    role: Literal["custodian", "analyst", "auditor", "reader"] = Field(
        description="The caller's role here."
    )
    dictionary: dict[str, Any] = Field(
        alias="schema", description="The data dictionary in its canonical form."
    )
    unit: dict[str, Any] = Field(description="The privacy unit.")
    max_total_rows: int = Field(description="Public upper bound on rows.")
    created_at: Moment = Field(description="When it was declared (UTC).")
    grant: OwnGrantOut | None = Field(description="The caller's grant; null for others.")
    custodian: CustodianFacts | None = Field(
        description="Facts for the custodian alone; null for others. Not private: do not publish."
    )


class RowProblemOut(BaseModel):
    """A fault of the file; `row` counts data rows, `record` all records, both from 1."""

    row: int | None = Field(description="Data row, from 1; null if the whole file is meant.")
    record: int | None = Field(
        description="Record of the file, from 1, with header and skipped ones."
    )
    column: str | None = Field(description="Column; null if no single one is meant.")
    message: str = Field(description="What is wrong there.")
    remedy: str = Field(description="How to correct it.")
    cause: str = Field(
        "row",
        description="`missing`, `unreadable` or `undeclared` for a cell, `row` for a row that"
        " cannot be cut into cells, `file` for the whole file.",
    )


class ProblemGroupOut(BaseModel):
    """All faults of one column and cause."""

    column: str | None = Field(description="Column; null if no single one is meant.")
    cause: str = Field(description="As `cause` of a problem.")
    count: int = Field(description="How many there are.")
    examples: list[RowProblemOut] = Field(
        description="The first few, different cells before a cell that occurs again."
    )


class BoundingOut(BaseModel):
    """What the contribution bound leaves of the rows. Exact: for the custodian alone."""

    max_rows: int = Field(description="The bound: rows of one entity that count.")
    entities: int = Field(description="Entities of the table.")
    most_rows: int = Field(description="Rows of the entity that has most.")
    bounded_entities: int = Field(description="Entities with more rows than the bound.")
    rows_beyond: int = Field(
        description="Their rows above it. They count in no release; which ones is drawn anew for"
        " each. To count more, declare another dataset with a larger `max_rows`: noise grows with"
        " it."
    )


class UndeclaredOut(BaseModel):
    """Cells of a column whose value the dictionary does not declare."""

    column: str = Field(description="Name of the column.")
    treatment: str = Field(
        description="How they were replaced: `other`, `null` or `clip`, as the field declares."
    )
    cells: int = Field(description="How many cells.")


class ViolationsOut(BaseModel):
    """Rows that break a cross-column constraint; they are kept."""

    number: int = Field(
        description="Place of the constraint in the dictionary, which has it in full, from 0."
    )
    kind: str = Field(description="Its kind, such as `sum` or `lookup`.")
    columns: list[str] = Field(description="The columns that it is about.")
    rows: int = Field(description="Rows that break it.")


class LeftOutOut(BaseModel):
    """A declared field that is not used, and why."""

    name: str = Field(description="Name of the field.")
    reason: str = Field(description="Why it is left out, such as free text.")


class FileOut(BaseModel):
    """The detected form of the file."""

    format: str = Field(description="csv, tsv, parquet or jsonl.")
    compression: str | None = Field(description="gzip or zstd; null if it is plain.")
    encoding: str | None = Field(description="Of text; null for Parquet.")
    byte_order_mark: bool = Field(description="Whether the text starts with one.")
    delimiter: str | None = Field(description="Between cells; null for other formats.")
    quote: str | None = Field(description="Around cells; null if none is used.")
    newline: str | None = Field(description="Between lines of CSV and TSV.")
    header_rows: int = Field(description="Rows of names before the data.")
    columns: list[str] = Field(description="Names of the columns, in the file's order.")
    notes: list[str] = Field(description="What is unusual about the file, in words.")


class IngestReportOut(BaseModel):
    """The result of the last upload. All of it is private: for the custodian alone."""

    state: State = Field(description="State of the dataset.")
    problem_count: int = Field(description="Total number of problems.")
    problems: list[RowProblemOut] = Field(
        description="Examples of all groups, at most 100, in the order of rows."
    )
    problem_groups: list[ProblemGroupOut] = Field(
        default_factory=list, description="The problems by column and cause, the most first."
    )
    rows_read: int = Field(description="Rows of the file, kept or not.")
    rows: int = Field(description="Rows that were kept.")
    dropped_without_id: int = Field(description="Rows left out because their id is null.")
    bounding: BoundingOut | None = Field(
        None, description="Null if each row is a unit, and for a table that was rejected."
    )
    undeclared: list[UndeclaredOut] = Field(
        description="Cells of values that the dictionary does not declare, counted."
    )
    constraint_violations: list[ViolationsOut] = Field(
        description="For each cross-column constraint, the rows that break it."
    )
    file: FileOut | None = Field(description="Null if the file could not be opened.")
    unused_columns: list[str] = Field(description="Columns of the file that no field reads.")
    left_out: list[LeftOutOut] = Field(description="Declared fields that are not used.")
    closed_datasets: list[str] = Field(
        description="Older datasets that this one closed: those of the same content, and all that"
        " share a budget with them."
    )


class ProposalNoteOut(BaseModel):
    """A guess in a proposal, or something to decide."""

    pointer: str = Field(description="The part of the proposal that it is about.")
    message: str = Field(description="What was guessed, and what to do where it is wrong.")


class ProposalOut(BaseModel):
    """A dictionary to start from. Private: it may show values of the table it was made from."""

    dictionary: dict[str, Any] = Field(
        alias="schema",
        description="The data dictionary. Fields that come from a table are marked `proposed`:"
        " check each against what is public and remove the mark, or a dataset refuses them.",
    )
    unit: dict[str, Any] | None = Field(
        description="The privacy unit, if the source states one, or if a column of the table looks"
        " like ids."
    )
    notes: list[ProposalNoteOut] = Field(
        default_factory=list,
        description="What in the proposal is a guess. Private, as the proposal is.",
    )
    file: FileOut | None = Field(description="The detected form of the file, if one was sent.")
    file_options: dict[str, Any] | None = Field(
        description="What to declare as `file` with the dataset, so that it reads the file as the"
        " proposal did. Guesses from rows, which `file` notes, count nowhere else: check them. An"
        " `encoding` of `?` is a question to you: the first of the `notes` has the choices."
    )

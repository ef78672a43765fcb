"""Reads the declaration of a dataset, and reports all of its faults in one response."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, TypeVar

from pydantic import ValidationError

from app.datasets.draft import BudgetTerms, DatasetDraft
from app.datasets.schemas import DatasetIn
from app.engine.constraints.feasibility import check_feasible
from app.engine.files import FileOptions
from app.engine.privacy.loss import Accountant
from app.engine.schema import Column, FieldProblem, PrivacyUnit, Schema, SchemaError
from app.ledger.accounts import Budget
from app.problems import FieldError, Invalid
from app.routers.errors import field_errors
from app.settings import Settings

Parsed = TypeVar("Parsed")

_FAULTY = "The declaration has fields that must be corrected."
_ROW = PrivacyUnit("row")
# Deeper than any declaration; a body may nest deeper than Python can recurse.
DEEPEST = 8


def read_spec(raw: Any, settings: Settings) -> DatasetDraft:
    """A valid draft. Raises `Invalid` with every fault found, pointers from the root."""
    reader = _SpecReader(raw if isinstance(raw, dict) else {})
    form = reader.form(raw)
    schema, unit = reader.schema(), reader.unit()
    reader.check_file_options()
    reader.check_unit(schema, unit)
    reader.check_rules(schema)
    reader.check_values(schema)
    if form is not None:
        reader.check_account(form)
    if reader.faults:
        raise Invalid(_FAULTY, errors=reader.faults)
    assert form is not None
    assert schema is not None
    return DatasetDraft(
        name=form.name,
        visibility=form.visibility,
        schema=schema,
        unit=unit or _ROW,
        max_total_rows=form.max_total_rows or settings.max_total_rows,
        file_options=reader.file_options,
        terms=_terms(form),
        joins=form.shares_budget_with,
        new_population=None if form.new_population is None else form.new_population.reason,
    )


class _SpecReader:
    """Reads the parts of one declaration independently, and collects the faults."""

    def __init__(self, raw: dict[str, Any]) -> None:
        self._raw = {key: _without_nulls(value) for key, value in raw.items()}
        self.faults: list[FieldError] = []

    def form(self, raw: Any) -> DatasetIn | None:
        try:
            return DatasetIn.model_validate(raw)
        except ValidationError as error:
            self.faults += field_errors(error.errors(include_url=False))
            return None

    def schema(self) -> Schema | None:
        raw = self._raw.get("schema")
        if not isinstance(raw, dict):
            return None
        return self._parsed(lambda: Schema.parse(raw), "/schema")

    def unit(self) -> PrivacyUnit | None:
        raw = self._raw.get("unit")
        if raw is None and self._raw.get("visibility") != "public":
            self.fault(
                "/unit",
                "A private dataset must state who is protected.",
                'Send {"kind": "row"}, or {"kind": "entity", "column": ..., "max_rows": ...}.',
            )
        if not isinstance(raw, dict):
            return None
        return self._parsed(lambda: PrivacyUnit.parse(raw), "/unit")

    @property
    def file_options(self) -> dict[str, Any]:
        raw = self._raw.get("file")
        return raw if isinstance(raw, dict) else {}

    def check_file_options(self) -> None:
        self._parsed(lambda: FileOptions.parse(self.file_options), "/file")

    def check_unit(self, schema: Schema | None, unit: PrivacyUnit | None) -> None:
        if schema is None or (unit is None and "unit" in self._raw):
            return
        self._parsed(lambda: schema.check_unit(unit or _ROW), "/schema")

    def check_rules(self, schema: Schema | None) -> None:
        if schema is not None:
            self._parsed(lambda: check_feasible(schema), "/schema")

    def check_values(self, schema: Schema | None) -> None:
        if schema is None or self._raw.get("visibility") != "public":
            return
        for place, field in enumerate(schema.fields):
            if isinstance(field, Column) and field.discovers is not None:
                self.fault(
                    f"/schema/fields/{place}/values",
                    "A public dataset has no values to discover: they are known.",
                    "List them in `constraints/enum`, or leave the field out.",
                )

    def check_account(self, form: DatasetIn) -> None:
        if form.visibility == "public":
            self._refuse_terms(form, "A public dataset has no budget.", "shares_budget_with")
        elif form.shares_budget_with is not None:
            self._refuse_terms(form, "The account that is joined already has its budget.")
        elif form.budget is None:
            self.fault(
                "/budget",
                "A private dataset needs a budget.",
                'Send {"epsilon": ..., "delta": ...}, or `shares_budget_with`.',
            )
        else:
            self._check_terms(_terms(form))

    def _refuse_terms(self, form: DatasetIn, message: str, *more: str) -> None:
        for name in ("budget", "accountant", "delta_for_approximate", *more):
            if getattr(form, name) is not None:
                self.fault(f"/{name}", message, "Leave the field out.")

    def _check_terms(self, terms: BudgetTerms | None) -> None:
        assert terms is not None
        try:
            Budget.declared(
                terms.epsilon,
                terms.delta,
                terms.delta_for_approximate,
                Accountant(terms.accountant),
            )
        except Invalid as error:
            self.faults += error.errors

    def _parsed(self, parse: Callable[[], Parsed], below: str) -> Parsed | None:
        try:
            return parse()
        except SchemaError as error:
            self.faults += _faults(error.errors, below)
            return None

    def fault(self, pointer: str, message: str, remedy: str) -> None:
        self.faults.append(FieldError(pointer, message, remedy))


def _terms(form: DatasetIn) -> BudgetTerms | None:
    if form.budget is None or form.visibility == "public":
        return None
    return BudgetTerms(
        epsilon=form.budget.epsilon,
        delta=form.budget.delta,
        accountant=form.accountant or "basic",
        delta_for_approximate=form.delta_for_approximate or Decimal(0),
    )


def _faults(problems: Sequence[FieldProblem], below: str) -> list[FieldError]:
    return [
        FieldError(below + problem.pointer.rstrip("/"), problem.message, problem.remedy)
        for problem in problems
    ]


def _without_nulls(value: Any, depth: int = 0) -> Any:
    """Null means omitted, in objects up to the depth of declarations; in lists it stays."""
    if depth > DEEPEST:
        return value
    if isinstance(value, dict):
        kept = {key: item for key, item in value.items() if item is not None}
        return {key: _without_nulls(item, depth + 1) for key, item in kept.items()}
    if isinstance(value, list):
        return [_without_nulls(item, depth + 1) for item in value]
    return value

"""The preflights that are pinned: of each golden request, and of requests at the edges.

What `check` tells is public and made of public facts alone, so nothing is fitted here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from golden_requests import EPSILON, REQUESTS, RHO, RHO_AND_DELTA
from golden_tables import PERSON, ROW, public_table, schema_of
from numpy.typing import NDArray
from pydantic import ValidationError

from app.engine.catalog import registry
from app.engine.method import Limits, Preflight, PublicFacts
from app.engine.privacy.loss import PrivacyLoss
from app.engine.schema import PrivacyUnit, Schema

LIMITS = Limits(max_total_rows=10_000, rows=None, memory_bytes=2**31, time_s=600.0)
ALONE = PrivacyUnit("entity", "person", 1)
MANY = PrivacyUnit("entity", "person", 200)
PUBLIC_ROWS = 1500

JUNCTION_TREE = ("mst", "swift", "aim")
TABLE_METHODS = ("independent", *JUNCTION_TREE)
BINNING = (*TABLE_METHODS, "histogram", "public_reweighted")


@dataclass(frozen=True)
class Asked:
    """A request whose preflight is pinned; `public` are the facts of its public dataset."""

    name: str
    method: str
    schema: Schema
    unit: PrivacyUnit
    form: Mapping[str, Any] = field(default_factory=dict)
    loss: PrivacyLoss = RHO
    limits: Limits = LIMITS
    public: PublicFacts | None = None


class PublicChunks:
    """The public table as `check_public` reads it, in chunks of 200 rows."""

    def __init__(self, schema: Schema, codes: Mapping[str, NDArray[Any]]) -> None:
        self.schema = schema
        self._codes = codes

    def chunks(self, columns: Sequence[str]) -> Iterator[Mapping[str, NDArray[Any]]]:
        rows = len(next(iter(self._codes.values())))
        for first in range(0, rows, 200):
            yield {name: self._codes[name][first : first + 200] for name in columns}


def told(asked: Asked) -> tuple[dict[str, Any], list[list[str]]]:
    """What the preflight says in numbers and pointers, and each problem's message and remedy."""
    synthesizer = registry.builtin(asked.method)
    params = synthesizer.Params.model_validate(asked.form)
    found: Preflight = synthesizer.check(
        asked.schema, asked.unit, params, asked.loss, asked.public, asked.limits
    )
    numbers = {
        "cells": found.cells,
        "memory_bytes": found.memory_bytes,
        "expected_error": float(found.expected_error),
        "least_expected_error": found.least_expected_error,
        "delta_share": synthesizer.delta_set_aside(params, asked.schema),
        "problems": [problem.pointer for problem in found.problems],
    }
    return numbers, [[problem.message, problem.remedy] for problem in found.problems]


def told_of_rows(asked: Asked) -> dict[str, list[str]]:
    """Pointers of what `check_public` says of a public table: as it is, and with ages and regions
    of which the private dictionary has none. Empty for a method that looks at no public row."""
    synthesizer = registry.builtin(asked.method)
    if not synthesizer.looks_at_public_rows:
        return {}
    params = synthesizer.Params.model_validate(asked.form)
    codes = public_table(schema_of(asked.unit), asked.unit).table.codes
    return {
        what: [
            problem.pointer
            for problem in synthesizer.check_public(
                asked.schema, asked.unit, params, asked.loss, PublicChunks(schema, codes)
            )
        ]
        for what, schema in (("fits", schema_of(asked.unit)), ("foreign", _foreign(asked.unit)))
    }


def refused(method: str, form: Mapping[str, Any]) -> list[list[str]]:
    """Where a form is refused, and by which of pydantic's error types."""
    try:
        registry.builtin(method).Params.model_validate(form)
    except ValidationError as error:
        return [["/" + "/".join(map(str, each["loc"])), each["type"]] for each in error.errors()]
    return []


def _whole(name: str, values: int) -> dict[str, Any]:
    limits = {"minimum": 0, "maximum": values - 1, "required": True}
    return {"name": name, "type": "integer", "constraints": limits}


def _wide(columns: int, values: int, unit: PrivacyUnit) -> Schema:
    fields = [_whole(f"c{place}", values) for place in range(columns)]
    if unit.kind == "entity":
        fields.append({"name": "person", "type": "string", "role": "entity"})
    return Schema.parse({"fields": fields})


def _foreign(unit: PrivacyUnit) -> Schema:
    """The dictionary with other values of the same codes: regions of other names, later ages."""
    wire = schema_of(unit).to_wire()
    for each in wire["fields"]:
        if each["name"] == "region":
            each["constraints"]["enum"] = ["here", "there", "up", "down", "nowhere"]
        if each["name"] == "age":
            each["constraints"] |= {"minimum": 100, "maximum": 179}
    return Schema.parse(wire)


def _other_dictionary(unit: PrivacyUnit) -> Schema:
    """A public dictionary with another list of regions, and without ages."""
    fields = [
        {"name": "region", "type": "string", "constraints": {"enum": ["here", "there"]}},
        *(_whole(name, 8) for name in ("visits", "income")),
    ]
    if unit.kind == "entity":
        fields.append({"name": "person", "type": "string", "role": "entity"})
    return Schema.parse({"fields": fields})


def _requests() -> Iterator[Asked]:
    for request in REQUESTS:
        public = PublicFacts(request.schema, PUBLIC_ROWS) if request.public else None
        yield Asked(
            request.name,
            request.method,
            request.schema,
            request.unit,
            request.form,
            request.loss,
            public=public,
        )


def _usual() -> dict[str, tuple[Asked, ...]]:
    """For each method its first golden request on each unit."""
    usual: dict[str, dict[str, Asked]] = {}
    for asked in _requests():
        usual.setdefault(asked.method, {}).setdefault(asked.unit.kind, asked)
    return {method: tuple(by_unit.values()) for method, by_unit in usual.items()}


def _edges_of_every_method() -> Iterator[Asked]:
    for asked in (each for units in _usual().values() for each in units):
        losses = {
            "no loss": PrivacyLoss.zcdp(0),
            "smallest rho": PrivacyLoss.zcdp(10**6),
            "hopeless rho": PrivacyLoss.zcdp(2),
            "smallest epsilon": PrivacyLoss.pure(10**6),
            "hopeless epsilon": PrivacyLoss.pure(2),
            "epsilon": EPSILON,
            "large rho": PrivacyLoss.zcdp(10**14),
        }
        for what, loss in losses.items():
            yield replace(asked, name=f"{asked.name}: {what}", loss=loss)
        limits = {
            "a megabyte": replace(LIMITS, memory_bytes=2**20),
            "a millisecond": replace(LIMITS, time_s=0.001),
            "a billion rows": replace(LIMITS, max_total_rows=10**9),
            "rows asked for": replace(LIMITS, rows=50_000),
        }
        for what, limit in limits.items():
            yield replace(asked, name=f"{asked.name}: {what}", limits=limit)


def _edges_of_units() -> Iterator[Asked]:
    for method, units in _usual().items():
        asked = next(each for each in units if each.unit.kind == "entity")
        for what, unit in (("one row", ALONE), ("200 rows", MANY)):
            yield replace(asked, name=f"{method}: entities of {what}", unit=unit)
            yield replace(
                asked, name=f"{method}: entities of {what}, pure", unit=unit, loss=EPSILON
            )


def _edges_of_tables() -> Iterator[Asked]:
    for method in BINNING:
        for unit in (ROW, PERSON):
            public = method == "public_reweighted"
            for columns, values in ((0, 0), (1, 5), (30, 20), (60, 100), (4, 50_000)):
                if columns:
                    schema = _wide(columns, values, unit)
                    form: dict[str, Any] = {}
                else:
                    schema, form = schema_of(unit), {"columns": []}
                facts = PublicFacts(schema, PUBLIC_ROWS) if public else None
                name = f"{method}-{unit.kind}: {columns} columns of {values}"
                yield Asked(name, method, schema, unit, form, public=facts)
    for method in ("linked_histograms", "aggregate_seeded"):
        for columns, values in ((1, 5), (30, 20), (100, 200)):
            schema = _wide(columns, values, PERSON)
            yield Asked(f"{method}: {columns} columns of {values}", method, schema, PERSON)


def _edges_of_columns() -> Iterator[Asked]:
    for method in BINNING:
        public = PublicFacts(schema_of(ROW), PUBLIC_ROWS) if method == "public_reweighted" else None
        usual = Asked(method, method, schema_of(ROW), ROW, public=public)
        forms: dict[str, dict[str, Any]] = {
            "an unknown column": {"columns": ["region", "shoe"]},
            "a repeated column": {"columns": ["region", "region"]},
            "bins of an unknown column": {"bins": {"shoe": 3}},
            "bins of a category": {"bins": {"region": 3}},
            "bins out of order": {"bins": {"age": [40, 20]}},
            "distinct": {"contribution": {"rule": "distinct", "limit": 3}},
            "clipped": {"contribution": {"rule": "clipped", "norm": 2.0}},
        }
        for what, form in forms.items():
            yield replace(usual, name=f"{method}: {what}", form=form)
        clipped = {"contribution": {"rule": "clipped", "norm": 2.0}}
        yield replace(usual, name=f"{method}: clipped, pure", form=clipped, loss=EPSILON)
        private = schema_of(ROW, private_bins=True)
        found = schema_of(ROW, found_town=True)
        both = schema_of(ROW, private_bins=True, found_town=True)
        tiny = PrivacyLoss.zcdp(2000, 10**13)
        yield replace(usual, name=f"{method}: private bins", schema=private)
        yield replace(usual, name=f"{method}: private bins, pure", schema=private, loss=EPSILON)
        yield replace(usual, name=f"{method}: private bins, tiny", schema=private, loss=tiny)
        yield replace(usual, name=f"{method}: found values without delta", schema=found)
        yield replace(usual, name=f"{method}: found values", schema=found, loss=RHO_AND_DELTA)
        yield replace(usual, name=f"{method}: both are found", schema=both, loss=RHO_AND_DELTA)
        yield replace(usual, name=f"{method}: both are found, tiny", schema=both, loss=tiny)
        if method in TABLE_METHODS:
            unknown = {"entities": {"distinct": ["region", "shoe"]}}
            entity = replace(usual, schema=schema_of(PERSON), unit=PERSON)
            yield replace(entity, name=f"{method}: unknown distinct column", form=unknown)
            half = {"entities": {"share": 0.5, "distinct": ["region", "age"]}}
            yield replace(entity, name=f"{method}: half for entities", form=half)
            whole = {"within_bins": 1, "bins_share": 0.5}
            yield replace(usual, name=f"{method}: even bins", schema=private, form=whole)


def _edges_of_public_datasets() -> Iterator[Asked]:
    for asked in (each for units in _usual().values() for each in units):
        facts = {
            "no public dataset": None,
            "a public dataset": PublicFacts(asked.schema, PUBLIC_ROWS),
            "an empty public dataset": PublicFacts(asked.schema, 0),
            "a huge public dataset": PublicFacts(asked.schema, 10**8),
            "another public dictionary": PublicFacts(_other_dictionary(asked.unit), PUBLIC_ROWS),
        }
        if asked.unit.kind == "entity":
            facts["public rows without entities"] = PublicFacts(schema_of(ROW), PUBLIC_ROWS)
        for what, public in facts.items():
            yield replace(asked, name=f"{asked.name}: {what}", public=public)
    for method in JUNCTION_TREE:
        public = PublicFacts(schema_of(PERSON), PUBLIC_ROWS)
        for keeping in ("keep", "group"):
            yield Asked(
                f"{method}: {keeping} public entities",
                method,
                schema_of(PERSON),
                PERSON,
                {"public_entities": keeping},
                public=public,
            )
        yield Asked(
            f"{method}: keep entities of no public dataset",
            method,
            schema_of(PERSON),
            PERSON,
            {"public_entities": "keep"},
        )


def _edges_of_one_method() -> Iterator[Asked]:
    rows, people = schema_of(ROW), schema_of(PERSON)
    public = PublicFacts(people, PUBLIC_ROWS)
    for method in ("swift", "aim"):
        yield Asked(f"{method}: target", method, rows, ROW, {"target": "member"})
        yield Asked(f"{method}: unknown target", method, rows, ROW, {"target": "shoe"})
        weights = {"column_weights": {"shoe": 2.0}}
        yield Asked(f"{method}: weight of an unknown column", method, rows, ROW, weights)
        yield Asked(f"{method}: few cells", method, rows, ROW, {"most_cells": 4})
    yield Asked("mst: few cells of a pair", "mst", rows, ROW, {"most_pair_cells": 4})
    for what, workload in {
        "an unknown column": [{"columns": ["region", "shoe"]}],
        "a repeated column": [{"columns": ["region", "region"]}],
        "four columns": [{"columns": ["region", "kind", "age", "income"]}],
    }.items():
        yield Asked(f"aim: workload of {what}", "aim", rows, ROW, {"workload": workload})
    for degree in (1, 2, 4):
        yield Asked(f"aim: degree {degree}", "aim", rows, ROW, {"degree": degree})
    shares = {"shares": {"one_way": 1, "selection": 1, "marginals": 1, "bounds": 0}}
    yield Asked("aim: no bounds", "aim", rows, ROW, shares)
    for what, form in {
        "clip": {"post_processing": "clip"},
        "threshold": {"post_processing": "threshold"},
        "an unknown preset column": {"preset": "sprint1"},
    }.items():
        yield Asked(f"histogram: {what}", "histogram", rows, ROW, form)
    for what, form in {
        "a row unit": {},
        "an unknown column": {"classes": [{"feature": "mean", "column": "shoe", "cuts": [1.0]}]},
        "the preset": {"preset": "sprint3"},
    }.items():
        on_rows = what == "a row unit"
        yield Asked(
            f"class_resampling: {what}",
            "class_resampling",
            rows if on_rows else people,
            ROW if on_rows else PERSON,
            form,
            public=public,
        )
    for what, form in {
        "no features": {},
        "a feature of text": {"features": ["region"]},
        "a column given itself": {
            "features": ["age"],
            "conditionals": [{"column": "income", "given": ["kind"]}],
        },
        "an unknown attribute": {"features": ["age"], "attributes": ["shoe"]},
        "a split of too few": {
            "features": ["age"],
            "attributes": ["region"],
            "release": "split",
            "split": [1.0],
        },
        "the preset": {"preset": "sprint3"},
    }.items():
        yield Asked(f"archetypes: {what}", "archetypes", people, PERSON, form, public=public)
    for what, form in {
        "a column in two groups": {"groups": [{"columns": ["age"]}, {"columns": ["age", "kind"]}]},
        "laplace": {"noise": "laplace"},
        "gaussian": {"noise": "gaussian"},
        "discovered without delta": {
            "groups": [{"columns": ["age", "kind"], "cells": "discovered"}]
        },
        "a link to an unknown column": {"links": [{"given": ["age"], "value": "shoe"}]},
        "public links without a public dataset": {"links": [{"given": ["age"], "value": "income"}]},
        "a prior without a public dataset": {"prior": "public"},
        "an unknown total": {"totals": [{"total": "shoe", "parts": ["age", "income"]}]},
        "the preset": {"preset": "sprint3"},
    }.items():
        for kind, loss in (("rho", RHO), ("epsilon", EPSILON)):
            name = f"linked_histograms: {what}, {kind}"
            yield Asked(name, "linked_histograms", people, PERSON, form, loss)
    for what, form in {
        "six items": {"reporting_length": 6},
        "one item": {"reporting_length": 1},
        "short": {"sigma_proportions": "short"},
        "lists in a column": {"multi_value_columns": {"region": ";"}},
        "lists in an unknown column": {"multi_value_columns": {"shoe": ";"}},
        "an unknown column": {"columns": ["shoe"]},
        "a delta": {"delta": 1e-6},
        "the preset": {"preset": "sprint3"},
    }.items():
        for kind, loss in (("rho", RHO), ("epsilon", EPSILON)):
            name = f"aggregate_seeded: {what}, {kind}"
            yield Asked(name, "aggregate_seeded", rows, ROW, form, loss)
    for what, form in {
        "an unknown measure": {"measure": [["region", "shoe"]]},
        "a huge measure": {"measure": [["region", "kind", "age", "income"]], "most_cells": 4},
        "an unknown watched column": {"watch": ["shoe"]},
        "nothing watched": {"watch": []},
        "an unknown pool": {"pool": ["shoe"]},
        "the preset": {"preset": "sprint3"},
    }.items():
        name = f"public_reweighted: {what}"
        yield Asked(name, "public_reweighted", people, PERSON, form, public=public)


def _all() -> Iterator[Asked]:
    yield from _requests()
    yield from _edges_of_every_method()
    yield from _edges_of_units()
    yield from _edges_of_tables()
    yield from _edges_of_columns()
    yield from _edges_of_public_datasets()
    yield from _edges_of_one_method()


CHECKS: tuple[Asked, ...] = tuple(_all())

FORMS: tuple[tuple[str, Mapping[str, Any]], ...] = (
    *((method, {"shoe": 1}) for method in _usual()),
    *((method, {"columns": "region"}) for method in BINNING),
    *((method, {"bins_share": 1}) for method in BINNING),
    *((method, {"values_share": 0}) for method in BINNING),
    *((method, {"within_bins": 65}) for method in TABLE_METHODS),
    *((method, {"contribution": {"rule": "distinct", "limit": 0}}) for method in BINNING),
    *((method, {"contribution": {"rule": "all"}}) for method in BINNING),
    *((method, {"entities": {"share": 1}}) for method in TABLE_METHODS),
    *((method, {"rare_below": -1}) for method in JUNCTION_TREE),
    *((method, {"public_entities": "some"}) for method in JUNCTION_TREE),
    *((method, {"shares": {"one_way": 0}}) for method in JUNCTION_TREE),
    ("mst", {"most_pair_cells": 3}),
    ("swift", {"most_cells": 5_000_001}),
    ("aim", {"degree": 5}),
    ("aim", {"workload": []}),
    ("aim", {"winners": 21}),
    ("histogram", {"preset": "sprint2"}),
    ("histogram", {"threshold": 1001}),
    ("class_resampling", {"classes": [{"feature": "rows", "cuts": [2, 1]}]}),
    ("class_resampling", {"redraw": 1.5}),
    ("archetypes", {"components": 0}),
    ("archetypes", {"split": [0]}),
    ("linked_histograms", {"samples": 0}),
    ("linked_histograms", {"links": [{"given": [], "value": "income"}]}),
    ("aggregate_seeded", {"reporting_length": 7}),
    ("aggregate_seeded", {"sigma_proportions": [1]}),
    ("public_reweighted", {"measure": []}),
    ("public_reweighted", {"smooth": 2}),
)

ROW_CHECKS: tuple[Asked, ...] = tuple(asked for asked in _requests() if asked.public is not None)

"""The requests whose runs are pinned: every built-in, on row and on entity units."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from golden_tables import PERSON, ROW, schema_of

from app.engine.privacy.loss import PrivacyLoss
from app.engine.schema import PrivacyUnit, Schema

RHO = PrivacyLoss.zcdp(5 * 10**11)
RHO_AND_DELTA = PrivacyLoss.zcdp(5 * 10**11, 10**13)
EPSILON = PrivacyLoss.pure(2 * 10**12)


@dataclass(frozen=True)
class Request:
    """A run of one method on the tables of `golden_tables`."""

    name: str
    method: str
    unit: PrivacyUnit
    form: Mapping[str, Any] = field(default_factory=dict)
    loss: PrivacyLoss = RHO
    public: bool = False
    private_bins: bool = False
    found_town: bool = False
    seed: int = 7

    @property
    def schema(self) -> Schema:
        return schema_of(self.unit, private_bins=self.private_bins, found_town=self.found_town)


_CLASSES = {
    "classes": [
        {"feature": "rows", "cuts": [2.0, 5.0, 9.0]},
        {"feature": "top_share", "column": "region", "cuts": [0.5]},
    ]
}
_MIXTURE = {
    "features": ["age", "visits"],
    "components": 3,
    "attributes": ["region"],
    "conditionals": [
        {"column": "income", "given": ["age"]},
        {"column": "kind", "given": ["age", "visits"]},
        {"column": "member", "given": ["visits"]},
    ],
}
_GROUPS = {
    "groups": [
        {"columns": ["region", "kind"]},
        {"columns": ["age", "income"]},
        {"columns": ["visits", "member"]},
    ]
}
_LINKED = {
    "groups": [
        {"columns": ["region"], "per": "entity"},
        {"columns": ["kind", "visits"], "cells": "discovered"},
        {"columns": ["age"]},
        {"columns": ["member"]},
        {"columns": ["income"]},
    ],
    "links": [{"given": ["age"], "value": "income", "expected": "bought", "low": 0, "high": 999}],
}


def _tree(method: str) -> tuple[Request, ...]:
    """What the three methods on a junction tree are asked."""
    return (
        Request(f"{method}-row", method, ROW),
        Request(f"{method}-row-pure", method, ROW, loss=EPSILON),
        Request(f"{method}-row-public", method, ROW, public=True),
        Request(f"{method}-entity", method, PERSON),
        Request(f"{method}-entity-public", method, PERSON, public=True),
    )


REQUESTS: tuple[Request, ...] = (
    Request("independent-row", "independent", ROW),
    Request("independent-entity", "independent", PERSON),
    Request("independent-entity-pure", "independent", PERSON, loss=EPSILON),
    Request(
        "independent-row-found",
        "independent",
        ROW,
        loss=RHO_AND_DELTA,
        private_bins=True,
        found_town=True,
    ),
    Request("histogram-row", "histogram", ROW, {"columns": ["region", "kind", "visits"]}),
    Request(
        "histogram-entity",
        "histogram",
        PERSON,
        {
            "columns": ["region", "kind", "member"],
            "contribution": {"rule": "distinct", "limit": 2},
            "post_processing": "threshold",
        },
    ),
    *_tree("mst"),
    *_tree("swift"),
    *_tree("aim"),
    Request("mst-row-private-bins", "mst", ROW, private_bins=True),
    Request(
        "mst-entity-grouped",
        "mst",
        PERSON,
        {"public_entities": "group", "contribution": {"rule": "clipped", "norm": 2.5}},
        public=True,
    ),
    Request("swift-row-target", "swift", ROW, {"target": "member", "column_weights": {"age": 2.0}}),
    Request("swift-entity-kept", "swift", PERSON, {"public_entities": "keep"}, public=True),
    Request("swift-row-found", "swift", ROW, loss=RHO_AND_DELTA, found_town=True),
    Request(
        "aim-row-workload",
        "aim",
        ROW,
        {
            "workload": [
                {"columns": ["region", "kind"], "weight": 2.0},
                {"columns": ["age", "income"]},
                {"columns": ["visits", "member", "region"]},
            ],
            "winners": 1,
        },
    ),
    Request("public_reweighted-row", "public_reweighted", ROW, public=True),
    Request("public_reweighted-entity", "public_reweighted", PERSON, public=True),
    Request(
        "public_reweighted-entity-pure", "public_reweighted", PERSON, loss=EPSILON, public=True
    ),
    Request(
        "public_reweighted-row-measure",
        "public_reweighted",
        ROW,
        {"measure": [["region", "kind"], ["age", "income"]]},
        public=True,
    ),
    Request("class_resampling-entity", "class_resampling", PERSON, _CLASSES, public=True),
    Request("class_resampling-entity-rows", "class_resampling", PERSON, loss=EPSILON, public=True),
    Request("archetypes-row", "archetypes", ROW, _MIXTURE, public=True),
    Request(
        "archetypes-entity",
        "archetypes",
        PERSON,
        {**_MIXTURE, "rows_per_entity": "bought", "release": "split", "split": [0.3, 0.5, 0.2]},
        loss=EPSILON,
        public=True,
    ),
    Request("linked_histograms-row", "linked_histograms", ROW, _GROUPS),
    Request("linked_histograms-entity", "linked_histograms", PERSON, _GROUPS, public=True),
    Request(
        "linked_histograms-entity-discovered",
        "linked_histograms",
        PERSON,
        _LINKED,
        loss=RHO_AND_DELTA,
    ),
    Request("aggregate_seeded-row", "aggregate_seeded", ROW, {"reporting_length": 2}),
    Request("aggregate_seeded-entity", "aggregate_seeded", PERSON, {"reporting_length": 3}),
)

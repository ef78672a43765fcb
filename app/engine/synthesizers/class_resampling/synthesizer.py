"""`class_resampling`: whole public entities, drawn to noisy counts of declared classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from app.engine.columns.axes import Bins, ChosenColumns, choose_axes
from app.engine.columns.contribution import expected_errors, noise_scale
from app.engine.grouping import Grouping
from app.engine.inference.projection import onto_simplex
from app.engine.inference.rounding import apportion
from app.engine.json_pointer import escaped
from app.engine.method import (
    Case,
    Example,
    Needs,
    Problem,
    Progress,
    PublicChunks,
    Session,
    Synthesizer,
)
from app.engine.method.params import PresetParams
from app.engine.privacy.functions import evaluate
from app.engine.privacy.loss import PrivacyLoss
from app.engine.privacy.queries import Count, Measurement
from app.engine.public.compatibility import fit_problems
from app.engine.public.rows import PublicRows, entity_starts, public_problems, read_public
from app.engine.schema import PrivacyUnit, Schema
from app.engine.synthesizers.class_resampling.entity_classes import (
    EntityClasses,
    Groups,
    Split,
    default_splits,
    grouped,
    split_problems,
)
from app.engine.synthesizers.class_resampling.entity_pool import (
    ClassResamplingModel,
    EntityPool,
    load_model,
)
from app.engine.table import PublicTable, generator

# As read, translated, bounded, and in the stored model.
_COPIES_OF_PUBLIC = 4

# The 38 classes of the published code, on the challenge's columns.
SPRINT3: Mapping[str, Any] = {
    "groups": {"shift": [list(range(day, day + 3)) for day in range(1, 19, 3)] + [[19, 20, 0]]},
    "classes": [
        {"feature": "rows_per", "column": "shift", "cuts": [5, 11, 17], "closed": "right"},
        {"feature": "std_per", "column": "shift", "cuts": [2], "closed": "right", "within": [0]},
        {"feature": "std_per", "column": "shift", "cuts": [3, 6], "closed": "right", "within": [1]},
        {"feature": "std_per", "column": "shift", "cuts": [6], "closed": "right", "within": [2]},
        {
            "feature": "top_share",
            "column": "pickup_community_area",
            "cuts": [1 / 3, 1 / 2],
            "closed": "right",
            "within": [1, 2, 3],
        },
        {
            "feature": "share_count",
            "column": "pickup_community_area",
            "above": 1 / 4,
            "cuts": [2, 3],
            "branches": [0, 1, 0],
            "within": [1, 2, 3],
        },
    ],
}


class ClassResamplingParams(PresetParams):
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {"sprint3": SPRINT3}

    preset: Literal["sprint3"] | None = Field(
        None,
        description="`sprint3`: the published classes, on the columns `shift` and "
        "`pickup_community_area`. Other params override it.",
    )
    columns: ChosenColumns = None
    classes: tuple[Split, ...] | None = Field(
        None,
        min_length=1,
        max_length=100,
        description="Splits of entities into classes, in order; by number of rows if omitted.",
    )
    bins: dict[str, Bins] = Field(
        default_factory=dict,
        description="Bins of a column of `classes`, in place of its dictionary's.",
    )
    groups: dict[str, Groups] = Field(
        default_factory=dict,
        description="Lists of values of a column of `classes`; the values of a list are one cell.",
    )
    redraw: float = Field(
        1.0,
        ge=0,
        le=1,
        description="Probability that a public entity drawn before is drawn again: 1 draws without "
        "replacement until all are drawn, 0 with replacement; 0.8 as published.",
    )
    post_processing: Literal["project", "clip"] = Field(
        "project",
        description="`project`: nearest non-negative class counts with the same sum; `clip`: "
        "negative counts become 0.",
    )
    most_rows: int = Field(
        20_000_000,
        ge=1,
        le=20_000_000,
        description="If the request names no rows, class counts are scaled down to so many rows.",
    )

    def splits(self, unit: PrivacyUnit) -> tuple[Split, ...]:
        return default_splits(unit) if self.classes is None else self.classes

    def chosen(self, schema: Schema) -> tuple[str, ...]:
        everything = tuple(column.name for column in schema.columns)
        return everything if self.columns is None else self.columns


class ClassResampling(Synthesizer):
    name = "class_resampling"
    title = "Public entities resampled to noisy class counts"
    reference = "Histogram Sparsity Reduction, NIST Temporal Map Challenge Sprint 3 (2021)"
    uses_public = "required"
    Params = ClassResamplingParams
    example = Example(
        params={"classes": [{"feature": "rows", "cuts": [3, 10, 30]}]},
        guarantee={"epsilon": 1},
    )

    def needs(self, case: Case, params: ClassResamplingParams) -> Needs:
        schema, unit, public = case.schema, case.unit, case.public
        # Columns are drawn whole, so bins that are still to be measured do not matter.
        axes, problems = choose_axes(schema, params.columns, {}, measures_bins=True)
        groupings, of_classes = _groupings(schema, params, unit)
        needed = _needed(axes.names, groupings)
        problems += _unit_problems(unit) + of_classes
        problems += public_problems(schema, unit, public, needed, needs_entities=True)
        classes, too_many = _classes(params, unit, groupings)
        cells = 0 if classes is None else classes.function.cells
        rows = 0 if public is None else public.rows
        question = Count() if classes is None else Count.of_units(classes.function)
        (error,) = expected_errors((question,), (1.0,), case.budget)
        return Needs.of_table(len(axes.names), case.limits) + Needs(
            cells=cells,
            memory_bytes=rows * 8 * (len(needed) + 1) * _COPIES_OF_PUBLIC,
            draws=cells,
            noise_scale=noise_scale([error], question.contribution),
            expected_error=error,
            problems=problems + too_many,
        )

    def check_public(
        self,
        schema: Schema,
        unit: PrivacyUnit,
        params: ClassResamplingParams,
        loss: PrivacyLoss,
        public: PublicChunks,
    ) -> tuple[Problem, ...]:
        del loss
        groupings, _ = _groupings(schema, params, unit)
        return fit_problems(schema, public, _needed(params.chosen(schema), groupings))

    def fit(
        self,
        session: Session,
        params: ClassResamplingParams,
        public: PublicTable | None,
        seed: int,
        progress: Progress,
    ) -> ClassResamplingModel:
        schema, unit = session.schema, session.unit
        groupings, _ = _groupings(schema, params, unit)
        classes, _ = _classes(params, unit, groupings)
        assert public is not None
        assert classes is not None
        progress(0.05, "reading the public table")
        rng = generator(seed)
        chosen = params.chosen(schema)
        rows = read_public(public, schema, _needed(chosen, groupings))
        pool = _pool(rows.bounded(unit, rng), classes, schema, chosen)
        progress(0.4, "counting classes")
        loss = PrivacyLoss(session.allowance.kind, session.allowance.amount)
        (answer,) = session.count((Count.of_units(classes.function),), loss)
        counts = _post_processed(answer, params, rng)
        model = ClassResamplingModel(pool, classes.paths, counts, params.redraw)
        return _scaled_down(model, params.most_rows, rng)

    def load(self, schema: Schema, unit: PrivacyUnit, data: bytes) -> ClassResamplingModel:
        return load_model(schema, unit, data)


def _needed(chosen: Sequence[str], groupings: Mapping[str, Grouping]) -> tuple[str, ...]:
    """The public columns that are read: those to be made, and those of the classes."""
    return tuple(dict.fromkeys((*chosen, *groupings)))


def _groupings(
    schema: Schema, params: ClassResamplingParams, unit: PrivacyUnit
) -> tuple[dict[str, Grouping], tuple[Problem, ...]]:
    """How each column of the classes is cut, and what is wrong with the splits."""
    splits = params.splits(unit)
    problems = split_problems(splits, schema)
    known = {column.name for column in schema.columns}
    named = dict.fromkeys(split.column for split in splits if split.column in known)
    names = [name for name in named if name is not None]
    axes, of_axes = choose_axes(schema, names, params.bins)
    problems += tuple(each for each in of_axes if each.pointer.startswith("/params/bins/"))
    groupings = dict(axes.groupings)
    for name, groups in params.groups.items():
        pointer = f"/params/groups/{escaped(name)}"
        if name not in groupings:
            problems += (
                Problem(pointer, f"`{name}` is no column of `classes`", "group columns of splits"),
            )
            continue
        try:
            groupings[name] = grouped(schema.column(name), groupings[name], groups)
        except ValueError as error:
            problems += (Problem(pointer, str(error), "list declared values, each once"),)
    return groupings, problems


def _classes(
    params: ClassResamplingParams, unit: PrivacyUnit, groupings: Mapping[str, Grouping]
) -> tuple[EntityClasses | None, tuple[Problem, ...]]:
    try:
        return EntityClasses.of(params.splits(unit), groupings), ()
    except ValueError as error:
        return None, (Problem("/params/classes", str(error), "make fewer splits, or fewer cuts"),)


def _unit_problems(unit: PrivacyUnit) -> tuple[Problem, ...]:
    if unit.kind == "entity":
        return ()
    message = "classes are of entities with all their rows, and here each row is its own unit"
    return (
        Problem(
            "/synthesizer",
            message,
            "declare the dataset with an `entity` unit, or choose `swift`",
        ),
    )


def _pool(
    rows: PublicRows, classes: EntityClasses, schema: Schema, chosen: tuple[str, ...]
) -> EntityPool:
    """The chosen columns of rows that lie entity after entity."""
    numbers = evaluate(classes.function, rows.codes, rows.entity, schema)
    starts = entity_starts(rows.rows_per_entity())
    return EntityPool({name: rows.codes[name] for name in chosen}, starts, numbers)


def _post_processed(
    answer: Measurement, params: ClassResamplingParams, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Entities of each class, not negative; projected ones keep the noisy counts' own sum."""
    if params.post_processing == "clip":
        return np.maximum(answer.values, 0)
    total = max(0, int(answer.values.sum()))
    projected = onto_simplex(answer.values.astype(np.float64), total)
    return apportion(projected, total, rng) if total else np.zeros_like(answer.values)


def _scaled_down(
    model: ClassResamplingModel, most_rows: int, rng: np.random.Generator
) -> ClassResamplingModel:
    expected = float(model.class_counts @ model.mean_rows)
    if expected <= most_rows:
        return model
    entities = int(model.class_counts.sum() * (most_rows / expected))
    counts = apportion(model.class_counts.astype(np.float64), entities, rng)
    return replace(model, class_counts=counts)

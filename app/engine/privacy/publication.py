"""Measurements as they are published: the noisy answers of a release, with errors and costs."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from app.engine.privacy import queries
from app.engine.privacy.certificate import columns_of, quantile_to_wire, query_to_wire
from app.engine.privacy.journal import Record
from app.engine.privacy.questions import AnsweredQuantile
from app.engine.schema import Schema

Table = queries.Measurement | queries.Discovered | queries.FoundValues
Texts = NDArray[np.object_]


def measurement_to_wire(record: Record, schema: Schema) -> dict[str, Any]:
    """One noisy answer as JSON: `values` is flat, in C order of `columns`.

    Tuples and discovered keys are no product of columns: they have no `columns`, and each
    entry of `listed` gives the cell of each column that its value is about. Scores have none
    either: each entry of `candidates` states what was compared with its reference. A quantile
    is no count: it has no `values`, and `quantile` gives the point that was drawn.
    """
    cost = {"question": record.question, "loss": record.loss.as_wire()}
    match record.answer:
        case queries.Scored() as scored:
            return _scored_to_wire(scored) | cost
        case AnsweredQuantile() as quantile:
            return _quantile_to_wire(quantile, schema) | cost
        case table:
            return _table_to_wire(table, schema) | cost


# Their cells are listed one by one, not spanned by the axes of columns.
_LISTED = (queries.Keys, queries.TupleCount, queries.Values)


def _table_to_wire(measurement: Table, schema: Schema) -> dict[str, Any]:
    query = _query(measurement)
    is_listed = isinstance(query, _LISTED)
    axes = [] if isinstance(query, _LISTED) else _axes(query, schema)
    wire = {
        "columns": [{"name": name, "cells": labels} for name, labels in axes],
        "values": measurement.values.reshape(-1).tolist(),
        "noise": f"discrete {_noise(measurement)}",
        "scale": measurement.scale,
        "standard_error": measurement.standard_error,
        "sensitivity": {"l1": measurement.l1_sensitivity, "l2": measurement.l2_sensitivity},
        "contribution": query_to_wire(query),
    }
    if is_listed:
        names, cells = _places(measurement, schema)
        pairs = zip(names.tolist(), cells.tolist(), strict=True)
        wire["listed"] = [dict(zip(*pair, strict=True)) for pair in pairs]
    if isinstance(measurement, queries.Discovered | queries.FoundValues):
        wire["threshold"] = measurement.threshold
    elif isinstance(query, queries.Sum):
        wire["step"] = measurement.step
    return wire


def measurements_to_arrow(records: Sequence[Record], schema: Schema) -> pa.Table:
    """A row for each noisy cell: `measurement` and `question` (numbers), `columns` and `cell`
    (lists of text), `value` (int64, in `step`s), `standard_error`, `scale`, `noise`, `rule`, and
    of a sum the column `sum_of` and the value of a `step`. A score has the columns of its
    candidate and no cell. A `quantile` (0 to 1) has its point as the cell, and no value."""
    empty = pa.table({field.name: pa.array([], field.type) for field in _LONG_FORM}, _LONG_FORM)
    parts = [_long_form(number, each, schema) for number, each in enumerate(records)]
    return pa.concat_tables([empty, *parts])


_LONG_FORM = pa.schema(
    [
        pa.field("measurement", pa.int64()),
        pa.field("question", pa.int64()),
        pa.field("columns", pa.list_(pa.string())),
        pa.field("cell", pa.list_(pa.string())),
        pa.field("value", pa.int64()),
        pa.field("standard_error", pa.float64()),
        pa.field("scale", pa.float64()),
        pa.field("noise", pa.string()),
        pa.field("rule", pa.string()),
        pa.field("sum_of", pa.string()),
        pa.field("step", pa.float64()),
        pa.field("quantile", pa.float64()),
    ]
)


def _scored_to_wire(scored: queries.Scored) -> dict[str, Any]:
    errors = (scored.standard_error / queries.SCORE_STEP).tolist()
    totals = scored.reference_totals.tolist()
    return {
        "columns": [],
        "values": _score_steps(scored).tolist(),
        "noise": f"discrete {scored.noise}",
        "scale": float(scored.scale.min()) / queries.SCORE_STEP,
        "standard_error": min(errors),
        "sensitivity": {
            "l1": scored.l1_sensitivity / queries.SCORE_STEP,
            "l2": scored.l2_sensitivity / queries.SCORE_STEP,
        },
        "contribution": {"scores": len(scored.counts)},
        "candidates": [
            {
                "columns": list(columns_of(count)),
                "contribution": query_to_wire(count),
                "reference_total": total,
                "standard_error": error,
            }
            for count, total, error in zip(scored.counts, totals, errors, strict=True)
        ],
        "step": queries.SCORE_STEP,
    }


def _quantile_to_wire(quantile: AnsweredQuantile, schema: Schema) -> dict[str, Any]:
    answer = quantile.answer
    name, point = _point(quantile, schema)
    return {
        "columns": [],
        "values": [],
        "noise": answer.mechanism,
        "scale": answer.scale,
        "standard_error": None,
        "sensitivity": {"l1": answer.sensitivity, "l2": None},
        "contribution": quantile_to_wire(quantile.query),
        "quantile": {
            "of": name,
            "q": quantile.query.q,
            "point": point,
            "points": len(quantile.query.grid),
            "rank_error": quantile.rank_error(),
        },
    }


def _point(quantile: AnsweredQuantile, schema: Schema) -> tuple[str, str]:
    """The column, or what is numbered of a unit, and how the point reads."""
    of, value = quantile.query.of, quantile.answer.value
    if isinstance(of, str):
        return of, schema.column(of).text_at(value)
    return quantile_to_wire(quantile.query)["number"], f"{Decimal(repr(value)).normalize():f}"


def _quantile_long_form(number: int, record: Record, schema: Schema) -> pa.Table:
    assert isinstance(record.answer, AnsweredQuantile)
    name, point = _point(record.answer, schema)
    row = {
        "measurement": number,
        "question": record.question,
        "columns": [name],
        "cell": [point],
        "scale": record.answer.answer.scale,
        "noise": record.answer.answer.mechanism,
        "rule": quantile_to_wire(record.answer.query)["rule"],
        "quantile": record.answer.query.q,
    }
    return pa.Table.from_pylist([row], schema=_LONG_FORM)


def _score_steps(scored: queries.Scored) -> NDArray[np.int64]:
    return np.rint(scored.values / queries.SCORE_STEP).astype(np.int64)


def _scored_long_form(number: int, question: int, scored: queries.Scored) -> pa.Table:
    scores = len(scored.counts)
    columns = [list(columns_of(count)) for count in scored.counts]
    return pa.table(
        [
            pa.array(np.full(scores, number)),
            pa.array(np.full(scores, question)),
            pa.array(columns, pa.list_(pa.string())),
            pa.array([[]] * scores, pa.list_(pa.string())),
            pa.array(_score_steps(scored)),
            pa.array(scored.standard_error / queries.SCORE_STEP),
            pa.array(scored.scale / queries.SCORE_STEP),
            pa.repeat(f"discrete {scored.noise}", scores),
            pa.array([count.contribution.rule for count in scored.counts]),
            pa.nulls(scores, pa.string()),
            pa.array(np.full(scores, queries.SCORE_STEP)),
            pa.nulls(scores, pa.float64()),
        ],
        schema=_LONG_FORM,
    )


def _long_form(number: int, record: Record, schema: Schema) -> pa.Table:
    measurement = record.answer
    if isinstance(measurement, queries.Scored):
        return _scored_long_form(number, record.question, measurement)
    if isinstance(measurement, AnsweredQuantile):
        return _quantile_long_form(number, record, schema)
    cells = measurement.values.size
    query = _query(measurement)
    names, labels = _places(measurement, schema)
    step = measurement.step if isinstance(measurement, queries.Measurement) else 1.0
    sum_of = query.value if isinstance(query, queries.Sum) else None
    return pa.table(
        [
            pa.array(np.full(cells, number)),
            pa.array(np.full(cells, record.question)),
            _lists(names),
            _lists(labels),
            pa.array(measurement.values.reshape(-1)),
            pa.array(np.full(cells, measurement.standard_error)),
            pa.array(np.full(cells, measurement.scale)),
            pa.repeat(f"discrete {_noise(measurement)}", cells),
            pa.repeat(query.contribution.rule, cells),
            pa.repeat(pa.scalar(sum_of, pa.string()), cells),
            pa.array(np.full(cells, step)),
            pa.nulls(cells, pa.float64()),
        ],
        schema=_LONG_FORM,
    )


def _query(measurement: Table) -> queries.Query | queries.Keys | queries.Values:
    return measurement.count if isinstance(measurement, queries.Measurement) else measurement.query


def _noise(measurement: Table) -> str:
    return measurement.noise if isinstance(measurement, queries.Measurement) else "gaussian"


def _places(measurement: Table, schema: Schema) -> tuple[Texts, Texts]:
    """For each value the columns that it is about and its cells there, both (values, width)."""
    if isinstance(measurement, queries.FoundValues):
        cells = np.array(measurement.texts, dtype=object).reshape(-1, 1)
        return np.full(cells.shape, measurement.query.column, dtype=object), cells
    if isinstance(measurement, queries.Discovered):
        return _picked(measurement.keys, _axes(measurement.query, schema))
    if isinstance(measurement.count, queries.TupleCount):
        return _of_tuples(measurement.count.tuples, schema)
    shape = measurement.shape
    places = np.indices(shape).reshape(len(shape), measurement.values.size).T
    return _picked(places, _axes(measurement.count, schema))


def _picked(
    places: NDArray[np.int64], axes: Sequence[tuple[str, list[str]]]
) -> tuple[Texts, Texts]:
    names = np.tile(np.array([name for name, _ in axes], dtype=object), (len(places), 1))
    cells = np.empty(places.shape, dtype=object)
    for axis, (_, labels) in enumerate(axes):
        cells[:, axis] = np.array(labels, dtype=object)[places[:, axis]]
    return names, cells


def _of_tuples(tuples: queries.Tuples, schema: Schema) -> tuple[Texts, Texts]:
    axes = _axes(tuples, schema)
    names = [name for name, labels in axes for _ in labels]
    cells = [label for _, labels in axes for label in labels]
    return np.array(names, dtype=object)[tuples.items], np.array(cells, dtype=object)[tuples.items]


def _axes(
    query: queries.Query | queries.Keys | queries.Tuples, schema: Schema
) -> list[tuple[str, list[str]]]:
    """Each column, or the function, with the labels of its cells."""
    if isinstance(query, queries.Count) and query.function is not None:
        return [(query.function.to_json()["function"], list(query.function.labels))]
    parts = query.parts if isinstance(query, queries.Tuples) else {}
    return [
        (
            name,
            list(parts[name].names)
            if name in parts
            else schema.column(name).labels(query.groupings.get(name)),
        )
        for name in query.columns
    ]


def _lists(texts: Texts) -> pa.Array:
    cells, width = texts.shape
    offsets = pa.array(np.arange(cells + 1, dtype=np.int32) * width, pa.int32())
    return pa.ListArray.from_arrays(offsets, pa.array(texts.reshape(-1), pa.string()))

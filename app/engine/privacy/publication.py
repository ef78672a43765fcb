"""Measurements as they are published: the noisy tables of a release, with their errors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from app.engine.grouping import Grouping
from app.engine.privacy.certificate import contribution_to_wire
from app.engine.privacy.queries import Measurement
from app.engine.schema import Schema


def measurement_to_wire(measurement: Measurement, schema: Schema) -> dict[str, Any]:
    """One noisy histogram as JSON: `values` is flat, in C order of `columns`."""
    return {
        "columns": [
            {"name": name, "cells": labels}
            for name, labels in zip(measurement.columns, _labels(measurement, schema), strict=True)
        ],
        "values": measurement.values.reshape(-1).tolist(),
        "noise": f"discrete {measurement.noise}",
        "scale": measurement.scale,
        "standard_error": measurement.standard_error,
        "sensitivity": {"l1": measurement.l1_sensitivity, "l2": measurement.l2_sensitivity},
        "contribution": contribution_to_wire(measurement.count.contribution),
    }


def measurements_to_arrow(measurements: Sequence[Measurement], schema: Schema) -> pa.Table:
    """A row for each noisy cell: `measurement` (number), `columns` and `cell` (lists of text),
    `value` (int64), `standard_error`, `scale`, `noise` and `rule`."""
    empty = pa.table({field.name: pa.array([], field.type) for field in _LONG_FORM}, _LONG_FORM)
    parts = [_long_form(number, each, schema) for number, each in enumerate(measurements)]
    return pa.concat_tables([empty, *parts])


_LONG_FORM = pa.schema(
    [
        pa.field("measurement", pa.int64()),
        pa.field("columns", pa.list_(pa.string())),
        pa.field("cell", pa.list_(pa.string())),
        pa.field("value", pa.int64()),
        pa.field("standard_error", pa.float64()),
        pa.field("scale", pa.float64()),
        pa.field("noise", pa.string()),
        pa.field("rule", pa.string()),
    ]
)


def _long_form(number: int, measurement: Measurement, schema: Schema) -> pa.Table:
    cells = measurement.values.size
    columns = list(measurement.columns)
    return pa.table(
        [
            pa.array(np.full(cells, number)),
            _lists(np.tile(np.array(columns, dtype=object), cells), len(columns), cells),
            _cells(measurement, schema),
            pa.array(measurement.values.reshape(-1)),
            pa.array(np.full(cells, measurement.standard_error)),
            pa.array(np.full(cells, measurement.scale)),
            pa.repeat(f"discrete {measurement.noise}", cells),
            pa.repeat(measurement.count.contribution.rule, cells),
        ],
        schema=_LONG_FORM,
    )


def _cells(measurement: Measurement, schema: Schema) -> pa.Array:
    """The labels of each cell, one for each column, in C order."""
    cells = measurement.values.size
    places = np.indices(measurement.shape).reshape(len(measurement.shape), cells)
    texts = np.empty((cells, len(measurement.shape)), dtype=object)
    for axis, labels in enumerate(_labels(measurement, schema)):
        texts[:, axis] = np.array(labels, dtype=object)[places[axis]]
    return _lists(texts.reshape(-1), len(measurement.shape), cells)


def _lists(texts: Any, width: int, cells: int) -> pa.Array:
    offsets = pa.array(np.arange(cells + 1, dtype=np.int32) * width, pa.int32())
    return pa.ListArray.from_arrays(offsets, pa.array(texts, pa.string()))


def _labels(measurement: Measurement, schema: Schema) -> list[list[str]]:
    groupings: dict[str, Grouping] = dict(measurement.count.groupings)
    return [schema.column(name).labels(groupings.get(name)) for name in measurement.columns]

from __future__ import annotations

import numpy as np
import pytest
from small_tables import ROW, colours

from app.engine.columns.axes import choose_axes
from app.engine.columns.rare_cells import Compression
from app.engine.columns.table_size import Size
from app.engine.graphical.table_model import TableModel
from app.engine.inference.estimation import fit
from app.engine.inference.measurements import NoisyMarginal
from app.engine.method.model_file import ModelFormatError, pack, unpack
from app.engine.schema import PrivacyUnit
from app.engine.table import generator


def tied(rows: int = 400) -> TableModel:
    """The size is 0 for red and 1 for green rows; 2 to 9 are rare, and merged."""
    axes, _ = choose_axes(colours(), ["colour", "size"], {})
    counts = np.array([300.0, 90.0, 0, 0, 4, 0, 6, 0, 0, 0])
    compressions = (
        Compression.below(np.array([300.0, 90.0, 10.0, 0.0]), 0),
        Compression.below(counts, 20.0),
    )
    pairs = np.array([[300.0, 0, 0], [0, 90, 0], [0, 0, 10], [0, 0, 0]])
    graph = fit(
        {"colour": 4, "size": 3},
        [NoisyMarginal(("colour", "size"), pairs, np.full((4, 3), 0.01))],
        rows,
    )
    return TableModel("swift", axes, compressions, graph, Size(rows, None, 1))


def test_a_noisy_count_beyond_the_public_bound_is_that_bound() -> None:
    assert tied(400).rows_to_ask(None, 399) == 399
    assert tied(400).rows_to_ask(None, 400) is None
    assert tied(400).rows_to_ask(1000, 399) == 1000


def test_rows_follow_the_model_and_merged_cells_are_restored() -> None:
    table = tied().sample(None, generator(0))
    assert table.rows == 400
    assert np.bincount(table.codes["colour"], minlength=4) == pytest.approx([300, 90, 10, 0], abs=3)
    assert (table.codes["size"][table.codes["colour"] == 0] == 0).mean() > 0.99
    restored = table.codes["size"][table.codes["size"] > 1]
    assert np.bincount(restored, minlength=10)[[4, 6]] == pytest.approx([4, 6], abs=1)


def test_a_stored_model_gives_the_same_rows() -> None:
    model = tied()
    data = model.dump()
    loaded = TableModel.load("swift", colours(), ROW, data)
    assert loaded.dump() == data
    first, second = (each.sample(50, generator(3)).codes for each in (model, loaded))
    assert all(np.array_equal(first[name], second[name]) for name in first)


def test_rows_of_entities_are_dealt() -> None:
    model = tied()
    sized = TableModel(model.method, model.axes, model.compressions, model.graph, Size(9, 3, 3))
    table = sized.sample(None, generator(0))
    assert table.entity is not None
    assert np.bincount(table.entity).tolist() == [3, 3, 3]


def test_what_does_not_fit_together_is_refused() -> None:
    data = tied().dump()
    with pytest.raises(ModelFormatError, match="another method than `aim`"):
        TableModel.load("aim", colours(), ROW, data)
    with pytest.raises(ModelFormatError):
        TableModel.load("swift", colours(), PrivacyUnit("entity", "id", 3), data)
    header, arrays = unpack(data)
    for name, wrong in (
        ("shares", arrays["shares"] * 2),
        ("shares", arrays["shares"][1:]),
        ("parents", np.array([5])),
        ("clique_axes", np.array([0, 7])),
        ("merge1", np.array([0, 1, 2])),
        ("merge1", np.full(10, -1)),
        ("merge1", np.zeros((2, 5), dtype=np.int64)),
        ("merged_shares1", np.zeros(10)),
    ):
        with pytest.raises(ModelFormatError):
            TableModel.load("swift", colours(), ROW, pack(header, arrays | {name: wrong}))

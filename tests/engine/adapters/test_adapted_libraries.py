"""The libraries themselves, where their virtualenvs are."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
from adapter_tables import ADAPTERS, needs, pairs, pairs_schema

from app.engine.adapters import synthesizer, virtualenvs
from app.engine.adapters.libraries import LEFT_OUT, LIBRARIES
from app.engine.adapters.synthesizer import Adapted, DpmmAim, DpmmMst, SmartnoiseAim
from app.engine.adapters.virtualenvs import NotInstalled
from app.engine.catalog import registry
from app.engine.privacy.library import open_session
from app.engine.privacy.loss import PrivacyLoss
from app.engine.privacy.queries import QuestionRefused
from app.engine.schema import PrivacyUnit
from app.engine.table import generator

ROWS = 600
QUICK = {"iterations": 30}


def session_of(
    unit: PrivacyUnit = PrivacyUnit("row"), *, rows: int = ROWS, trusted: bool = True
) -> Any:
    entities = np.arange(rows) // 2 if unit.kind == "entity" else None
    return open_session(
        pairs(rows),
        pairs_schema(entity=unit.kind == "entity"),
        unit,
        PrivacyLoss.zcdp(10**12),
        entities=entities,
        trusted=trusted,
    )


def no_progress(fraction: float, stage: str) -> None:
    del fraction, stage


@needs("dpmm")
def test_a_library_fits_what_two_columns_say_of_each_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    method = DpmmMst()
    monkeypatch.setenv(virtualenvs.VARIABLE, str(ADAPTERS))
    session = session_of()
    model = method.fit(session, method.Params(**QUICK), None, 1, no_progress)
    assert session.remaining == PrivacyLoss.zcdp(0)
    stored = method.load(session.schema, session.unit, model.dump())
    # Noise of a few counts in 600: 9 of 10 rows agree, and no seed is taken for privacy.
    assert abs(stored.noisy_rows - ROWS) < 100
    table = stored.sample(5000, generator(2))
    assert 0.75 < (table.codes["a"] == table.codes["b"]).mean() < 1


@pytest.mark.parametrize(
    ("method", "form"),
    [
        pytest.param(DpmmAim(), QUICK, marks=needs("dpmm")),
        pytest.param(SmartnoiseAim(), {}, marks=needs("smartnoise")),
    ],
)
def test_a_table_without_rows_gives_itself_away_by_no_failure(
    monkeypatch: pytest.MonkeyPatch, method: Adapted, form: dict[str, int]
) -> None:
    monkeypatch.setenv(virtualenvs.VARIABLE, str(ADAPTERS))
    session = session_of(rows=0)
    model = method.fit(session, method.Params(**form), None, 1, no_progress)
    assert model.sample(20, generator(1)).rows == 20


@needs("dpmm")
def test_an_entitys_rows_share_what_was_charged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(virtualenvs.VARIABLE, str(ADAPTERS))
    orders = []

    def watched(order: synthesizer.Order, cells: Any, columns: Any) -> bytes:
        orders.append(order.guarantee)
        return original(order, cells, columns)

    original = synthesizer.Order.request
    monkeypatch.setattr(synthesizer.Order, "request", watched)
    method = DpmmAim()
    session = session_of(PrivacyUnit("entity", "id", 2))
    model = method.fit(session, method.Params(**QUICK), None, 1, no_progress)
    assert session.remaining == PrivacyLoss.zcdp(0)
    assert [told.rho for told in orders] == [0.25]
    table = model.sample(30, generator(1))
    assert table.entity is not None
    assert np.unique(table.entity).size == 30


def test_without_a_virtualenv_nothing_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    session = session_of()
    for folder in (None, str(tmp_path)):
        if folder is None:
            monkeypatch.delenv(virtualenvs.VARIABLE, raising=False)
        else:
            monkeypatch.setenv(virtualenvs.VARIABLE, folder)
        with pytest.raises(NotInstalled):
            DpmmMst().fit(session, DpmmMst().Params(), None, 1, no_progress)
    assert session.remaining == session.allowance


def test_who_is_not_declared_gets_no_table(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    library = LIBRARIES["dpmm"]
    place = virtualenvs.place(tmp_path, library)
    (place / "bin").mkdir(parents=True)
    (place / "bin" / "python").symlink_to(sys.executable)
    (place / "complete").touch()
    monkeypatch.setenv(virtualenvs.VARIABLE, str(tmp_path))
    assert virtualenvs.is_installed(tmp_path, library)
    session = session_of(trusted=False)
    with pytest.raises(QuestionRefused):
        DpmmMst().fit(session, DpmmMst().Params(), None, 1, no_progress)


@pytest.mark.parametrize("library", LIBRARIES.values(), ids=str)
def test_a_lock_pins_hashes_and_names_no_place(library: Any) -> None:
    lock = library.lock.read_text()
    assert "://" not in lock
    assert "--index" not in lock
    pins = [line for line in lock.splitlines() if not line.startswith(" ")]
    assert all("==" in pin and pin.endswith("\\") for pin in pins)
    assert library.version


def test_adapters_are_registered_by_name_alone_and_always_declared() -> None:
    assert not [entry for entry in registry.entries() if entry.adapter]
    entry = registry.entry("dpmm:mst", declared={"dpmm:mst"})
    assert (entry.assurance, entry.distribution, entry.builtin, entry.ours) == (
        "declared",
        "dpmm",
        False,
        True,
    )
    assert entry.version == LIBRARIES["dpmm"].version
    for name in ("dpmm:aim", "dpmm:mst", "smartnoise:aim"):
        assert registry.load(name).name == name
        assert name not in LEFT_OUT

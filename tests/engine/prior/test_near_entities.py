"""`mst`, `swift` and `aim` beside a public table of entities: kept whole, or made of rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from public_tables import CELLS, FIELDS, Codes, contrary, pair_distance, rows_of
from small_tables import EXACT, LIMITS, quiet

from app.engine.catalog.registry import builtin
from app.engine.columns.axes import choose_axes
from app.engine.graphical.table_model import TableModel
from app.engine.grouping import Grouping
from app.engine.method import PublicFacts
from app.engine.method.model_file import ModelFormatError
from app.engine.prior.distances import PairDistances
from app.engine.prior.drift import near_entities
from app.engine.prior.entities import near_entities as room
from app.engine.prior.entities.fitting import constant_within_entities
from app.engine.prior.entities.model import PublicReweightedModel
from app.engine.prior.entities.near_entities import MOST_ROWS, WeightedEntities, may_use_entities
from app.engine.prior.entities.selection import Option, most_informative
from app.engine.privacy.library import open_session
from app.engine.privacy.loss import PrivacyLoss
from app.engine.privacy.queries import Contribution, Count
from app.engine.privacy.sensitivity import LARGEST_CLIPPED
from app.engine.privacy.unit_budget import UnitBudget
from app.engine.public.rows import read_public
from app.engine.schema import PrivacyUnit, Schema
from app.engine.synthesizers.aim.bounds import BoundedModel
from app.engine.table import PublicTable, Table

METHODS = ("mst", "swift", "aim")
UNIT = PrivacyUnit("entity", "id", 8)
SCHEMA = Schema.parse({"fields": [{"name": "id", "type": "string", "role": "entity"}, *FIELDS]})
ZCDP = PrivacyLoss.zcdp(10**12)
LITTLE_NOISE = PrivacyLoss.zcdp(10**14)


def people(number: int, seed: int) -> tuple[Codes, np.ndarray]:
    """Rows of so many people, 1 to 8 of each, all of one `e`."""
    rng = np.random.default_rng(seed)
    entity = np.repeat(np.arange(number), rng.integers(1, 9, number))
    codes = rows_of(len(entity), seed)
    codes["e"] = rng.integers(0, 3, number)[entity]
    return codes, entity


PRIVATE = people(700, 1)
ALIKE = people(500, 2)
CONTRARY = (contrary(ALIKE[0]), ALIKE[1])


def public_of(table: tuple[Codes, np.ndarray], schema: Schema = SCHEMA) -> PublicTable:
    codes, entity = table
    return PublicTable(schema, Table(codes, len(entity), entity.astype(np.int64)))


def session_on(loss: PrivacyLoss, table: tuple[Codes, np.ndarray] = PRIVATE) -> Any:
    return open_session(table[0], SCHEMA, UNIT, loss, entities=table[1])


def model_of(method: str, public: PublicTable, session: Any, seed: int = 3, **form: Any) -> Any:
    synthesizer = builtin(method)
    made = synthesizer.fit(session, synthesizer.Params(**form), public, seed, quiet)
    return made.table if isinstance(made, BoundedModel) else made


@pytest.mark.parametrize("method", METHODS)
def test_public_entities_alike_are_kept_and_contrary_ones_are_not(method: str) -> None:
    """Public people who are the private ones are nearer than any model of rows: by about 0.04
    of what independence is off, with a standard error of at most 0.006. Contrary ones are 0.16
    beyond the half of that."""
    session = session_on(LITTLE_NOISE)
    kept = model_of(method, public_of(PRIVATE), session)
    assert isinstance(kept, PublicReweightedModel)
    assert kept.method == method
    assert session.remaining.amount <= 100
    made = kept.sample(None, np.random.default_rng(0))
    assert pair_distance(PRIVATE[0], made.codes) < 0.05
    assert made.entity is not None
    assert abs(made.entity.max() + 1 - 700) < 35
    e = np.unique(np.stack([made.entity, made.codes["e"]]), axis=1).shape[1]
    assert e < 1.1 * (made.entity.max() + 1), "a person has one `e`"
    made = model_of(method, public_of(CONTRARY), session_on(LITTLE_NOISE))
    assert isinstance(made, TableModel)


def test_the_form_can_force_either_way() -> None:
    grouped = model_of("swift", public_of(ALIKE), session_on(ZCDP), public_entities="group")
    assert isinstance(grouped, TableModel)
    kept = model_of("swift", public_of(CONTRARY), session_on(ZCDP), public_entities="keep")
    assert isinstance(kept, PublicReweightedModel)


@pytest.mark.parametrize("method", METHODS)
def test_a_model_of_public_entities_is_stored_and_read_by_its_own_method_alone(
    method: str,
) -> None:
    model = model_of(method, public_of(ALIKE), session_on(ZCDP), public_entities="keep")
    data = model.dump()
    again = builtin(method).load(SCHEMA, UNIT, data)
    assert again.dump() == data
    first, second = (each.sample(500, np.random.default_rng(5)) for each in (model, again))
    assert all((first.codes[name] == second.codes[name]).all() for name in CELLS)
    for other in {*METHODS, "public_reweighted"} - {method}:
        with pytest.raises(ModelFormatError):
            builtin(other).load(SCHEMA, UNIT, data)


class Replayed:
    """A session over another private table that gives the recorded answers of the first one."""

    def __init__(self, inner: Any, record: list[Any], *, is_first: bool) -> None:
        self._inner, self._record, self._is_first = inner, record, is_first
        self._place = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def count(self, *asked: Any) -> Any:
        return self._answered("count", *asked)

    def scores(self, *asked: Any) -> Any:
        return self._answered("scores", *asked)

    def _answered(self, kind: str, *asked: Any) -> Any:
        answer = getattr(self._inner, kind)(*asked)
        if self._is_first:
            self._record.append(answer)
        self._place += 1
        return self._record[self._place - 1]


@pytest.mark.parametrize("method", ["mst", "swift"])
def test_the_model_follows_from_noisy_answers_public_rows_and_the_seed_alone(method: str) -> None:
    record: list[Any] = []
    first = Replayed(session_on(ZCDP), record, is_first=True)
    model = model_of(method, public_of(ALIKE), first, public_entities="keep")
    other = Replayed(session_on(ZCDP, people(400, 9)), record, is_first=False)
    again = model_of(method, public_of(ALIKE), other, public_entities="keep")
    assert model.dump() == again.dump()
    other = Replayed(session_on(ZCDP), record, is_first=False)
    third = model_of(method, public_of(ALIKE), other, seed=4, public_entities="keep")
    assert model.dump() != third.dump()


def test_public_values_of_another_dictionary_are_read_as_the_private_one_says() -> None:
    """Public rows with a value of `e` that is not declared are left out, entities that lose all."""
    fields = [dict(field) for field in FIELDS]
    fields[4] = {**fields[4], "constraints": {"minimum": 0, "maximum": 5, "required": True}}
    wide = Schema.parse({"fields": [{"name": "id", "type": "string", "role": "entity"}, *fields]})
    codes, entity = people(500, 2)
    codes["e"] = np.where(entity % 2 == 0, codes["e"] + 3, codes["e"])
    public = public_of((codes, entity), wide)
    kept = model_of("swift", public, session_on(ZCDP), public_entities="keep")
    assert isinstance(kept, PublicReweightedModel)
    assert len(kept.weighted.entities) == 250
    assert kept.sample(300, np.random.default_rng(0)).codes["e"].max() <= 2
    codes["e"] = np.full(len(entity), 5)
    none = model_of("swift", public_of((codes, entity), wide), session_on(ZCDP))
    assert isinstance(none, TableModel)


def test_what_cannot_be_kept_is_told_before_the_charge() -> None:
    facts = PublicFacts(SCHEMA, 2000)
    for method in METHODS:
        synthesizer = builtin(method)

        def check(
            public: PublicFacts | None, entity_use: str = "auto", synthesizer: Any = synthesizer
        ) -> Any:
            params = synthesizer.Params(public_entities=entity_use)
            return synthesizer.check(SCHEMA, UNIT, params, ZCDP, public, LIMITS)

        rowwise = PublicFacts(Schema.parse({"fields": FIELDS}), 2000)
        for public in (None, rowwise, replace(facts, rows=MOST_ROWS + 1)):
            pointers = [each.pointer for each in check(public, "keep").problems]
            assert "/params/public_entities" in pointers
            assert "/params/public_entities" not in [e.pointer for e in check(public).problems]
        assert not check(facts, "keep").problems
        assert check(facts).memory_bytes > check(facts, "group").memory_bytes


def test_a_loss_of_which_a_merged_pair_would_get_nothing_is_refused_before_the_charge() -> None:
    fields: list[dict[str, Any]] = [{"name": "id", "type": "string", "role": "entity"}]
    limits = {"minimum": 0, "maximum": 4, "required": True}
    fields += [{"name": f"c{i}", "type": "integer", "constraints": limits} for i in range(60)]
    schema, unit = Schema.parse({"fields": fields}), PrivacyUnit("entity", "id", 20)
    facts = PublicFacts(schema, 2000)
    for method in ("mst", "swift", "aim"):
        synthesizer = builtin(method)
        small, large = (
            synthesizer.check(
                schema, unit, synthesizer.Params(), PrivacyLoss.zcdp(amount), facts, LIMITS
            ).problems
            for amount in (10**6, 10**12)
        )
        assert small
        assert not large


def test_entities_may_be_kept_where_both_tables_have_some() -> None:
    facts = PublicFacts(SCHEMA, 2000)
    assert may_use_entities(UNIT, facts, "auto")
    assert not may_use_entities(UNIT, facts, "group")
    assert not may_use_entities(PrivacyUnit("row"), facts, "keep")
    assert not may_use_entities(PrivacyUnit("entity", "id", 1), facts, "keep")


def compared(
    start: float, independence: float, entities: float, error: float = 1.0
) -> PairDistances:
    return PairDistances(("a", "b"), start, independence, 50.0, error, entities, 50.0)


@pytest.mark.parametrize(
    ("start", "independence", "entities", "is_kept"),
    [
        (100.0, 900.0, 80.0, True),
        (100.0, 900.0, 102.5, True),
        (80.0, 900.0, 120.0, False),
        (800.0, 900.0, 700.0, False),
        (100.0, 150.0, 95.0, False),
    ],
)
def test_entities_are_kept_if_nearer_than_the_start_and_half_of_independence(
    start: float, independence: float, entities: float, is_kept: bool
) -> None:
    kept = _kept()
    found = near_entities(kept, [compared(start, independence, entities)], "auto")
    assert (found is not None) == is_kept
    assert near_entities(kept, [compared(start, independence, entities)], "keep") is not None
    assert near_entities(None, [compared(start, independence, entities)], "keep") is None
    if found is not None:
        total = kept.columns.total
        assert found.distances["a", "b"] == pytest.approx((entities - 2) / total)


def _kept() -> WeightedEntities:
    seen: list[WeightedEntities] = []
    real = WeightedEntities.measured

    def measured(self: WeightedEntities, *asked: Any) -> Any:
        seen.append(self)
        return real(self, *asked)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(WeightedEntities, "measured", measured)
        model_of("swift", public_of(ALIKE), session_on(ZCDP), public_entities="keep")
    return seen[0]


def test_pairs_are_counted_in_own_cells_where_all_together_are_few(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kept = _kept()
    own, merged = kept.columns.axes.groupings, kept.columns.merged.groupings
    rule = Contribution("distinct", limit=7)
    assert kept._count(("a", "b"), rule).groupings == {name: own[name] for name in "ab"}
    monkeypatch.setattr(room, "most_pair_cells", lambda _: 1)
    assert kept._count(("a", "b"), rule).groupings == {name: merged[name] for name in "ab"}


def test_cells_of_kept_entities_count_against_memory_and_time() -> None:
    schema = Schema.parse(
        {"fields": [{"name": "id", "type": "string", "role": "entity"}, *_wide_fields(60, 250)]}
    )
    facts = PublicFacts(schema, 2000)
    limits = replace(LIMITS, memory_bytes=2**40, time_s=150.0)
    for method in METHODS:
        synthesizer = builtin(method)
        keep, group = (
            synthesizer.check(
                schema, UNIT, synthesizer.Params(public_entities=each), ZCDP, facts, limits
            )
            for each in ("keep", "group")
        )
        assert keep.memory_bytes - group.memory_bytes > 400 * 2**20
        assert any("drawing the noise" in each.message for each in keep.problems)


def _wide_fields(columns: int, values: int) -> list[dict[str, Any]]:
    limits = {"minimum": 1, "maximum": values, "required": True}
    names = [f"c{i}" for i in range(columns)]
    return [{"name": name, "type": "integer", "constraints": limits} for name in names]


@pytest.mark.parametrize("method", METHODS)
def test_entities_of_more_rows_than_can_be_clipped_are_kept_too(method: str) -> None:
    unit = PrivacyUnit("entity", "id", LARGEST_CLIPPED)
    loss = PrivacyLoss.zcdp(10**18)
    session = open_session(PRIVATE[0], SCHEMA, unit, loss, entities=PRIVATE[1])
    model = model_of(method, public_of(ALIKE), session, public_entities="keep")
    assert isinstance(getattr(model, "table", model), PublicReweightedModel)


def test_weighed_entities_agree_with_the_noisy_columns_and_their_number() -> None:
    kept = _kept()
    assert kept.units.sum() == pytest.approx(700, abs=20)
    for name, cells in CELLS.items():
        shares = np.bincount(PRIVATE[0][name], minlength=cells) / len(PRIVATE[1])
        count = Count((name,), {name: Grouping.identity(cells, 0)})
        expected = kept.expected(count)
        assert np.abs(expected / expected.sum() - shares).sum() < 0.06, name


def test_columns_of_one_value_for_each_entity_are_found() -> None:
    axes, _ = choose_axes(SCHEMA, None, {})
    rows = read_public(public_of(ALIKE), SCHEMA, list(CELLS))
    assert constant_within_entities(axes, rows) == ("e",)
    alone = replace(rows, entity=np.arange(rows.rows), entities=rows.rows)
    assert constant_within_entities(axes, alone) == ()


def test_a_histogram_that_weighs_more_is_counted_first() -> None:
    counts = [Count((name,), {name: Grouping.identity(4, 0)}) for name in "ab"]
    expected = [np.full(4, 100.0)] * 2
    row = PrivacyUnit("row")
    for weights, first in (([1.0, 9.0], "b"), ([9.0, 1.0], "a")):
        asked = most_informative(
            counts, expected, [60.0, 60.0], UnitBudget(row, EXACT), most=1, weights=weights
        )
        assert [count.columns for count in asked] == [(first,)]
    assert Option(expected[0], 60.0, 5.0, 2.0).gain(5.0) == pytest.approx(
        2 * Option(expected[0], 60.0, 5.0).gain(5.0)
    )

from __future__ import annotations

import numpy as np
import pytest

from app.engine.method import PublicFacts
from app.engine.public.rows import PublicDataUnfit, public_problems, read_public, translated
from app.engine.schema import PrivacyUnit, Schema
from app.engine.table import PublicTable, Table

CAB = PrivacyUnit("entity", "cab", 5)
ROW = PrivacyUnit("row")


def schema(*fields: dict[str, object], entity: bool = False) -> Schema:
    ids = [{"name": "cab", "type": "string", "role": "entity"}] if entity else []
    return Schema.parse({"fields": [*ids, *fields]})


def firms(values: list[str], **keys: object) -> dict[str, object]:
    limits = {"enum": values, "required": True}
    return {"name": "firm", "type": "string", "constraints": limits, **keys}


def fares(low: float, high: float, kind: str = "integer", **keys: object) -> dict[str, object]:
    limits = {"minimum": low, "maximum": high, "required": True}
    return {"name": "fare", "type": kind, "constraints": limits, **keys}


def test_values_and_not_codes_are_carried_over() -> None:
    own, other = schema(firms(["a", "b", "c"])), schema(firms(["c", "a"]))
    codes = translated(own.column("firm"), other.column("firm"), np.array([0, 1, 1]))
    assert codes.tolist() == [2, 0, 0]


def test_an_undeclared_value_has_no_place_unless_the_dictionary_gives_it_one() -> None:
    public = schema(firms(["a", "zz"]))
    strict = schema(firms(["a", "b"]))
    open_to_others = schema(firms(["a", "b"], other="rest"))
    for own, places in ((strict, [0, -1]), (open_to_others, [0, 2])):
        codes = translated(own.column("firm"), public.column("firm"), np.array([0, 1]))
        assert codes.tolist() == places


def test_a_number_takes_the_nearest_point_and_one_beyond_the_range_none() -> None:
    own = schema(fares(0, 10)).column("fare")
    other = schema(fares(0, 20, "number", step=0.25)).column("fare")
    codes = np.array([other.code(other.scale.value(i)) for i in (10, 11, 39, 44)])
    # 2.5, 2.75, 9.75, 11: a half goes to the even neighbour.
    assert translated(own, other, codes).tolist() == [2, 3, 10, -1]


def test_a_range_that_clips_keeps_what_is_beyond_it() -> None:
    own = schema(fares(5, 10, undeclared="clip")).column("fare")
    other = schema(fares(0, 20)).column("fare")
    assert translated(own, other, np.array([0, 7, 20])).tolist() == [0, 2, 5]


def test_null_special_and_other_codes_go_to_their_like() -> None:
    nullable = {"minimum": 0, "maximum": 9}
    own = schema({"name": "fare", "type": "integer", "constraints": nullable, "special": [-1]})
    other = schema({"name": "fare", "type": "integer", "constraints": nullable, "special": [-1]})
    assert translated(own.column("fare"), other.column("fare"), np.array([10, 11, 3])).tolist() == [
        10,
        11,
        3,
    ]
    required = schema(fares(0, 9))
    assert translated(required.column("fare"), other.column("fare"), np.array([11])).tolist() == [
        -1
    ]


def test_rows_without_a_place_are_left_out_and_entities_numbered_anew() -> None:
    own = schema(firms(["a", "b"]), entity=True)
    other = schema(firms(["a", "b", "zz"]), entity=True)
    table = Table({"firm": np.array([0, 2, 1, 1])}, 4, np.array([7, 3, 7, 9]))
    rows = read_public(PublicTable(other, table), own, ["firm"])
    assert rows.codes["firm"].tolist() == [0, 1, 1]
    assert rows.entity.tolist() == [0, 0, 1]
    assert rows.rows_per_entity().tolist() == [2, 1]
    assert rows.for_unit(ROW).entities == 3


def test_a_public_table_of_which_no_row_fits_is_unfit() -> None:
    own, other = schema(firms(["a"])), schema(firms(["a", "zz"]))
    with pytest.raises(PublicDataUnfit):
        read_public(PublicTable(other, Table({"firm": np.array([1, 1])}, 2)), own, ["firm"])


@pytest.mark.parametrize(
    ("public", "said"),
    [
        (None, "none are named"),
        (PublicFacts(schema(fares(0, 1), entity=True), 5), "no column `firm`"),
        (
            PublicFacts(schema(fares(0, 1) | {"name": "firm"}, entity=True), 5),
            "in the public dataset",
        ),
        (PublicFacts(schema(firms(["q"]), entity=True), 5), "no value"),
        (PublicFacts(schema(firms(["a"]), entity=True), 0), "no rows"),
        (PublicFacts(schema(firms(["a"])), 5), "no entities"),
    ],
)
def test_what_makes_a_public_dataset_unfit_is_told_at_its_own_field(
    public: PublicFacts | None, said: str
) -> None:
    own = schema(firms(["a", "b"]), entity=True)
    problems = public_problems(own, CAB, public, ["firm"], needs_entities=True)
    assert [problem.pointer for problem in problems] == ["/public_dataset"]
    assert said in problems[0].message
    assert problems[0].remedy


def test_a_fit_public_dataset_has_no_problems() -> None:
    own = schema(firms(["a", "b"]), fares(0, 9), entity=True)
    public = schema(firms(["b"]), fares(5, 99, "number"), entity=True)
    facts = PublicFacts(public, 1)
    assert public_problems(own, CAB, facts, ["firm", "fare"], needs_entities=True) == ()
    plain = PublicFacts(schema(firms(["b"])), 1)
    assert public_problems(own, CAB, plain, ["firm"], needs_entities=False) == ()

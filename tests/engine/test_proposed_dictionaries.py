"""Dictionaries proposed from a file can be declared once confirmed, and say what they guess."""

from __future__ import annotations

import io
from typing import Any

import pytest

from app.engine.encoding import Encoder
from app.engine.files import FileOptions, open_table
from app.engine.proposals import Proposal, propose
from app.engine.schema import PrivacyUnit, Schema, SchemaError


def read(*lines: str, **options: Any) -> Proposal:
    reader = open_table(_file(*lines), FileOptions(**options))
    return propose(reader, has_header=reader.layout.has_header)


def _file(*lines: str) -> io.BytesIO:
    return io.BytesIO("\n".join([*lines, ""]).encode())


def proposed(*lines: str) -> dict[str, Any]:
    return read(*lines).schema


def column(*cells: str) -> tuple[dict[str, Any], str]:
    """The field proposed for a column beside a constant one, and its notes."""
    proposal = read("x\tother", *(f"{cell}\tA" for cell in cells), format="tsv", quote="")
    notes = [note.message for note in proposal.notes if note.pointer == "/schema/fields/0"]
    return proposal.schema["fields"][0], " ".join(notes)


def confirmed(proposal: Proposal) -> Schema:
    fields = [{**field, "proposed": False} for field in proposal.schema["fields"]]
    return Schema.parse({**proposal.schema, "fields": fields})


def problems(proposal: Proposal, *lines: str, **options: Any) -> int:
    """Problems of the file under its own proposal."""
    reader = open_table(_file(*lines), FileOptions(**options))
    unit = PrivacyUnit.parse(proposal.unit or {"kind": "row"})
    encoder = Encoder(confirmed(proposal), unit, reader.layout)
    for block in reader:
        encoder.encode(block)
    return encoder.totals.problems.count


def test_types_ranges_and_categories_are_read_off_a_file() -> None:
    wire = proposed(
        "city;visits;price;on;seen;when;ok;empty",
        "Rome;103;2.5;01/02/2020;2020-01-01T10:00:00;10:30;true;",
        "Oslo;NA;7.25;28/03/2020;2020-01-03T10:00:00;23:59;false;",
        *(f"Rome;{n};3;01/02/2020;2020-01-03T10:00:00;23:59;true;" for n in range(30, 60)),
    )
    fields = {field["name"]: field for field in wire["fields"]}
    assert all(field["proposed"] is True for field in wire["fields"])
    assert fields["city"]["constraints"] == {"enum": ["Oslo", "Rome"], "required": True}
    assert fields["visits"]["constraints"] == {"minimum": 30, "maximum": 110}
    assert fields["price"]["constraints"] == {"minimum": 2.5, "maximum": 7.3, "required": True}
    assert (fields["on"]["type"], fields["on"]["format"]) == ("date", "%d/%m/%Y")
    assert fields["on"]["constraints"]["minimum"] == "2020-01-01"
    assert fields["on"]["constraints"]["maximum"] == "2020-12-31"
    assert fields["seen"]["type"] == "datetime"
    assert (fields["when"]["type"], fields["ok"]["type"]) == ("time", "boolean")
    assert fields["empty"]["type"] == "string"
    assert wire["missingValues"] == ["", "NA"]


def test_columns_of_many_texts_are_proposed_as_free_text() -> None:
    wire = proposed("name,on", *(f"person {n}x,true" for n in range(300)))
    assert wire["fields"][0] == {"name": "name", "type": "string", "proposed": True}


def test_blank_and_double_names_are_proposed_by_position() -> None:
    wire = proposed("a,,a", "1,2,3")
    assert [(field["name"], field["column"]) for field in wire["fields"]] == [
        ("a (1)", 1),
        ("column (2)", 2),
        ("a (3)", 3),
    ]


def test_a_proposal_is_refused_until_every_field_is_confirmed() -> None:
    wire = proposed("n,city", *(f"{n * 1000},Rome" for n in range(5000)))
    with pytest.raises(SchemaError) as refusal:
        Schema.parse(wire)
    assert [error.pointer for error in refusal.value.errors] == [
        "/fields/0/proposed",
        "/fields/1/proposed",
    ]
    confirmed = [{**field, "proposed": False} for field in wire["fields"]]
    assert Schema.parse({**wire, "fields": confirmed}).column("n").grouping.cells == 20


def test_codes_with_leading_zeros_are_texts() -> None:
    field, notes = column(*(f"{n % 30:03d}" for n in range(90)))
    assert field["type"] == "string"
    assert field["constraints"]["enum"][:2] == ["000", "001"]
    assert "leading zeros" in notes


def test_required_stands_where_no_null_was_seen() -> None:
    wire = proposed("a,b", *(f"{n},{n or ''}" for n in range(50)))
    assert [field["constraints"].get("required") for field in wire["fields"]] == [True, None]


@pytest.mark.parametrize(
    ("cells", "keys", "noted"),
    [
        (["1,234.50", "12.00", "1,000,000.25"], {"type": "number", "groupChar": ","}, "thousands"),
        (
            ["1.234,50", "12,00"],
            {"type": "number", "groupChar": ".", "decimalChar": ","},
            "decimal",
        ),
        (["2,5", "10,75"], {"type": "number", "decimalChar": ","}, "decimal mark"),
        (["1'234.50", "12.05"], {"type": "number", "groupChar": "'"}, "thousands"),
        (["95 %", "7 %", "100 %"], {"type": "integer", "bareNumber": False}, "95, not 0.95"),
        (["CHF 12.50", "CHF 7.05"], {"type": "number", "bareNumber": False}, '"CHF"'),
        (["$1,234.50", "$7.05"], {"type": "number", "bareNumber": False, "groupChar": ","}, '"$"'),
        (["3 March 2021", "28 February 2020"], {"type": "date", "format": "%d %B %Y"}, ""),
        (["20210303", "20200228"], {"type": "date", "format": "%Y%m%d"}, "Eight digits"),
        (["2021-03-03"], {"type": "date"}, ""),
        (["03.12.2021 10:30"], {"type": "datetime", "format": "%d.%m.%Y %H:%M"}, ""),
        (["01/02/2020", "03/04/2020"], {"type": "date", "format": "%d/%m/%Y"}, "told apart"),
    ],
)
def test_numbers_and_dates_are_read_as_they_are_written(
    cells: list[str], keys: dict[str, Any], noted: str
) -> None:
    lines = ["x\tother", *(f"{cell}\tA" for cell in cells)]
    field, notes = column(*cells)
    assert {key: field.get(key) for key in keys} == keys
    assert noted in notes
    proposal = read(*lines, format="tsv", quote="")
    assert problems(proposal, *lines, format="tsv", quote="") == 0


def test_codes_with_letters_are_no_numbers_with_a_unit() -> None:
    for cells in (["A12", "A13"], ["CHF 1", "EUR 2"], ["Day 1", "Day 2"], ["12A", "13A"]):
        assert column(*cells)[0]["constraints"]["enum"] == cells


def test_one_bad_cell_in_300_does_not_make_a_date_a_category() -> None:
    cells = [f"{n % 28 + 1:02d}.03.2021" for n in range(299)]
    lines = ["x,y", *(f"{cell},A" for cell in [*cells, "unknown"])]
    proposal = read(*lines)
    field = proposal.schema["fields"][0]
    assert (field["type"], field["format"], field["undeclared"]) == ("date", "%d.%m.%Y", "null")
    assert "unknown" in next(note.message for note in proposal.notes if "1 of 300" in note.message)
    assert problems(proposal, *lines) == 0


def test_wide_money_has_private_bins_and_is_kept_to_the_cent() -> None:
    field, notes = column(*(f"{n * n / 7:.2f}" for n in range(300)))
    assert (field["bins"], field["step"]) == ("quantiles", 0.01)
    assert "wide" in notes
    assert "bins" not in column(*(f"{n / 10:.1f}" for n in range(300)))[0]


def test_none_and_na_are_categories_where_texts_are_and_null_where_numbers_are() -> None:
    lines = ["trim,country,age,sex"]
    lines += [f"None,NA,{n},f\nbow,DE,NA,m\n,FR,None,?" for n in range(30)]
    proposal = read(*lines)
    fields = {field["name"]: field for field in proposal.schema["fields"]}
    assert fields["trim"]["constraints"]["enum"] == ["None", "bow"]
    assert fields["country"]["constraints"] == {"enum": ["DE", "FR", "NA"], "required": True}
    assert fields["age"]["type"] == "integer"
    assert fields["sex"]["constraints"]["enum"] == ["f", "m"]
    assert problems(proposal, *lines) == 0
    assert confirmed(proposal).column("trim").nullable


def test_repeating_ids_are_pointed_out_with_a_unit() -> None:
    lines = ["person_id,visit,age"]
    lines += [f"P{n // 3:04d},V{n:05d},{20 + n % 60}" for n in range(900)]
    proposal = read(*lines)
    person, visit, _ = proposal.schema["fields"]
    assert person["role"] == "entity"
    assert proposal.unit == {"kind": "entity", "column": "person_id", "max_rows": 5}
    assert visit == {"name": "visit", "type": "string", "proposed": True}
    told = {note.pointer: note.message for note in proposal.notes}
    assert "300 in 900 rows" in told["/schema/fields/0"]
    assert "left out" in told["/schema/fields/1"]
    assert "max_rows" in told["/unit"]
    assert problems(proposal, *lines) == 0


def test_the_unit_is_who_is_protected_not_where_they_were() -> None:
    lines = ["store_id,customer_id", *(f"s{n % 40:03d},c{n % 300:04d}" for n in range(900))]
    proposal = read(*lines)
    assert proposal.unit == {"kind": "entity", "column": "customer_id", "max_rows": 5}
    assert "role" not in proposal.schema["fields"][0]


def test_the_note_on_a_bound_says_how_many_rows_a_few_long_histories_lose() -> None:
    rows = [f"p{n},A" for n in range(99)] + ["p99,A"] * 101
    proposal = read("person_id,town", *rows)
    assert proposal.unit == {"kind": "entity", "column": "person_id", "max_rows": 1}
    (note,) = (note.message for note in proposal.notes if note.pointer == "/unit")
    assert "at least 95 % of them, and 100 of the 200 rows" in note


def test_ids_that_never_repeat_are_left_out_and_rows_are_the_unit() -> None:
    lines = ["nr,age", *(f"{7_000_000 + 13 * n},{n % 90}" for n in range(300))]
    proposal = read(*lines)
    assert proposal.unit == {"kind": "row"}
    assert proposal.schema["fields"][0]["type"] == "string"
    assert "constraints" not in proposal.schema["fields"][0]
    assert "left out" in proposal.notes[1].message


def test_identifiers_of_19_digits_are_not_rounded() -> None:
    low = 2**63 - 40
    field, _ = column(*(str(low + n) for n in range(0, 40, 2)))
    assert field["type"] in ("string", "integer")
    confirmed(read("x,y", *(f"{low - n * 10**15},A" for n in range(15)), *["5,A"] * 15))


def test_a_column_that_is_left_out_says_so() -> None:
    field, notes = column(*(f"a long remark, number {n}x" for n in range(300)))
    assert field == {"name": "x", "type": "string", "proposed": True}
    assert "left out" in notes
    assert "left out" in column(*[""] * 3)[1]


def test_a_header_that_looks_like_data_is_asked_about_and_not_published() -> None:
    rows = [f"{30 + n % 40},{'fm'[n % 2]},{1000 + 10 * n}" for n in range(60)]
    proposal = read(*rows)
    assert [field["name"] for field in proposal.schema["fields"]] == [
        "column (1)",
        "column (2)",
        "column (3)",
    ]
    assert proposal.notes[0].pointer == "/file/header_rows"
    assert "looks like data" in proposal.notes[0].message
    named = read("age,sex,income", *rows)
    assert [field["name"] for field in named.schema["fields"]] == ["age", "sex", "income"]
    assert not any("looks like data" in note.message for note in named.notes)
    whole = read(*rows, header=False)
    assert not any("looks like data" in note.message for note in whole.notes)


def test_long_names_are_found_by_position() -> None:
    name = "How satisfied are you " * 20
    proposal = read(f"{name},b", "1,2", "3,4")
    assert proposal.schema["fields"][0]["column"] == 1
    assert len(proposal.schema["fields"][0]["name"]) < 100
    assert problems(proposal, f"{name},b", "1,2", "3,4") == 0


def test_marks_may_first_occur_late_in_a_file() -> None:
    cells = [str(n % 900) for n in range(3000)] + ["1,234", "5,678"]
    lines = ["x\tother", *(f"{cell}\tA" for cell in cells)]
    proposal = read(*lines, format="tsv")
    field = proposal.schema["fields"][0]
    assert (field["type"], field.get("groupChar")) == ("integer", ",")
    assert field["constraints"]["minimum"] == 0
    assert problems(proposal, *lines, format="tsv") == 0

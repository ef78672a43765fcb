"""Files as found in the world are read as tables, or refused by row, column and remedy."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import KeysView
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.engine.escapes import shown
from app.engine.files import FileOptions, RowProblem, TableError, TableReader, json_rows, open_table
from app.engine.files.limits import MOST_COLUMNS
from app.engine.schema import SchemaError


def opened(data: bytes, **options: Any) -> TableReader:
    return open_table(io.BytesIO(data), FileOptions(**options))


def rows(data: bytes, **options: Any) -> list[list[str | None]]:
    """All cells, row by row."""
    return [
        list(row)
        for block in opened(data, **options)
        for row in zip(*(column.to_pylist() for column in block.columns), strict=True)
    ]


def problems(data: bytes, **options: Any) -> tuple[RowProblem, ...]:
    with pytest.raises(TableError) as refusal:
        rows(data, **options)
    return refusal.value.problems


def test_a_plain_file_is_read_as_text() -> None:
    assert rows(b"a,b\n1,x\n,\n") == [["1", "x"], ["", ""]]


def test_quoted_cells_may_hold_delimiters_quotes_and_line_breaks() -> None:
    assert rows(b'a,b\n"1,5","say ""hi""\r\nthere"\n2,3\n') == [
        ["1,5", 'say "hi"\r\nthere'],
        ["2", "3"],
    ]


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_delimiter_and_newline_are_found_out_and_reported(delimiter: str, newline: str) -> None:
    lines = [f"a{delimiter}b", f"1{delimiter}x y", f"2{delimiter}z"]
    reader = opened(newline.join([*lines, ""]).encode())
    assert sum(block.num_rows for block in reader) == 2
    report = reader.report
    assert (report.delimiter, report.newline, report.rows) == (delimiter, newline, 2)
    assert report.columns == ("a", "b")


def test_a_comma_in_the_numbers_does_not_hide_the_semicolons() -> None:
    assert rows(b"a;b;c\n1,5;2,5;x\n3,5;4;y\n") == [["1,5", "2,5", "x"], ["3,5", "4", "y"]]


def test_one_column_is_a_table_too() -> None:
    assert rows(b"a\n1\n2\n") == [["1"], ["2"]]


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32"])
def test_a_byte_order_mark_is_dropped_and_reported(encoding: str) -> None:
    reader = opened("ä,b\nß,1\n".encode(encoding))
    assert [block.to_pydict() for block in reader] == [{"ä": ["ß"], "b": ["1"]}]
    assert reader.report.byte_order_mark


def test_an_encoding_is_declared_or_that_of_a_byte_order_mark_or_utf_8() -> None:
    assert rows("a,b\n\xc9,1\n".encode("latin-1"), encoding="cp437") == [["╔", "1"]]
    (row,) = rows("a,b\nJosé,1\n".encode("cp1252"))
    assert [shown(cell or "") for cell in row] == [r"Jos\xe9", "1"]


@pytest.mark.parametrize("encoding", ["iso2022_jp", "iso-2022-kr", "hz", "utf-7"])
def test_an_encoding_with_shifts_that_outlast_a_row_is_refused(encoding: str) -> None:
    with pytest.raises(SchemaError):
        FileOptions.parse({"encoding": encoding})


def test_the_first_row_of_a_file_without_a_header_is_no_byte_order_mark() -> None:
    (first, second) = rows("ÿþ,1\nb,2\n".encode("cp1252"), header=False, encoding="cp1252")
    assert (first, second) == (["ÿþ", "1"], ["b", "2"])
    undeclared = rows("ÿþ,1\nb,2\n".encode("cp1252"), header=False)
    assert undeclared[1] == ["b", "2"]


def test_utf_16_without_its_mark_is_refused_unless_its_order_is_declared() -> None:
    data = "a,b\n1,2\n".encode("utf-16-be")
    assert rows(data, encoding="utf-16-be") == [["1", "2"]]
    assert "utf-16" in problems(data, encoding="utf-16")[0].message


@pytest.mark.parametrize("cut", [1_048_576, 1_048_577, 1_048_578])
def test_characters_may_lie_across_the_chunks_that_are_read(cut: int) -> None:
    filler = b"x" * (cut - len(b"a\n")) + b"\n"
    assert rows(b"a\n" + filler + "é\nü\n".encode())[1:] == [["é"], ["ü"]]


@pytest.mark.parametrize("packed", [gzip.compress, lambda raw: pa.compress(raw, "zstd", True)])
def test_compressed_files_are_opened(packed: Any) -> None:
    reader = opened(packed(b"a,b\n1,2\n"))
    assert [block.num_rows for block in reader] == [1]
    assert reader.report.compression in ("gzip", "zstd")


def test_a_broken_or_mislabelled_archive_is_refused() -> None:
    whole = gzip.compress(b"a,b\n" + b"1,2\n" * 1000)
    assert "not whole gzip" in problems(whole[:-20])[0].message
    assert "not whole zstd" in problems(whole, compression="zstd")[0].message


def test_a_decompression_bomb_stops_at_the_limit() -> None:
    bomb = gzip.compress(b"a\n" + b"1\n" * 5_000_000)
    assert "larger than 1000000 bytes" in problems(bomb, max_bytes=1_000_000)[0].message


def test_the_plain_size_is_limited_as_well() -> None:
    assert "larger than 4 bytes" in problems(b"a,b\n1,2\n", max_bytes=4)[0].message


def test_without_a_header_columns_have_positions() -> None:
    reader = opened(b"1, x\n2, y\n\n", header=False)
    assert reader.layout.names == ("column 1", "column 2")
    assert not reader.layout.has_header
    assert sum(block.num_rows for block in reader) == 2


def test_several_header_rows_are_joined_into_one_name() -> None:
    reader = opened(b'id,"which films,\nseen?",,age\n,one,two,\n1,y,n,3\n', header_rows=2)
    assert reader.layout.names == (
        "id",
        "which films,\nseen? / one",
        "which films,\nseen? / two",
        "age",
    )
    assert reader.layout.first_record == 3
    assert [block.num_rows for block in reader] == [1]


def test_lines_before_the_header_and_comments_are_passed_over() -> None:
    assert rows(b"Report\n\na,b\n1,2\n", skip_rows=2) == [["1", "2"]]
    assert rows(b"# made today\na,b\n#no\n1,2\n#end", comment="#") == [["1", "2"]]


def test_blank_and_double_names_are_reported() -> None:
    reader = opened(b"a,,a,b\n1,2,3,4\n")
    assert reader.report.notes == ("columns without a name: 2", 'columns named "a": 1, 3')
    assert rows(b"a,,a,b\n1,2,3,4\n") == [["1", "2", "3", "4"]]


def test_a_delimiter_at_the_end_of_a_row_adds_no_cell_whatever_other_rows_do() -> None:
    assert rows(b"a,b\n1,2,\n3,4,\n") == [["1", "2"], ["3", "4"]]
    assert rows(b"a,b\n1,2,\n3,4\n\n5,6,\n") == [["1", "2"], ["3", "4"], ["5", "6"]]
    assert rows(b"a\n1,\n2\n\n") == [["1"], ["2"], [""]]
    assert rows(b"a,b,\n1,2,\n") == [["1", "2", ""]]


def test_rows_of_another_width_are_all_named() -> None:
    short, long = problems(b'a,b,c\n1,2,3\n\n"x\ny",2\n4,5,6\n1,2,3,4\n')
    assert (short.row, short.record, short.column) == (2, 3, "c")
    assert (long.row, long.record, long.column) == (4, 5, "c")
    assert "cells in the row: 4, columns of the table: 3" in long.message


def test_a_row_that_is_in_quotes_as_a_whole_is_recognised() -> None:
    (problem,) = problems(b'a,b\n1,2\n"3,""x, y"""\n')
    assert problem.row == 2
    assert "remove the outer quotes" in problem.remedy


def test_a_quote_that_is_never_closed_is_told_apart() -> None:
    (problem,) = problems(b'a,b\n1,2\n"3,4\n5,6\n')
    assert (problem.row, problem.record, problem.column) == (2, 3, "a")
    assert "never closed" in problem.message
    (endless,) = problems(b'a,b\n1,"2\n' + b"5,6\n" * 3_000_000)
    assert "never closed" in endless.message


def test_quoting_can_be_turned_off() -> None:
    assert rows(b'a,b\n5",6"\n', quote="") == [['5"', '6"']]


@pytest.mark.parametrize("data", [b"", b"\n\n", b"\xef\xbb\xbf"])
def test_an_empty_file_is_refused(data: bytes) -> None:
    assert "empty" in problems(data)[0].message


def test_a_header_alone_is_a_table_without_rows() -> None:
    assert rows(b"a,b\n") == []
    assert rows(b"a,b") == []


def test_an_endless_header_is_refused() -> None:
    assert "header is longer" in problems(b"a," * 1_000_000)[0].message


def test_json_lines_keep_numbers_as_written() -> None:
    data = b'{"a": 1.50, "b": "x"}\n\n{"b": true, "a": null}\n{"a": [1]}\n'
    assert rows(data) == [["1.50", "x"], [None, "true"], ['["1"]', None]]


def test_wrong_json_lines_are_named() -> None:
    found = problems(b'{"a": 1}\n[2]\n{"a": NaN}\n{"a"\n')
    assert [problem.row for problem in found] == [2, 3, 4]
    assert [problem.row for problem in problems(b'{"a": 1}\n' + b"[" * 100_000)] == [2]


def test_a_key_may_come_as_late_as_it_likes() -> None:
    late = b'{"a": 1}\n' * 20_000 + b'{"a": 2, "z": 3}\n'
    table = rows(late)
    assert (table[0], table[-1]) == (["1", None], ["2", "3"])


@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_a_json_array_is_a_table(mark: str) -> None:
    text = mark + '[{"a": 1.50, "b": "],[{\\n"},\n {"b": "ü", "c": null}]\n'
    reader = opened(text.encode())
    assert [block.to_pylist() for block in reader] == [
        [{"a": "1.50", "b": "],[{\n", "c": None}, {"a": None, "b": "ü", "c": None}]
    ]
    assert (reader.report.format, reader.report.byte_order_mark) == ("jsonl", bool(mark))
    many = json.dumps([{"a": number, "b": "x" * 100} for number in range(40_000)])
    assert rows(many.encode())[-1] == ["39999", "x" * 100]


@pytest.mark.parametrize(
    "text", ['[{"a": 1}', '[{"a": 1},]', '[{"a": 1} {"a": 2}]', '[{"a": 1}] x', '[{"a": 1}, {"a"}]']
)
def test_a_broken_json_array_is_refused(text: str) -> None:
    assert "JSON array" in problems(text.encode())[0].message


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"PK\x03\x04\x14\0\0\0[Content_Types].xml", "xlsx"),
        (b"PK\x03\x04\x14\0\0\0table.csv", "ZIP"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "xls"),
        (b"BZh91AY&SY", "bzip2"),
    ],
)
def test_files_that_are_no_tables_are_recognised(data: bytes, said: str) -> None:
    assert said in problems(data)[0].message


def parquet(**columns: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table(columns), sink)
    return sink.getvalue()


def test_parquet_comes_typed() -> None:
    reader = opened(parquet(a=[1, None], b=["x", "y"]))
    (block,) = list(reader)
    assert block.to_pydict() == {"a": [1, None], "b": ["x", "y"]}
    assert block.schema.field("a").type == pa.int64()
    assert reader.report.format == "parquet"


def test_broken_or_oversized_parquet_is_refused() -> None:
    data = parquet(a=list(range(1000)))
    assert "not whole Parquet" in problems(data[:-30])[0].message
    assert "larger than 100 bytes" in problems(data, max_bytes=100)[0].message


CELLS = st.text(st.characters(codec="utf-8", exclude_characters="\0\ufeff"), max_size=8)


@given(st.lists(st.lists(CELLS, min_size=2, max_size=2), max_size=8))
def test_whatever_is_quoted_is_read_back(table: list[list[str]]) -> None:
    def line(cells: list[str]) -> str:
        return ",".join('"' + cell.replace('"', '""') + '"' for cell in cells) + "\n"

    data = "".join(map(line, [["a", "b"], *table])).encode()
    assert rows(data, delimiter=",", encoding="utf-8") == table


@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_refused_never_a_crash(data: bytes) -> None:
    try:
        rows(data)
    except TableError as refusal:
        assert refusal.problems  # noqa: PT017


@pytest.mark.parametrize(
    ("wire", "pointer"),
    [
        ([], ""),
        ({"format": "xlsx"}, "/format"),
        ({"compression": "rar"}, "/compression"),
        ({"encoding": "klingon"}, "/encoding"),
        ({"encoding": "base64"}, "/encoding"),
        ({"encoding": 8}, "/encoding"),
        ({"delimiter": ""}, "/delimiter"),
        ({"delimiter": "::"}, "/delimiter"),
        ({"delimiter": "\n"}, "/delimiter"),
        ({"delimiter": ";", "quote": ";"}, "/delimiter"),
        ({"delimiter": '"'}, "/delimiter"),
        ({"delimiter": "\0"}, "/delimiter"),
        ({"encoding": "undefined"}, "/encoding"),
        ({"header": "yes"}, "/header"),
        ({"header": False, "header_rows": 2}, "/header_rows"),
        ({"header_rows": 11}, "/header_rows"),
        ({"skip_rows": -1}, "/skip_rows"),
        ({"skip_rows": True}, "/skip_rows"),
        ({"max_bytes": 1}, "/max_bytes"),
    ],
)
def test_wrong_options_are_refused_where_they_are_wrong(wire: Any, pointer: str) -> None:
    with pytest.raises(SchemaError) as refusal:
        FileOptions.parse(wire)
    assert [error.pointer for error in refusal.value.errors] == [pointer]


def test_options_are_read_back() -> None:
    wire = {"format": "csv", "delimiter": ";", "quote": "", "header": False, "decimal": ","}
    options = FileOptions.parse(wire, max_bytes=5)
    assert options.to_wire() == wire
    assert options.rows_of_names == 0
    assert FileOptions.parse({"header": None}) == FileOptions()


@pytest.mark.parametrize("line", [b'{"a": "\\ud800"}', b'{"a": 1, "\\udfff": 2}'])
def test_half_a_surrogate_pair_in_json_is_located(line: bytes) -> None:
    (problem,) = problems(b'{"a": "x"}\n' + line + b"\n", format="jsonl")
    assert (problem.row, problem.record) == (2, 2)
    assert "half of a surrogate pair" in problem.message


def test_a_key_that_a_json_line_has_twice_is_named() -> None:
    (problem,) = problems(b'{"a": "x"}\n{"a": "1", "a": "2"}\n', format="jsonl")
    assert (problem.row, problem.column) == (2, "a")
    assert "twice" in problem.message


def test_whole_characters_written_as_escapes_are_read() -> None:
    assert rows(b'{"a": "\\ud83d\\ude00"}\n', format="jsonl") == [["\U0001f600"]]


def nulls_in_few_bytes(number: int) -> bytes:
    """A Parquet file of one column and one page, which states once that everything is null."""
    stream = io.BytesIO()
    pq.write_table(
        pa.table({"a": pa.nulls(number, pa.int32())}),
        stream,
        row_group_size=number,
        data_page_size=2**30,
        max_rows_per_page=number,
    )
    return stream.getvalue()


def test_a_small_file_that_unfolds_to_many_rows_is_refused_before_it_is_decoded() -> None:
    bomb = nulls_in_few_bytes(2**24 + 1)
    assert len(bomb) < 1000
    with pytest.raises(TableError, match="cells"):
        opened(bomb)
    assert opened(nulls_in_few_bytes(10_000)).layout.names == ("a",)


def test_a_table_of_too_many_columns_is_refused_before_its_rows_are_read() -> None:
    names = [f"c{place}" for place in range(MOST_COLUMNS + 1)]
    text = ",".join(names).encode()
    stream = io.BytesIO()
    pq.write_table(pa.table({name: pa.array([1], pa.int8()) for name in names}), stream)
    nested = io.BytesIO()
    pq.write_table(pa.table({"a": pa.array([dict.fromkeys(names, 1)])}), nested)
    for data in (text + b"\n" + text + b"\n", stream.getvalue(), nested.getvalue()):
        with pytest.raises(TableError, match="columns"):
            opened(data)
    at_the_limit = ",".join(names[1:]).encode()
    assert len(rows(at_the_limit + b"\n" + at_the_limit + b"\n")[0]) == MOST_COLUMNS


def test_wide_parquet_is_read_in_smaller_batches() -> None:
    stream = io.BytesIO()
    column = pa.array([1] * 40_000, pa.int8())
    pq.write_table(pa.table({f"c{place}": column for place in range(500)}), stream)
    cells = [block.num_rows * block.num_columns for block in opened(stream.getvalue())]
    assert len(cells) > 1
    assert max(cells) <= 2**24


def test_a_line_that_may_be_a_comment_is_held_within_bounds() -> None:
    """A small compressed file can be one endless line."""
    endless = b"a,b\n" + b"x" * (8 << 20)
    with pytest.raises(TableError) as raised:
        list(opened(endless, comment="#"))
    assert "a line is longer than" in str(raised.value)


def test_blank_lines_of_json_are_not_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small compressed file can be a thousand million of them."""
    parsed: list[bytes] = []
    keys = json_rows._keys

    def counted(text: bytes) -> KeysView[str]:
        parsed.append(text)
        return keys(text)

    monkeypatch.setattr(json_rows, "_keys", counted)
    reader = opened(b'{"a": 1}\n' + b"\n \n" * 100 + b'{"b": 2}\n')
    assert reader.layout.names == ("a", "b")
    assert len(parsed) == 2

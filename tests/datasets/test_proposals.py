"""Proposed and imported dictionaries, over HTTP."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from office import CSV, Office, open_office, spec

from app.datasets import proposals


@pytest.fixture(scope="module")
def office(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Office]:
    with open_office(tmp_path_factory.mktemp("office"), max_upload_bytes=10_000) as opened:
        yield opened


def test_a_dictionary_is_read_off_a_table_and_nothing_is_kept(office: Office) -> None:
    answer = office.custodian.call("POST", "/dictionaries/proposals", content=CSV)
    assert answer.status_code == 200, answer.text
    proposal = answer.json()
    fields = proposal["schema"]["fields"]
    assert [field["name"] for field in fields] == ["shift", "pay"]
    assert all(field["proposed"] is True for field in fields)
    assert (proposal["unit"], proposal["file"]["format"]) == (None, "csv")
    assert office.staged_files() == []
    assert office.custodian.get("/datasets").json()["items"] == []


def test_a_proposal_becomes_a_dataset_once_each_field_is_confirmed(office: Office) -> None:
    proposal = office.custodian.call("POST", "/dictionaries/proposals", content=CSV).json()
    schema = proposal["schema"]
    refused = office.custodian.declare(spec(schema=schema))
    assert refused.status_code == 422
    assert len(refused.json()["errors"]) == 2
    for field in schema["fields"]:
        del field["proposed"]
    assert office.custodian.declare(spec(schema=schema)).status_code == 201


def test_guesses_are_told_in_notes_and_ids_propose_a_unit(office: Office) -> None:
    table = "person_id,town\n" + "".join(f"p{n // 2},Bern\n" for n in range(100))
    answer = office.custodian.call("POST", "/dictionaries/proposals", content=table)
    proposal = answer.json()
    assert proposal["unit"] == {"kind": "entity", "column": "person_id", "max_rows": 2}
    assert "/unit" in {note["pointer"] for note in proposal["notes"]}
    for field in proposal["schema"]["fields"]:
        del field["proposed"]
    made = office.uploaded(table, schema=proposal["schema"], unit=proposal["unit"])
    assert made["state"] == "ready"


def test_a_large_table_is_read_in_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proposals, "MOST_BYTES", 2000)
    cells = pa.array(["3"] * 1000).dictionary_encode()
    blocks = proposals.FirstBlocks([pa.record_batch([cells], ["shift"])] * 5)
    assert len(list(blocks)) == blocks.rows // 1000 < 5
    assert blocks.is_cut
    whole = proposals.FirstBlocks([pa.record_batch([cells], ["shift"])])
    assert (len(list(whole)), whole.is_cut) == (1, False)


def test_dictionaries_of_other_projects_are_imported(office: Office) -> None:
    domain = office.custodian.call(
        "POST", "/dictionaries/proposals?from=private-pgm", json={"age": 85, "sex": 2}
    ).json()
    assert [field["name"] for field in domain["schema"]["fields"]] == ["age", "sex"]
    parameters = {
        "schema": {
            "taxi_id": {"dtype": "int64", "kind": "id"},
            "shift": {"dtype": "uint8", "kind": "categorical", "values": [0, 1, 2]},
        },
        "runs": [{"epsilon": 1.0, "delta": 2e-5, "max_records_per_individual": 200}],
    }
    nist = office.custodian.call("POST", "/dictionaries/proposals?from=nist", json=parameters)
    assert nist.json()["unit"] == {"kind": "entity", "column": "taxi_id", "max_rows": 200}
    made = {"schema": nist.json()["schema"], "unit": nist.json()["unit"]}
    assert office.custodian.declare(spec(**made)).status_code == 201


def test_a_dictionary_of_the_excerpts_is_imported_and_declared(office: Office) -> None:
    document = {
        "MSP": {"description": "Marital status", "values": {"N": "N/A (under 15)", "1": "Married"}},
        "DENSITY": {"description": "Density", "values": {"min": 16.3, "max": 52864.7}},
        "INDP": {"description": "Industry", "details": "not listed here"},
    }
    answer = office.custodian.call(
        "POST", "/dictionaries/proposals?from=nist-dictionary", json=document
    )
    assert answer.status_code == 200, answer.text
    fields = {field["name"]: field for field in answer.json()["schema"]["fields"]}
    assert list(fields) == ["MSP", "DENSITY", "INDP"]
    assert fields["MSP"]["missingValues"] == ["", "N"]
    assert fields["DENSITY"]["constraints"] == {
        "required": True,
        "minimum": 16.3,
        "maximum": 52864.7,
    }
    made = office.custodian.declare(spec(schema=answer.json()["schema"]))
    assert made.status_code == 201, made.text


def test_numbers_of_an_imported_dictionary_stay_numbers(office: Office) -> None:
    parameters = {"schema": {"miles": {"dtype": "float", "kind": "numeric", "min": 0, "max": 1.5}}}
    answer = office.custodian.call("POST", "/dictionaries/proposals?from=nist", json=parameters)
    (miles,) = answer.json()["schema"]["fields"]
    assert miles["constraints"] == {"required": True, "minimum": 0, "maximum": 1.5}


@pytest.mark.parametrize(
    ("query", "content", "status", "pointer"),
    [
        ("", b"", 422, "/file"),
        ("", b"\x1f\x8b broken", 422, "/file"),
        ("", b"x" * 10_001, 413, None),
        ("?format=parquet", CSV.encode(), 422, "/file"),
        ("?from=private-pgm", b'{"age": 0}', 422, "/age"),
        ("?from=private-pgm", b"[]", 422, ""),
        ("?from=nist", b"{}", 422, "/schema"),
        ("?from=nist", b"{", 400, None),
        ("?from=nist-dictionary", b'{"AGEP": {"values": {"min": 0}}}', 422, "/AGEP/values/max"),
        ("?from=nist-dictionary", b'{"AGEP": {"values": {"min": 0', 400, None),
        ("?from=nist", b"[" * 900 + b"]" * 900, 422, None),
        ("?from=sdv", b"{}", 422, "/query/from"),
        ("?encoding=klingon", CSV.encode(), 422, "/query/encoding"),
        ("?delimiter=ab", CSV.encode(), 422, "/query/delimiter"),
    ],
)
def test_what_cannot_be_read_is_refused(
    office: Office, query: str, content: bytes, status: int, pointer: str | None
) -> None:
    answer = office.custodian.call("POST", f"/dictionaries/proposals{query}", content=content)
    assert answer.status_code == status, answer.text
    if pointer is not None:
        assert pointer in {error["pointer"] for error in answer.json()["errors"]}
    assert office.staged_files() == []


def test_a_guess_of_a_proposal_is_noted_and_given_as_what_to_declare(office: Office) -> None:
    text = "naam;leeftijd\n" + "Müller;15\nBjörk;25\n" * 30
    answer = office.custodian.call(
        "POST", "/dictionaries/proposals", content=text.encode("latin-1")
    ).json()
    assert answer["file_options"] == {"format": "csv", "encoding": "cp1252", "delimiter": ";"}
    assert "Müller" in answer["file"]["notes"][0]
    assert answer["schema"]["fields"][0]["constraints"]["enum"] == ["Björk", "Müller"]
    assert not any("encoding" in note["pointer"] for note in answer["notes"])


@pytest.mark.parametrize(
    ("encoding", "text", "readings"),
    [
        ("latin-1", "sexo,renta\n" + "niño,15\nseñora,25\n" * 30,
         ['cp1252 reads "niño", "señora"', 'cp1250 reads "nińo", "seńora"']),
        ("cp1250", "miasto,wiek\n" + "Łódź,30\nŻywiec,40\n" * 30,
         ['cp1252 reads "£ódŸ"', 'cp1250 reads "Łódź"']),
        ("koi8-r", "пол,возраст\n" + "мужчина,30\nженщина,40\n" * 30,
         ['koi8-r reads "пол", "мужчина", "женщина"', 'cp1251 reads "РПМ"']),
    ],
)  # fmt: skip
def test_encodings_that_fit_and_differ_are_an_open_question(
    office: Office, encoding: str, text: str, readings: list[str]
) -> None:
    content = text.encode(encoding)
    answer = office.custodian.call("POST", "/dictionaries/proposals", content=content).json()
    question = answer["notes"][0]
    assert question["pointer"] == "/file_options/encoding"
    for reading in readings:
        assert reading in question["message"]
    # It cannot be declared as it is, and the answer closes the question.
    refused = office.custodian.declare(spec(file=answer["file_options"]))
    assert [error["pointer"] for error in refused.json()["errors"]] == ["/file/encoding"]
    again = f"/dictionaries/proposals?encoding={encoding}"
    closed = office.custodian.call("POST", again, content=content).json()
    assert closed["file_options"]["encoding"] == encoding
    assert not any("encoding" in note["pointer"] for note in closed["notes"])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"PK\x03\x04\xff\xfe[Content_Types].xml", "the file is a workbook of Excel (xlsx)"),
        (b"\x89PNG\r\n\x1a\n\xff\x00\x81", "the file is a picture (PNG)"),
        (b"shift,pay\n", "the file has no rows"),
    ],
)
def test_a_file_without_a_table_is_named_instead_of_guessed_at(
    office: Office, content: bytes, message: str
) -> None:
    answer = office.custodian.call("POST", "/dictionaries/proposals", content=content)
    assert answer.status_code == 422
    assert [fault["message"] for fault in answer.json()["errors"]] == [message]


def test_what_a_query_declares_is_followed(office: Office) -> None:
    query = "?delimiter=%7C&encoding=cp437&header=false&missing=none,-1"
    answer = office.custodian.call(
        "POST", f"/dictionaries/proposals{query}", content="a,b|1\nnone|-1\né|2\n".encode("cp437")
    ).json()
    first, second = answer["schema"]["fields"]
    assert first["constraints"]["enum"] == ["a,b", "é"]
    assert second["constraints"]["enum"] == [1, 2]
    assert answer["schema"]["missingValues"] == ["", "-1", "none"]
    assert answer["file_options"]["header"] is False


def test_proposals_are_for_custodians(office: Office) -> None:
    analyst = office.person(is_analyst=True)
    answer = analyst.call("POST", "/dictionaries/proposals", content=CSV)
    assert answer.status_code == 403

"""The bench's tables of mixed types, on small files of the real ones' form."""

import pytest

from app.engine.schema import PrivacyUnit
from bench.synthesizers import mixed

PATIENTS = """\
patient_id,sex,age,country,province,city,infection_case,infected_by,contact_number,\
symptom_onset_date,confirmed_date,released_date,deceased_date,state
1,male,50s,Korea,Seoul,Gangseo-gu,overseas inflow,,75,2020-01-22,2020-01-23,2020-02-05,,released
"2,female,10s,Korea,Jeollabuk-do,etc,etc,""8, 9"",,,2020-06-17,,,isolated"
3,,,China,Daegu,"a, b",Shincheonji Church,,-,,2020-03-01,,,deceased
"""


@pytest.fixture
def patients(tmp_path, monkeypatch):
    (tmp_path / "messy").mkdir()
    (tmp_path / "messy/PatientInfo.csv").write_text(PATIENTS)
    monkeypatch.setattr(mixed, "DATA", tmp_path)
    return mixed.MIXED["patients"]()


def test_a_row_that_stands_whole_in_quotes_is_freed_and_others_stay_as_they_are():
    freed = '2,female,10s,Korea,Jeollabuk-do,etc,etc,"8, 9",,,2020-06-17,,,isolated'
    lines = PATIENTS.splitlines()
    assert mixed.unwrapped(PATIENTS.encode()).decode().splitlines() == [*lines[:2], freed, lines[3]]


def test_the_table_of_patients_has_a_row_for_each_of_them(patients):
    frame = patients.decoded(patients.used)
    assert frame["province"].to_list() == ["Seoul", "Jeollabuk-do", "Daegu"]
    assert frame["state"].to_list() == ["released", "isolated", "deceased"]
    assert frame["sex"].isna().to_list() == [False, False, True]
    assert patients.unit == PrivacyUnit("entity", "patient_id", 1)
    assert patients.entities.tolist() == [0, 1, 2]


def test_names_of_patients_and_what_is_not_declared_are_left_out(patients):
    assert not {"patient_id", "city", "infected_by"} & set(patients.used)

"""Adapters over HTTP: there where they are enabled and installed, refused plainly elsewhere."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from release_world import World, world

from app.engine.adapters import virtualenvs
from app.engine.adapters.libraries import LEFT_OUT, LIBRARIES

GAUSSIAN = {"epsilon": "1", "delta": "0.0000001"}


@pytest.fixture
def enabled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """`dpmm:mst` and `smartnoise:aim` are enabled; what seems to be installed is dpmm."""
    folder = tmp_path / "adapters"
    place = virtualenvs.place(folder, LIBRARIES["dpmm"])
    (place / "bin").mkdir(parents=True)
    (place / "bin" / "python").symlink_to(sys.executable)
    (place / "complete").touch()
    monkeypatch.setenv("HALFTONE_ADAPTERS", str(folder))
    monkeypatch.setenv("HALFTONE_DECLARED", "dpmm:mst, smartnoise:aim")
    with world(tmp_path, monkeypatch) as made:
        yield made


def problem(service: World, name: str, status: int = 422) -> dict[str, str]:
    dataset = service.add_dataset()
    before = service.custodian.get(f"/v1/datasets/{dataset}/budget").json()
    for path in ("releases", "releases/preflight"):
        answer = service.custodian.post(
            f"/v1/datasets/{dataset}/{path}", {"synthesizer": name, "guarantee": GAUSSIAN}
        )
        if path == "releases":
            assert answer.status_code == status, answer.text
            assert answer.headers["content-type"] == "application/problem+json"
            found = answer.json()["errors"][0]
        else:
            assert found in answer.json()["problems"]
    assert service.custodian.get(f"/v1/datasets/{dataset}/budget").json() == before
    return found


def test_one_that_is_enabled_and_installed_is_listed_with_its_form(enabled: World) -> None:
    listed = enabled.custodian.get("/v1/synthesizers").json()["items"]
    found = [each for each in listed if ":" in each["name"]]
    assert [(each["name"], each["assurance"], each["state"]) for each in found] == [
        ("dpmm:mst", "declared", "available")
    ]
    assert (found[0]["distribution"], found[0]["version"]) == ("dpmm", LIBRARIES["dpmm"].version)
    shown = enabled.custodian.get("/v1/synthesizers/dpmm:mst").json()
    assert set(shown["params"]["properties"]) == {"columns", "bins", "compress", "iterations"}


def test_one_without_its_virtualenv_is_not_listed_and_told_how_to_get_it(enabled: World) -> None:
    assert enabled.custodian.get("/v1/synthesizers/smartnoise:aim").status_code == 404
    found = problem(enabled, "smartnoise:aim")
    assert found["pointer"] == "/synthesizer"
    assert "not installed" in found["message"]
    assert "halftone adapters install smartnoise" in found["remedy"]


def test_one_that_is_not_enabled_is_refused(enabled: World) -> None:
    found = problem(enabled, "dpmm:aim")
    assert "not enabled" in found["message"]
    assert "dpmm:mst" in found["remedy"]


@pytest.mark.parametrize("name", ["dpmm:privbayes", "smartnoise:mst", "smartnoise:patectgan"])
def test_one_that_is_left_out_is_refused_with_the_reason(enabled: World, name: str) -> None:
    assert LEFT_OUT[name] in problem(enabled, name)["message"]


def test_a_pure_guarantee_is_refused_before_it_is_charged(enabled: World) -> None:
    dataset = enabled.add_dataset()
    answer = enabled.custodian.release(
        dataset, synthesizer="dpmm:mst", params={}, guarantee={"epsilon": "1"}
    )
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == "/guarantee"
    assert enabled.custodian.get("/v1/releases").json()["items"] == []


def test_it_is_charged_as_it_is_declared_and_so_labelled(enabled: World) -> None:
    dataset = enabled.add_dataset()
    answer = enabled.custodian.release(
        dataset, synthesizer="dpmm:mst", params={}, guarantee=GAUSSIAN
    )
    assert answer.status_code == 202, answer.text
    assert answer.json()["assurance"] == "declared"
    spent = enabled.custodian.get(f"/v1/datasets/{dataset}/budget").json()["spent"]
    assert spent == {"epsilon": "1", "delta": "0.0000001"}


def test_without_the_setting_there_is_no_adapter(service: World) -> None:
    listed = service.custodian.get("/v1/synthesizers").json()["items"]
    assert not [each for each in listed if ":" in each["name"]]
    assert "not enabled" in problem(service, "dpmm:mst")["message"]

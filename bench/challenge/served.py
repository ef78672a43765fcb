"""The five published systems over HTTP, each asked as its page of the documentation shows.

    python -m bench.challenge.served

Serves the challenge's trips of 2022 (entity unit) and the public trips, sends every
example of `docs/reference/synthesizers` that is for this table, and prints a Markdown table.
Fails unless each certificate's losses add up to its charge, and each system that needs public data
is refused without it, at that field.
"""

from __future__ import annotations

import argparse
import json
import re
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from halftone_client import Halftone, ValidationFailed

from app.engine.privacy.accounting import delta_of
from app.engine.privacy.loss import DELTA_UNIT, EPSILON_UNIT, from_units, to_units
from bench import shared_data
from bench.service.known_tables import specification
from bench.service.running import KEY, serving
from bench.shared_data import DATA

DOCS = Path(__file__).parents[2] / "docs"
SYSTEMS = ("histogram", "archetypes", "linked_histograms", "class_resampling", "aggregate_seeded")
FOR_ANOTHER_TABLE = {"sprint1"}
"""Presets whose columns the trips lack."""

MOST_ROUNDED_AWAY = Decimal("1e-9")
"""Shares of a loss are rounded down to whole units of 1e-12."""

_EXAMPLE = re.compile(r"```json\n(.*?)```", re.DOTALL)

Example = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Served:
    """One example answered: its rows, and what its mechanisms cost of what was charged."""

    system: str
    number: int
    public: str
    seconds: float
    rows: int
    entities: int
    spent: str
    allowed: str
    charge: str

    HEAD = (
        "system", "example", "without public data", "seconds", "rows", "taxis",
        "sum of losses", "allowed", "charge",
    )  # fmt: skip

    def cells(self) -> list[str]:
        return [
            f"`{self.system}`",
            str(self.number),
            self.public,
            f"{self.seconds:.1f}",
            f"{self.rows:,}",
            f"{self.entities:,}",
            self.spent,
            self.allowed,
            self.charge,
        ]


def examples(system: str) -> Iterator[tuple[int, Example]]:
    """The requests on the system's page that are for the trips, numbered from 1."""
    folders = ("reference/synthesizers", "results")
    page = "".join((DOCS / folder / f"{system}.md").read_text() for folder in folders)
    for number, text in enumerate(_EXAMPLE.findall(page), 1):
        request: Example = json.loads(text)
        if request["params"].get("preset") not in FOR_ANOTHER_TABLE:
            yield number, request


def upload(client: Halftone) -> tuple[str, str]:
    """The private and the public dataset."""
    spec = specification("taxi")
    private = client.upload(spec, DATA / "taxi/private_2022.csv", progress=False)
    for name in ("budget", "accountant"):
        del spec[name]
    spec |= {"name": "chicago-taxi-2022-public", "visibility": "public"}
    public = client.upload(spec, DATA / "taxi/public_2022.csv", progress=False)
    return private["id"], public["id"]


def serve_one(client: Halftone, private: str, public: str, number: int, asked: Example) -> Served:
    request = {**asked, "public_dataset": public} if "public_dataset" in asked else asked
    without = refusal_without_public(client, private, asked)
    started = time.perf_counter()
    made = client.release(private, **request, progress=False)
    frame = client.download(made)
    seconds = time.perf_counter() - started
    certificate = client.certificate(made)
    return Served(
        asked["synthesizer"],
        number,
        without,
        seconds,
        len(frame),
        frame["taxi_id"].nunique() if "taxi_id" in frame else 0,
        *added_up(certificate),
    )


def refusal_without_public(client: Halftone, private: str, asked: Example) -> str:
    """Status and field of the refusal; raises if the public dataset is merely ignored."""
    if "public_dataset" not in asked:
        return "not used"
    request = {name: value for name, value in asked.items() if name != "public_dataset"}
    try:
        client.release(private, **request, wait=False, progress=False)
    except ValidationFailed as error:
        pointers = {each.pointer for each in error.errors}
        if error.status == 422 and pointers == {"/public_dataset"}:
            return "422 at `/public_dataset`"
        raise
    raise AssertionError(f"{asked['synthesizer']} ran without the public data that it needs")


def added_up(certificate: Mapping[str, Any]) -> tuple[str, str, str]:
    """Sum of the mechanisms' losses, what the session was allowed, and the charge, as text.

    Raises `AssertionError` where one is not the other, up to what is rounded away. A zCDP session
    in an (epsilon, delta) charge is allowed the rho that converts to it.
    """
    (measure,) = {"rho", "epsilon"} & certificate["session"]["allowed"].keys()
    losses = sum(Decimal(each["loss"][measure]) for each in certificate["mechanisms"])
    session = certificate["session"]
    spent, allowed = (Decimal(session[name][measure]) for name in ("spent", "allowed"))
    charge = {name: Decimal(amount) for name, amount in certificate["charge"].items()}
    assert spent - MOST_ROUNDED_AWAY <= losses <= spent, "the losses are not what was spent"
    assert allowed - MOST_ROUNDED_AWAY <= spent <= allowed, "not all that was allowed was spent"
    if measure == "epsilon":
        assert charge == {"epsilon": allowed, "delta": 0}, "allowed is not what was charged"
    else:
        rho = to_units(allowed, EPSILON_UNIT, rounding="up")
        epsilon = to_units(charge["epsilon"], EPSILON_UNIT, rounding="up")
        charged = to_units(charge["delta"], DELTA_UNIT, rounding="up")
        assert delta_of(rho, epsilon) <= charged < delta_of(rho + 1, epsilon)
    terms = from_units(to_units(charge["epsilon"], EPSILON_UNIT, rounding="up"), EPSILON_UNIT)
    return (
        f"{measure} {losses:f}",
        f"{measure} {allowed:f}",
        f"({terms}, {charge['delta'].normalize():f})",
    )


def main() -> None:
    argparse.ArgumentParser(
        prog="python -m bench.challenge.served", description=(__doc__ or "").splitlines()[0]
    ).parse_args()
    shared_data.must_be_there()
    print("| " + " | ".join(Served.HEAD) + " |")
    print("|" + "---|" * len(Served.HEAD))
    with tempfile.TemporaryDirectory() as folder, serving(Path(folder), workers=1) as (url, _):
        client = Halftone(url, KEY)
        private, public = upload(client)
        for system in SYSTEMS:
            for number, asked in examples(system):
                served = serve_one(client, private, public, number, asked)
                print("| " + " | ".join(served.cells()) + " |", flush=True)


if __name__ == "__main__":
    main()

"""From a release to a publication, person by person, with the client.

    python publication_client.py http://127.0.0.1:8000 hk_...

The key needs the admin and custodian roles; that of a fresh store has both. The service has to run
with HALFTONE_PUBLIC_CATALOGUE=true. Everything is written to the folder in which it is run.
"""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

from halftone_client import Dataset, Halftone, Record, Release

AGES, REGIONS = range(18, 91), ["north", "south", "west"]
SPEC = {
    "name": "survey",
    "visibility": "private",
    "schema": {
        "fields": [
            {
                "name": "age",
                "type": "integer",
                "constraints": {"minimum": 18, "maximum": 90, "required": True},
                "bins": 12,
            },
            {
                "name": "region",
                "type": "string",
                "constraints": {"enum": REGIONS, "required": True},
            },
        ]
    },
    "unit": {"kind": "row"},
    "budget": {"epsilon": "2", "delta": "1e-6"},
}


def main(url: str, key: str) -> None:
    with Halftone(url, key) as office:
        dataset, release = office_makes_a_release(office)
        analyst = key_of_somebody(office, dataset, "analyst")
        auditor = key_of_somebody(office, dataset, "auditor")
        made = custodian_publishes(office, release)
    stranger_finds_downloads_and_verifies(url, made)
    analyst_samples_what_is_shared(url, analyst, dataset, release)
    auditor_prints_the_statement(url, auditor, dataset)


def office_makes_a_release(office: Halftone) -> tuple[Dataset, Release]:
    table = Path("survey.csv")
    rows = (f"{random.choice(AGES)},{random.choice(REGIONS)}" for _ in range(2000))
    table.write_text("age,region\n" + "\n".join(rows) + "\n")
    dataset = office.upload(SPEC, table, progress=False)
    release = office.release(
        dataset, "mst", {"epsilon": "1", "delta": "1e-6"}, rows=2000, progress=False
    )
    return dataset, release


def key_of_somebody(office: Halftone, dataset: Dataset, role: str) -> str:
    person = office.create_principal(f"Some {role}", roles=[role])
    office.grant(dataset, person, role=role)
    return str(office.create_key(person)["key"])


def custodian_publishes(office: Halftone, release: Release) -> Record:
    """Looks at the report first, as everybody should."""
    Path("report.html").write_text(office.report_page(release))
    made = office.publish(
        release,
        title="Survey of smoking, synthetic",
        abstract="Synthetic answers, made with differential privacy.",
        license="CC-BY-4.0",
        creators=[{"name": "City statistics office"}],
        keywords=["survey"],
    )
    print(f"custodian: published {made['id']}, version {made['version']}")
    return made


def stranger_finds_downloads_and_verifies(url: str, made: Record) -> None:
    """Has no key, and needs none."""
    with Halftone(url) as reader:
        (found,) = (each for each in reader.publications("smoking") if each["id"] == made["id"])
        archive = reader.save_publication(found, "survey.zip")
    checked = subprocess.run(
        [str(Path(sys.executable).with_name("halftone-client")), "verify", str(archive)],
        capture_output=True,
        text=True,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
    print(f"stranger: {found['title']} is whole")


def analyst_samples_what_is_shared(url: str, key: str, dataset: Dataset, release: Release) -> None:
    with Halftone(url, key) as analyst:
        (shared,) = analyst.releases(dataset)
        assert shared.id == release.id
        sample = analyst.sample(shared, rows=500, seed=7, progress=False)
        assert len(analyst.download(sample)) == 500
        spent = analyst.budget(dataset)["allowance"]["spent"]
        assert spent == {"epsilon": "0", "delta": "0"}, spent
        print("analyst: 500 rows of a shared release, at no charge")


def auditor_prints_the_statement(url: str, key: str, dataset: Dataset) -> None:
    with Halftone(url, key) as auditor:
        auditor.save_account_statement(dataset, "statement.html")
        statement = auditor.account_statement(dataset)
        assert statement["verification"]["ok"]
        print("auditor: the statement is in statement.html, and the ledger adds up")


if __name__ == "__main__":
    main(*sys.argv[1:])

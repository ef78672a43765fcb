"""Makes the stores that `test_upgrade.py` upgrades, by a server of the version they are of.

    python tests/upgrade/make_store.py <folder>

It is kept to say what is in them, and to make the next ones when the schema changes again. Writes
`plain.sqlite.gz` and `encrypted.sqlite.gz` into the folder.
"""

from __future__ import annotations

import gzip
import json
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx

sys.path.insert(0, str(Path(__file__).parents[1]))
from serving import serving

# Of the encrypted store: 32 bytes, of no worth.
MASTER_KEY = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
FIELDS: list[dict[str, Any]] = [
    {"name": "age", "type": "integer", "constraints": {"minimum": 18, "maximum": 90}},
    {"name": "region", "type": "string", "constraints": {"enum": ["north", "south", "west"]}},
    {"name": "smokes", "type": "boolean", "constraints": {"required": True}},
]
ENTITY = {"name": "id", "type": "string", "role": "entity"}
ROWS = 300


def table(has_entities: bool, seed: int) -> str:
    draw = random.Random(seed)
    lines = [("id," if has_entities else "") + "age,region,smokes"]
    for row in range(ROWS):
        cells = f"{draw.randint(18, 90)},{draw.choice(['north', 'south', 'west', ''])},"
        owner = f"p{row // 3}," if has_entities else ""
        lines.append(owner + cells + draw.choice(["true", "false"]))
    return "\n".join(lines)


def upload(client: httpx.Client, name: str, *, entities: bool = False, public: bool = False) -> str:
    spec: dict[str, Any] = {
        "name": name,
        "visibility": "public" if public else "private",
        "schema": {"fields": [ENTITY, *FIELDS] if entities else FIELDS},
        "unit": {"kind": "entity", "column": "id", "max_rows": 4} if entities else {"kind": "row"},
    }
    if not public:
        spec |= {"budget": {"epsilon": 9, "delta": 1e-6}, "accountant": "zcdp"}
    files = {
        "spec": (None, json.dumps(spec), "application/json"),
        "file": ("table.csv", table(entities, len(name)), "text/csv"),
    }
    made = client.post("/v1/datasets", files=files).raise_for_status().json()["id"]
    ended(client, f"/v1/datasets/{made}")
    return str(made)


def ended(client: httpx.Client, path: str) -> None:
    while client.get(path).raise_for_status().json()["state"] in ("queued", "running", "ingesting"):
        time.sleep(0.1)


def release(client: httpx.Client, dataset: str, method: str, **more: Any) -> None:
    guarantee = {"epsilon": 1, "delta": 1e-7}
    body = {"synthesizer": method, "guarantee": guarantee, "rows": 200, **more}
    asked = client.post(f"/v1/datasets/{dataset}/releases", json=body).raise_for_status()
    ended(client, f"/v1/releases/{asked.json()['id']}")


def fill(client: httpx.Client) -> None:
    rows, people = upload(client, "rows"), upload(client, "people", entities=True)
    known = upload(client, "known", public=True)
    release(client, rows, "independent")
    release(client, rows, "mst", public_dataset=known)
    release(client, people, "swift")
    erased = upload(client, "erased")
    release(client, erased, "histogram", params={"columns": ["region"]})
    client.delete(f"/v1/datasets/{erased}").raise_for_status()
    form = {"name": "analyst", "roles": ["analyst"]}
    analyst = client.post("/v1/principals", json=form).raise_for_status().json()["id"]
    grant = {"principal_id": analyst, "allowance": {"rho": "0.02"}}
    asked = client.post(f"/v1/datasets/{rows}/grants", json=grant)
    assert asked.is_success, asked.text


def main(folder: Path) -> None:
    for name, settings in (("plain", {}), ("encrypted", {"HALFTONE_MASTER_KEY": MASTER_KEY})):
        with tempfile.TemporaryDirectory() as made:
            data = Path(made) / "store"
            with serving(data, settings) as live, live.client() as client:
                fill(client)
            stored = (data / "halftone.sqlite").read_bytes()
        (folder / f"{name}.sqlite.gz").write_bytes(gzip.compress(stored, mtime=0))


if __name__ == "__main__":
    main(Path(sys.argv[1]))

"""P7: the cost is known before the data is touched.

Costing, validation, refusal and preflight are byte-identical when rows, their number, the
ingest report and every other private fact are erased from the store.
"""

from __future__ import annotations

import re
from typing import Any

import pytest
from bookkeeping import store_no_rows
from release_world import World, wanted
from sqlalchemy import text

from app.datasets.models import DatasetRow
from app.storage.blobs import BlobStore

# With the value of a dataset of which nothing is known.
PRIVATE = {
    "closed": False, "rows": None, "content_hmac": None, "ingest_report": None,
    "wrapped_key": None, "staged": None,
}  # fmt: skip
PUBLIC = (
    "id", "owner_id", "account_id", "name", "visibility", "state", "schema", "unit",
    "max_total_rows", "file_options", "new_population", "created_at", "ready_at", "erased_at",
)  # fmt: skip

REQUESTS: list[dict[str, Any]] = [
    wanted(),
    wanted(synthesizer="mst", params={}, guarantee={"epsilon": 1, "delta": "1e-7"}),
    wanted(synthesizer="independent", params={}),
    wanted(params={"columns": ["nothing"]}),
    wanted(params={"columns": ["day", "size"], "bins": {"size": 3}}),
    wanted(guarantee={"rho": 1, "delta": "1e-7"}),
    wanted(guarantee={"epsilon": 100}),
    wanted(rows=10**9),
]


def erase(service: World, dataset: str) -> None:
    BlobStore(service.database).delete(dataset)
    with service.database.write() as session:
        store_no_rows(session, dataset)
        for column, unknown in PRIVATE.items():
            session.execute(
                text(f"UPDATE datasets SET {column} = :unknown WHERE id = :id"),
                {"id": dataset, "unknown": unknown},
            )


def answers(
    service: World, who: str, dataset: str
) -> list[tuple[int, bytes, list[tuple[str, str]]]]:
    """Status, headers and body of every request, ids and times made equal."""
    found = []
    for body in REQUESTS:
        for path in ("releases/preflight", "releases"):
            answer = service.client(who).post(f"/v1/datasets/{dataset}/{path}", body)
            plain = re.sub(rb"(rl|sm)_[a-z2-9]{20}", rb"\1_", answer.content)
            plain = re.sub(rb"[0-9T:.-]{26}Z", b"time", plain)
            headers = [
                (name, re.sub(r"rl_[a-z2-9]{20}", "rl_", value))
                for name, value in answer.headers.items()
            ]
            found.append((answer.status_code, plain, headers))
    return found


def test_every_column_of_a_dataset_is_known_as_public_or_private() -> None:
    assert {column.name for column in DatasetRow.__table__.columns} == {*PRIVATE, *PUBLIC}


@pytest.mark.parametrize("who", ["custodian", "ana"])
def test_costs_and_refusals_need_no_private_fact(service: World, who: str) -> None:
    service.add_analyst("ana")
    seen = []
    for erased in (False, True):
        dataset = service.add_dataset(epsilon="3", rows=4321, report={"rows": 4321})
        BlobStore(service.database).write(dataset, "codes", [b"\x07" * 1000])
        service.grant(dataset, "ana")
        if erased:
            erase(service, dataset)
        seen.append(
            [
                (status, body.replace(dataset.encode(), b"ds"), headers)
                for status, body, headers in answers(service, who, dataset)
            ]
        )
    assert seen[0] == seen[1]
    assert {status for status, _, _ in seen[0]} == {200, 202, 409, 422}

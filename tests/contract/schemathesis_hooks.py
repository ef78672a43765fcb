"""What Schemathesis cannot know: ids that exist, and disposable things for what destroys.

Schemathesis loads it by SCHEMATHESIS_HOOKS. The environment names the story told to the server
(HALFTONE_CONTRACT_STORY, JSON) and a file for the status of every answer
(HALFTONE_CONTRACT_STATUSES).
"""

from __future__ import annotations

import itertools
import json
import os
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import schemathesis
from schemathesis import Case, HookContext, Response, SerializationContext
from schemathesis.generation.meta import CoveragePhaseData, TestPhase

TOLD: dict[str, Any] = json.loads(Path(os.environ["HALFTONE_CONTRACT_STORY"]).read_text())
STATUSES = Path(os.environ["HALFTONE_CONTRACT_STATUSES"])
EVERY_SIXTH = 6
"""Of so many requests of an operation, one keeps the ids that were generated."""
DEEP = ("request_release", "create_dataset", "create_publication")
"""Bodies of deep forms. The coverage phase has some 3,000 variants of them, five values of a wrong
type for each field among them."""
TABLE_TYPES = (
    "text/csv",
    "text/tab-separated-values",
    "application/jsonl",
    "application/vnd.apache.parquet",
)

_ids: dict[str, str] = TOLD["story"]
_http = httpx.Client(
    base_url=TOLD["url"], headers={"Authorization": f"Bearer {TOLD['key']}"}, timeout=60
)
_turns: Counter[str] = Counter()
_names = itertools.count()
_variants: dict[tuple[str, ...], tuple[int, Iterator[int]]] = {}


def _made(path: str, form: dict[str, Any]) -> str:
    made: str = _http.post(path, json=form).raise_for_status().json()["id"]
    return made


def _principal() -> str:
    form = {"name": f"disposable {next(_names)}", "roles": ["analyst"]}
    return _made("/v1/principals", form)


def _grant() -> dict[str, str]:
    dataset = _ids["dataset"]
    grant = _made(f"/v1/datasets/{dataset}/grants", {"principal_id": _principal()})
    return {"dataset_id": dataset, "grant_id": grant}


def _key() -> dict[str, str]:
    made = _made(f"/v1/principals/{_ids['analyst']}/keys", {})
    return {"principal_id": _ids["analyst"], "key_id": made}


def _dataset() -> dict[str, str]:
    return {"dataset_id": _made("/v1/datasets", TOLD["spec"])}


def _sample() -> dict[str, str]:
    return {"sample_id": _made(f"/v1/releases/{_ids['release']}/samples", {"rows": 1})}


def _publication() -> dict[str, str]:
    form = {
        "release": _ids["release"],
        "title": "Taxi",
        "abstract": "Synthetic trips.",
        "license": "CC-BY-4.0",
        "creators": [{"name": "City"}],
        "keywords": [],
    }
    return {"publication_id": _made("/v1/publications", form)}


_changed = _principal()
_LASTING = {
    "dataset_id": _ids["dataset"],
    "release_id": _ids["release"],
    "sample_id": _ids["sample"],
    "grant_id": _ids["grant"],
    "principal_id": _ids["analyst"],
    "key_id": _ids["key"],
    "publication_id": _ids["publication"],
    "name": "mst",
    "slug": "budget-exceeded",
}
_DISPOSABLE: dict[str, Callable[[], dict[str, str]]] = {
    "erase_dataset": _dataset,
    "upload_data": _dataset,
    "delete_sample": _sample,
    "revoke_key": _key,
    "revoke_grant": _grant,
    "change_principal": lambda: {"principal_id": _changed},
    "set_budget": lambda: {"dataset_id": _ids["spare"]},
    "rename_dataset": lambda: {"dataset_id": _ids["spare"]},
    "request_release": lambda: {"dataset_id": _ids["playground"]},
    "preflight_release": lambda: {"dataset_id": _ids["playground"]},
    "get_publication_file": lambda: {"name": "README.md"},
    "withdraw_publication": _publication,
    "cancel_release": lambda: {"release_id": _ids["cancelled"]},
    "get_evaluation": lambda: {"release_id": _ids["evaluation"]},
}


def _operation(case: Case) -> str:
    name: str = case.operation.definition.raw["operationId"]
    return name


@schemathesis.hook
def filter_case(context: HookContext, case: Case) -> bool:
    """Each fault of each field of a deep body is sent with its first value and with one of the next
    four, which changes from field to field; so is each valid form."""
    del context
    assert case.meta is not None
    phase = case.meta.phase
    if phase.name != TestPhase.COVERAGE or _operation(case) not in DEEP:
        return True
    assert isinstance(phase.data, CoveragePhaseData)
    of_params = "params" in phase.data.description and isinstance(case.body, dict)
    form = (
        _operation(case),
        phase.data.description,
        phase.data.location,
        phase.data.parameter,
        case.body.get("synthesizer") if of_params else None,
    )
    # A generated name can be of any type.
    number, turns = _variants.setdefault(
        tuple(map(repr, form)), (len(_variants), itertools.count())
    )
    return next(turns) in (0, 1 + number % 4)


@schemathesis.hook
def before_call(context: HookContext, case: Case, kwargs: dict[str, Any]) -> None:
    """Most requests are for things that exist."""
    del context, kwargs
    operation = _operation(case)
    _turns[operation] += 1
    if _turns[operation] % EVERY_SIXTH == 0:
        return
    if case.path_parameters:
        for name, value in (_LASTING | _DISPOSABLE.get(operation, dict)()).items():
            if name in case.path_parameters:
                case.path_parameters[name] = value
    if operation == "set_budget":
        case.headers["If-Match"] = "*"
    if operation == "create_grant" and isinstance(case.body, dict):
        case.body = {**case.body, "principal_id": _principal()}
    if operation == "create_publication" and isinstance(case.body, dict) and "release" in case.body:
        case.body = {**case.body, "release": _ids["release"]}
    if operation == "create_principal" and isinstance(case.body, dict) and "name" in case.body:
        case.body = {**case.body, "name": f"{case.body['name']} {next(_names)}"}
    if operation == "propose_dictionary" and case.media_type == "application/json":
        case.query = {"from": "private-pgm"}


@schemathesis.hook
def after_call(context: HookContext, case: Case, response: Response) -> None:
    del context
    with STATUSES.open("a") as file:
        file.write(f"{_operation(case)} {response.status_code}\n")


@schemathesis.serializer(*TABLE_TYPES)
def as_table(context: SerializationContext, value: Any) -> bytes:
    del context
    return value if isinstance(value, bytes) else str(value).encode()

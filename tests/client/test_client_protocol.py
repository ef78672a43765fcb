"""What the client sends, repeats, and makes of the answers, for both kinds of client."""

from __future__ import annotations

import asyncio
import inspect
import io
import json
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import halftone_client
import httpx
import pandas as pd
import pytest
from halftone_client import AsyncHalftone, Halftone, Retry
from hypothesis import given
from hypothesis import strategies as st

KEY = "hk_" + "k" * 32
PATIENCE = Retry(attempts=4, first_pause_s=0.001, longest_pause_s=0.01)
Handler = Callable[[httpx.Request], httpx.Response]


class Script:
    """Answers, or exceptions, given one after the other; keeps the requests it saw."""

    def __init__(self, *answers: httpx.Response | Exception) -> None:
        self._answers = iter(answers)
        self.requests: list[httpx.Request] = []
        self.bodies: list[bytes] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        self.bodies.append(b"".join(request.stream))
        answer = next(self._answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def answer_async(self, request: httpx.Request) -> httpx.Response:
        return self(request)

    def keys(self) -> list[str | None]:
        return [request.headers.get("Idempotency-Key") for request in self.requests]


def call_blocking(handler: Script, method: str, *args: Any, **kwargs: Any) -> Any:
    transport = httpx.MockTransport(handler)
    with Halftone("http://service", KEY, retry=PATIENCE, transport=transport) as client:
        return getattr(client, method)(*args, **kwargs)


def call_async(handler: Script, method: str, *args: Any, **kwargs: Any) -> Any:
    async def call() -> Any:
        transport = httpx.MockTransport(handler.answer_async)
        async with AsyncHalftone(
            "http://service", KEY, retry=PATIENCE, transport=transport
        ) as client:
            return await getattr(client, method)(*args, **kwargs)

    return asyncio.run(call())


@pytest.fixture(params=[call_blocking, call_async], ids=["blocking", "async"])
def call(request: pytest.FixtureRequest) -> Callable[..., Any]:
    return request.param


def release(state: str, **fields: Any) -> dict[str, Any]:
    return {"id": "rl_1", "state": state, "progress": 0.5, "stage": "fit", **fields}


def problem(status: int, slug: str = "conflict", **fields: Any) -> httpx.Response:
    headers = fields.pop("headers", {})
    body = {"type": f"/problems/{slug}", "title": "No", "status": status, "detail": "not so"}
    return httpx.Response(status, json={**body, "errors": [], **fields}, headers=headers)


def test_both_clients_offer_the_same_methods_with_the_same_parameters():
    def surface(client: type) -> dict[str, list[str]]:
        return {
            name: list(inspect.signature(method).parameters)
            for name, method in vars(client).items()
            if inspect.isfunction(method) and not name.startswith("_")
        }

    blocking, awaited = surface(Halftone), surface(AsyncHalftone)
    assert blocking.pop("close") == awaited.pop("aclose") == ["self"]
    assert blocking == awaited
    assert all(vars(Halftone)[name].__doc__ for name in blocking)


def test_the_public_surface_is_pinned():
    assert set(halftone_client.__all__) == {
        "AsyncHalftone", "BudgetExceeded", "Conflict", "Dataset", "FieldError", "Halftone",
        "HalftoneError", "JobFailed", "NotAllowed", "NotAuthenticated", "NotFound", "Preflight",
        "QualityReport", "Record", "Release", "RequestRefused", "Retry", "Sample", "ServiceFailed",
        "ServiceUnavailable", "ServiceUnreachable", "Timeout", "TooLarge", "TooManyRequests",
        "UploadRejected", "ValidationFailed", "Withdrawn",
    }  # fmt: skip
    methods = {name for name in vars(Halftone) if not name.startswith("_")}
    assert methods == {
        "account_statement",
        "audit",
        "budget",
        "cancel",
        "certificate",
        "change_grant",
        "change_principal",
        "close",
        "create_dataset",
        "create_key",
        "create_principal",
        "dataset",
        "datasets",
        "delete_dataset",
        "delete_report",
        "delete_sample",
        "download",
        "evaluate",
        "evaluation",
        "export_ledger",
        "get_release",
        "get_sample",
        "grant",
        "grants",
        "import_dictionary",
        "ingest_report",
        "keys",
        "ledger",
        "make_report",
        "me",
        "measurements",
        "preflight",
        "principals",
        "propose_dictionary",
        "put_data",
        "release",
        "releases",
        "rename_dataset",
        "report",
        "report_page",
        "revoke_grant",
        "revoke_key",
        "sample",
        "samples",
        "save",
        "save_account_statement",
        "save_bundle",
        "schema",
        "set_budget",
        "set_visibility",
        "signing_keys",
        "statement",
        "synthesizer",
        "synthesizers",
        "upload",
        "verify_ledger",
        "publish",
        "publications",
        "publication",
        "save_publication",
        "withdraw",
        "wait",
    }


def test_the_error_tree_drawn_in_the_docstring_is_the_real_one():
    drawing = halftone_client.errors.__doc__ or ""
    for name, kind in vars(halftone_client).items():
        if isinstance(kind, type) and issubclass(kind, halftone_client.HalftoneError):
            assert name in drawing
            depth = len(kind.__mro__) - len(halftone_client.HalftoneError.__mro__)
            line = next(line for line in drawing.splitlines() if name in line.split())
            assert line.index(name) == 4 * depth, name


def test_fractions_that_were_read_can_be_sent_back_as_numbers():
    from halftone_client.wire import decode, encode

    text = b'{"minimum":0.02,"maximum":1e6,"step":0.1,"fine":0.12345678901234567890123}'
    read = decode(httpx.Response(200, content=text))
    sent = json.loads(encode(read))
    assert sent == {"minimum": 0.02, "maximum": 1000000, "step": 0.1, "fine": str(read["fine"])}
    with pytest.raises(ValueError, match="no JSON form"):
        encode({"epsilon": Decimal("NaN")})


def test_a_record_names_its_fields_but_shows_only_what_it_is():
    made = halftone_client.Record({"id": "ky_1", "state": "active", "key": KEY})
    assert repr(made) == "Record(id='ky_1', state='active', key=...)"


def test_a_preflight_shows_whether_it_fits_and_what_it_costs():
    plan = halftone_client.Preflight({"fits": True, "charge": {"epsilon": "1"}, "cells": 762})
    assert repr(plan) == "Preflight(fits=True, charge={'epsilon': '1'}, cells=...)"


def test_the_key_stands_in_no_repr():
    client = Halftone("http://service", KEY)
    assert KEY not in repr(client) + repr(client._service) + repr(vars(client))
    client.close()


def test_a_release_sends_its_guarantee_as_exact_text(call):
    script = Script(httpx.Response(202, json=release("queued")))
    made = call(script, "release", "ds_1", "mst", {"epsilon": 0.1, "delta": 1e-6}, wait=False)
    sent = json.loads(script.bodies[0])
    assert sent == {
        "synthesizer": "mst",
        "params": {},
        "guarantee": {"epsilon": "0.1", "delta": "1e-06"},
    }
    assert script.requests[0].url.path == "/v1/datasets/ds_1/releases"
    assert script.requests[0].headers["Authorization"] == f"Bearer {KEY}"
    assert (made.id, made.state, made["progress"]) == ("rl_1", "queued", Decimal("0.5"))


@given(st.floats(min_value=1e-12, max_value=1e6) | st.decimals("0.000001", "1000"))
def test_an_amount_on_the_wire_reads_back_as_the_same_number(value):
    from halftone_client.wire import amount

    assert type(value)(amount(value)) == value


def test_nan_is_never_sent():
    with pytest.raises(ValueError, match="JSON"):
        call_blocking(
            Script(), "release", "ds_1", "mst", {"epsilon": 1}, params={"x": float("nan")}
        )


def test_attempts_of_one_request_share_a_key_and_two_requests_do_not(call):
    request = httpx.Request("POST", "http://service")
    script = Script(
        httpx.ConnectError("refused", request=request),
        httpx.ReadTimeout("slow", request=request),
        problem(503, "unavailable", headers={"Retry-After": "0"}),
        httpx.Response(202, json=release("queued")),
        httpx.Response(202, json=release("queued")),
    )
    call(script, "release", "ds_1", "mst", {"epsilon": 1}, wait=False)
    assert len(set(script.keys())) == 1
    assert script.keys()[0]
    assert len(set(script.bodies)) == 1
    call(script, "release", "ds_1", "mst", {"epsilon": 1}, wait=False)
    assert script.keys()[4] != script.keys()[0]


def test_retries_end_and_say_so(call):
    request = httpx.Request("GET", "http://service")
    script = Script(*[httpx.ReadTimeout("slow", request=request)] * 9)
    with pytest.raises(halftone_client.ServiceUnreachable) as caught:
        call(script, "me")
    assert len(script.requests) == PATIENCE.attempts
    assert isinstance(caught.value.__cause__, httpx.ReadTimeout)


def test_a_raised_budget_is_not_sent_twice_when_its_answer_is_lost(call):
    request = httpx.Request("PUT", "http://service")
    script = Script(
        httpx.Response(200, json={}, headers={"ETag": '"7"'}),
        httpx.ReadTimeout("slow", request=request),
    )
    with pytest.raises(halftone_client.ServiceUnreachable):
        call(script, "set_budget", "ds_1", epsilon=12, reason="new wave")
    assert script.requests[1].headers["If-Match"] == '"7"'
    assert json.loads(script.bodies[1]) == {"epsilon": "12", "reason": "new wave"}


def test_a_deletion_repeated_after_a_lost_answer_may_find_nothing_left(call):
    request = httpx.Request("DELETE", "http://service")
    lost = httpx.ReadTimeout("slow", request=request)
    call(Script(lost, problem(404, "not-found")), "delete_sample", "sm_1")
    with pytest.raises(halftone_client.NotFound):
        call(Script(problem(404, "not-found")), "delete_sample", "sm_1")


def test_a_long_retry_after_is_the_callers_to_wait(call):
    script = Script(problem(429, "too-many-requests", headers={"Retry-After": "3600"}))
    with pytest.raises(halftone_client.TooManyRequests) as caught:
        call(script, "me")
    assert caught.value.retry_after == 3600


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "ValidationFailed"),
        (401, "NotAuthenticated"),
        (403, "NotAllowed"),
        (404, "NotFound"),
        (409, "Conflict"),
        (412, "Conflict"),
        (413, "TooLarge"),
        (415, "ValidationFailed"),
        (418, "RequestRefused"),
        (422, "ValidationFailed"),
        (429, "TooManyRequests"),
        (500, "ServiceFailed"),
        (503, "ServiceUnavailable"),
    ],
)
def test_each_status_has_its_error(status, kind):
    with pytest.raises(halftone_client.RequestRefused) as caught:
        call_blocking(Script(*[problem(status, headers={"Retry-After": "60"})] * 9), "me")
    assert type(caught.value).__name__ == kind
    assert (caught.value.status, caught.value.detail) == (status, "not so")


def test_an_answer_in_another_tongue_is_still_an_error(call):
    script = Script(*[httpx.Response(502, text="<html>bad gateway</html>")] * 9)
    with pytest.raises(halftone_client.ServiceFailed, match="502 Bad Gateway"):
        call(script, "me")
    assert len(script.requests) == PATIENCE.attempts


def test_a_refusal_for_budget_carries_its_figures(call):
    refused = problem(
        409,
        "budget-exceeded",
        requested={"rho": "0.5", "delta": "0"},
        spent={"rho": "1.2", "delta": "0"},
        remaining={"rho": "0.339280000001", "delta": "0"},
        scope="account",
        limited_by="rho",
        largest_epsilon="0.4",
    )
    with pytest.raises(halftone_client.BudgetExceeded) as caught:
        call(Script(refused), "release", "ds_1", "mst", {"epsilon": 9})
    error = caught.value
    assert error.remaining == {"rho": Decimal("0.339280000001"), "delta": 0}
    assert (error.scope, error.limited_by, error.largest_epsilon) == (
        "account",
        "rho",
        Decimal("0.4"),
    )
    for figure in (error.requested, error.spent, error.remaining):
        assert str(figure["rho"]) in str(error)
    assert "largest epsilon that fits 0.4" in str(error)


def test_a_refusal_that_keeps_the_account_to_itself_has_none():
    refused = problem(
        409,
        "budget-exceeded",
        requested={"epsilon": "1", "delta": "0"},
        spent=None,
        remaining=None,
        scope="account",
        limited_by="epsilon",
        largest_epsilon=None,
    )
    with pytest.raises(halftone_client.BudgetExceeded) as caught:
        call_blocking(Script(refused), "release", "ds_1", "mst", {"epsilon": 9})
    assert (caught.value.spent, caught.value.remaining, caught.value.largest_epsilon) == (None,) * 3


def test_what_is_wrong_with_a_request_can_be_read_in_the_message():
    wrong = {"pointer": "/guarantee/epsilon", "message": "is negative", "remedy": "ask for more"}
    with pytest.raises(halftone_client.ValidationFailed) as caught:
        call_blocking(Script(problem(422, "invalid", errors=[wrong])), "me")
    assert caught.value.errors == (halftone_client.FieldError(**wrong),)
    assert "/guarantee/epsilon: is negative (ask for more)" in str(caught.value)


def test_waiting_reports_progress_until_the_job_is_done(call):
    script = Script(
        httpx.Response(202, json=release("queued")),
        httpx.Response(200, json=release("running", progress=0.25), headers={"Retry-After": "0"}),
        httpx.Response(200, json=release("succeeded", stage="done", progress=1.0)),
    )
    seen: list[tuple[float, str]] = []
    done = call(
        script,
        "release",
        "ds_1",
        "mst",
        {"rho": "0.1"},
        progress=lambda fraction, stage: seen.append((fraction, stage)),
    )
    assert done.state == "succeeded"
    assert seen == [(0.25, "fit"), (1.0, "done")]


@pytest.mark.parametrize("state", ["failed", "cancelled"])
def test_a_job_that_ends_without_a_result_raises(state, call):
    script = Script(
        httpx.Response(202, json=release("queued")),
        httpx.Response(200, json=release(state, failure="did not finish")),
    )
    with pytest.raises(
        halftone_client.JobFailed, match=f"rl_1 is {state}: did not finish"
    ) as caught:
        call(script, "release", "ds_1", "mst", {"epsilon": 1})
    assert caught.value.record["id"] == "rl_1"


def test_a_deadline_ends_the_waiting_and_not_the_job(call):
    running = httpx.Response(200, json=release("running"), headers={"Retry-After": "9"})
    script = Script(httpx.Response(202, json=release("queued")), running)
    with pytest.raises(halftone_client.Timeout) as caught:
        call(script, "release", "ds_1", "mst", {"epsilon": 1}, timeout_s=0.5)
    assert caught.value.record["state"] == "running"
    assert all(request.method in {"POST", "GET"} for request in script.requests)


def test_lists_are_read_to_their_end(call):
    script = Script(
        httpx.Response(200, json={"items": [{"id": "ds_1"}], "next": "c/1"}),
        httpx.Response(200, json={"items": [{"id": "ds_2"}], "next": None}),
    )
    assert [dataset.id for dataset in call(script, "datasets")] == ["ds_1", "ds_2"]
    assert script.requests[1].url.params["cursor"] == "c/1"
    assert "cursor" not in script.requests[0].url.params


def test_an_id_cannot_reach_another_address():
    script = Script(httpx.Response(200, json={}))
    call_blocking(script, "certificate", "../datasets/ds_1?x")
    assert script.requests[0].url.raw_path == b"/v1/releases/..%2Fdatasets%2Fds_1%3Fx/certificate"


SPEC = {"name": "t", "schema": {"fields": []}, "budget": {"epsilon": 1, "delta": 1e-6}}
READY = {"id": "ds_1", "state": "ready"}


class Pipe(io.RawIOBase):
    """Bytes that can be read once."""

    def __init__(self, data: bytes) -> None:
        self._left = io.BytesIO(data)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return self._left.readinto(buffer)


def tables(folder: Path) -> Iterator[tuple[str, Any]]:
    path = folder / "t.csv"
    path.write_bytes(b"a,b\n1,2\n")
    yield "t.csv", path
    yield "t.csv", str(path)
    yield "table.csv", b"a,b\n1,2\n"
    yield "table.csv", pd.DataFrame({"a": [1], "b": [2]})
    yield "table.csv", io.BytesIO(b"a,b\n1,2\n")


def test_every_kind_of_table_is_uploaded_after_its_spec(call, tmp_path):
    for name, table in tables(tmp_path):
        script = Script(httpx.Response(202, json={**READY, "state": "ingesting"}))
        call(script, "upload", SPEC, table, wait=False)
        body = script.bodies[0]
        assert body.index(b'"epsilon": "1"') < body.index(b"a,b\n1,2\n")
        assert f'filename="{name}"'.encode() in body
        assert b"text/csv" in body
        assert script.requests[0].headers["Idempotency-Key"]


def test_an_upload_cut_short_is_sent_again_whole(call, tmp_path):
    for _, table in tables(tmp_path):
        lost = httpx.WriteError("reset", request=httpx.Request("POST", "http://service"))
        script = Script(lost, httpx.Response(202, json=READY), httpx.Response(200, json=READY))
        assert call(script, "upload", SPEC, table).state == "ready"
        boundaries = [r.headers["Content-Type"].split("boundary=")[1] for r in script.requests[:2]]
        first, second = (
            body.replace(boundary.encode(), b"")
            for body, boundary in zip(script.bodies, boundaries, strict=False)
        )
        assert first == second
        assert b"a,b\n1,2\n" in second
        assert script.keys()[0] == script.keys()[1]


def test_a_pipe_is_sent_once(call):
    lost = httpx.ConnectError("reset", request=httpx.Request("PUT", "http://service"))
    with pytest.raises(halftone_client.ServiceUnreachable):
        call(Script(lost), "put_data", "ds_1", Pipe(b"a\n1\n"))
    script = Script(httpx.Response(202, json=READY))
    call(script, "put_data", "ds_1", Pipe(b"a\n1\n"), wait=False)
    assert script.bodies == [b"a\n1\n"]
    assert script.requests[0].headers["Transfer-Encoding"] == "chunked"


def test_a_table_put_by_itself_names_its_length_and_format(call, tmp_path):
    path = tmp_path / "t.jsonl.gz"
    path.write_bytes(b"packed")
    script = Script(httpx.Response(202, json=READY))
    call(script, "put_data", "ds_1", path, wait=False)
    assert script.requests[0].headers["Content-Length"] == "6"
    assert script.requests[0].url.params["format"] == "jsonl"
    assert script.bodies == [b"packed"]


def rejection(count: int, groups: list[dict[str, Any]]) -> dict[str, Any]:
    examples = [example for group in groups for example in group["examples"]]
    return {
        "state": "rejected",
        "problem_count": count,
        "problems": examples,
        "problem_groups": groups,
    }


def group(column: str | None, cause: str, count: int, rows: list[int | None]) -> dict[str, Any]:
    examples = [
        {"row": row, "record": row, "column": column, "message": f"is {cause}", "remedy": "mend it"}
        for row in rows
    ]
    return {"column": column, "cause": cause, "count": count, "examples": examples}


def test_a_rejected_table_raises_with_its_problems_by_column_and_cause(call):
    rejected = httpx.Response(200, json={**READY, "state": "rejected"})
    groups = [
        group("fare", "not_text", 120, [3, 5, 8]),
        group("pay", "undeclared", 1, [3]),
        group(None, "file", 1, [None]),
    ]
    report = rejection(122, groups)
    script = Script(
        httpx.Response(202, json={**READY, "state": "ingesting"}),
        rejected,
        httpx.Response(200, json=report),
    )
    with pytest.raises(halftone_client.UploadRejected) as caught:
        call(script, "upload", SPEC, b"a\n")
    assert str(caught.value).splitlines() == [
        "ds_1 is rejected: 122 problems",
        "  column fare, not text: 120",
        "    row 3: is not_text (mend it)",
        "    row 5: is not_text (mend it)",
        "  column pay, undeclared: 1",
        "    row 3: is undeclared (mend it)",
        "  file: 1",
        "    is file (mend it)",
    ]
    assert caught.value.report["problem_groups"] == groups


def test_a_rejection_of_very_many_columns_tells_how_many_it_leaves_out():
    groups = [group(f"c{place}", "missing", 2, [1]) for place in range(23)]
    error = halftone_client.UploadRejected(halftone_client.Dataset(READY), rejection(46, groups))
    assert str(error).splitlines()[-1] == "  and 3 more columns or causes"
    assert "c19" in str(error)
    assert "c20" not in str(error)


def test_a_sample_is_downloaded_as_a_frame(call):
    script = Script(httpx.Response(200, content=b"a,b\n1,x\n"))
    done = halftone_client.Release(release("succeeded", samples=[{"id": "sm_9", "rows": 1}]))
    frame = call(script, "download", done, "csv")
    assert frame.to_dict("list") == {"a": [1], "b": ["x"]}
    assert script.requests[0].url.path == "/v1/samples/sm_9/data"


def test_a_download_waits_while_the_rows_are_made_again(call):
    soon = problem(409, "not-ready", headers={"Retry-After": "0"})
    script = Script(soon, soon, httpx.Response(200, content=b"a\n1\n"))
    assert len(call(script, "download", "sm_1", "csv")) == 1
    with pytest.raises(halftone_client.Conflict):
        call(Script(problem(409)), "download", "sm_1", "csv")


def test_a_saved_sample_is_whole_or_absent(call, tmp_path):
    target = tmp_path / "out.csv"
    with pytest.raises(halftone_client.NotFound):
        call(Script(problem(404, "not-found")), "save", "sm_1", target)
    assert list(tmp_path.iterdir()) == []
    broken = httpx.Response(200, stream=BrokenStream())
    whole = httpx.Response(200, content=b"a\n1\n")
    assert call(Script(broken, whole), "save", "sm_1", target) == target
    assert target.read_bytes() == b"a\n1\n"
    assert list(tmp_path.iterdir()) == [target]


class BrokenStream(httpx.SyncByteStream, httpx.AsyncByteStream):
    def __iter__(self) -> Iterator[bytes]:
        yield b"a\n1"
        raise httpx.ReadError("connection lost")

    async def __aiter__(self):
        for chunk in self:
            yield chunk


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("export_ledger", "/v1/datasets/ds_1/ledger/export"),
        ("save_account_statement", "/v1/datasets/ds_1/ledger/statement"),
    ],
)
def test_a_ledger_and_its_statement_are_written_to_files(call, tmp_path, method, path):
    script = Script(httpx.Response(200, content=b"every entry"))
    target = tmp_path / "file"
    assert call(script, method, "ds_1", target) == target
    assert target.read_bytes() == b"every entry"
    assert script.requests[0].url.path == path
    refused = Script(problem(403))
    with pytest.raises(halftone_client.NotAllowed):
        call(refused, method, "ds_1", tmp_path / "other")
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.parametrize("method", ["download", "save"])
def test_an_unknown_format_is_refused_before_anything_is_sent(method, tmp_path):
    extra = [tmp_path / "x.csv"] if method == "save" else []
    with pytest.raises(ValueError, match="xls"):
        call_blocking(Script(), method, "sm_1", *extra, format="xls")


def test_a_further_sample_is_asked_for_with_its_seed(call):
    script = Script(httpx.Response(202, json={"id": "sm_2", "state": "queued"}))
    call(script, "sample", "rl_1", 50, seed=7, wait=False)
    assert json.loads(script.bodies[0]) == {"kind": "rows", "rows": 50, "seed": 7}
    assert script.keys()[0]


def test_a_release_is_shared_by_one_request(call):
    script = Script(httpx.Response(200, json=release("succeeded", visibility="grantees")))
    made = call(script, "set_visibility", "rl_1", "grantees")
    assert script.requests[0].method == "PUT"
    assert script.requests[0].url.path == "/v1/releases/rl_1/visibility"
    assert json.loads(script.bodies[0]) == {"visibility": "grantees"}
    assert made["visibility"] == "grantees"


def test_a_report_is_made_once_and_waited_for(call):
    shown = {"release_id": "rl_1", "public": {"expected_errors": []}, "exact": None}
    made = {**shown, "exact": {"notice": "not private: do not publish"}}
    script = Script(
        httpx.ConnectError("gone"),
        httpx.Response(202, json={**shown, "state": "queued"}),
        httpx.Response(200, json={**shown, "state": "running"}),
        httpx.Response(200, json={**made, "state": "succeeded"}),
    )
    found = call(script, "make_report", "rl_1", progress=False)
    assert found["exact"]["notice"] == "not private: do not publish"
    assert (found.id, found.path) == ("rl_1", "/v1/releases/rl_1/report")
    assert [request.method for request in script.requests] == ["POST", "POST", "GET", "GET"]
    assert {request.url.path for request in script.requests} == {"/v1/releases/rl_1/report"}
    first, second, *_ = script.keys()
    assert first is not None
    assert first == second


def test_a_report_that_cannot_be_made_says_why(call):
    failed = {"release_id": "rl_1", "state": "failed", "private_detail": "the job passed its limit"}
    script = Script(
        httpx.Response(202, json={**failed, "state": "queued"}), httpx.Response(200, json=failed)
    )
    with pytest.raises(halftone_client.JobFailed, match="passed its limit"):
        call(script, "make_report", "rl_1", progress=False)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_progress_bar_is_drawn_on_a_terminal_only():
    from halftone_client.progress import ProgressBar

    terminal, log = Terminal(), io.StringIO()
    for stream in (terminal, log):
        bar = ProgressBar("release rl_1", stream)
        bar(0.5, "measure")
        bar.close()
    assert "release rl_1" in terminal.getvalue()
    assert " 50% measure" in terminal.getvalue()
    assert terminal.getvalue().endswith("\n")
    assert log.getvalue() == ""


@pytest.mark.parametrize("call", [call_blocking, call_async])
def test_without_pyarrow_text_that_looks_like_null_or_a_number_stays_text(call, monkeypatch):
    monkeypatch.setattr("halftone_client.flows.releases.find_spec", lambda name: None)  # noqa: ARG005
    rows = [
        {"code": "01", "grade": "NA", "amount": 0.1},
        {"code": "02", "grade": None, "amount": 2},
    ]
    script = Script(httpx.Response(200, text="".join(json.dumps(row) + "\n" for row in rows)))
    frame = call(script, "download", "sm_1")
    assert frame["code"].tolist() == ["01", "02"]
    assert frame["grade"][0] == "NA"
    assert pd.isna(frame["grade"][1])
    assert frame["amount"].tolist() == [0.1, 2]
    csv = Script(httpx.Response(200, content=b"grade\nNA\nx\n"))
    assert call(csv, "download", "sm_1", "csv")["grade"].tolist() == ["NA", "x"]


def test_an_evaluation_is_bought_and_its_distances_are_read(call):
    made = {"id": "rl_2", "state": "succeeded", "evaluates": "rl_1"}
    script = Script(httpx.Response(202, json=made), httpx.Response(200, json=made))
    found = call(
        script, "evaluate", "rl_1", {"epsilon": 0.5}, pairs=[("age", "region")], progress=False
    )
    assert found["evaluates"] == "rl_1"
    first = script.requests[0]
    assert (first.method, first.url.path) == ("POST", "/v1/releases/rl_1/evaluations")
    assert json.loads(first.content) == {
        "guarantee": {"epsilon": "0.5"},
        "pairs": [["age", "region"]],
    }
    assert script.keys()[0] is not None
    script = Script(httpx.Response(200, json={"rows": 10}))
    assert call(script, "evaluation", found)["rows"] == 10
    assert script.requests[0].url.path == "/v1/releases/rl_2/evaluation"


def test_a_report_is_asked_for_with_what_is_chosen(call):
    done = {"release_id": "rl_1", "state": "succeeded", "exact": {}}
    script = Script(httpx.Response(202, json=done), httpx.Response(200, json=done))
    call(script, "make_report", "rl_1", target="age", subgroups=["region"], progress=False)
    assert json.loads(script.requests[0].content) == {"target": "age", "subgroups": ["region"]}

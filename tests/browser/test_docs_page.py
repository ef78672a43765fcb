"""The API page works with the network closed: it authorises, and runs a request from the page."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, Request, expect, sync_playwright
from serving import ADMIN_KEY, LiveServer, serving

CHROMIUM = shutil.which("chromium") or "/usr/bin/chromium"
CLOSED = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    folder: Path = tmp_path_factory.mktemp("store")
    with serving(folder, {"HALFTONE_WORKERS": "0"}) as live:
        yield live


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=CHROMIUM, args=CLOSED)
        yield launched
        launched.close()


@pytest.fixture
def page(browser: Browser, server: LiveServer) -> Iterator[Page]:
    """A page in a context of its own, which remembers nothing of other tests."""
    opened = browser.new_page(base_url=server.url, viewport={"width": 1280, "height": 900})
    yield opened
    opened.close()


def test_the_page_authorises_and_runs_a_request_offline(page: Page, server: LiveServer) -> None:
    asked: list[str] = []
    errors: list[str] = []
    page.on("request", lambda request: asked.append(_url(request)))
    page.on("pageerror", lambda error: errors.append(str(error)))

    authorise(page)

    me = page.locator("#operations-principals-get_me")
    me.locator(".opblock-summary-control").click()
    me.get_by_role("button", name="Try it out").click()
    me.get_by_role("button", name="Execute").click()
    live = me.locator(".live-responses-table")
    expect(live.locator(".response-col_status").last).to_contain_text("200")
    expect(live).to_contain_text("custodian")

    assert errors == []
    assert all(url.startswith((server.url, "data:", "blob:")) for url in asked), asked


def test_a_table_is_uploaded_from_the_page(page: Page, tmp_path: Path) -> None:
    """The example of `spec` is filled in, and the browser sends it before the file."""
    table = tmp_path / "taxi.csv"
    table.write_text("taxi_id,shift,payment_type,fare\nT1,3,Cash,12.5\n")
    authorise(page)

    create = page.locator("#operations-datasets-create_dataset")
    create.locator(".opblock-summary-control").click()
    create.get_by_role("button", name="Try it out").click()
    create.get_by_label("Request content type").select_option("multipart/form-data")
    create.locator("input[type=file]").set_input_files(table)
    create.get_by_role("button", name="Execute").click()
    live = create.locator(".live-responses-table")
    expect(live.locator(".response-col_status").last).to_contain_text("202")
    expect(live).to_contain_text('"state": "ingesting"')


def test_every_operation_is_on_the_page(page: Page) -> None:
    page.goto("/docs")
    expect(page.locator(".opblock").first).to_be_visible()
    described = page.evaluate("fetch('/openapi.json').then(answer => answer.json())")
    operations = [
        operation["operationId"]
        for path in described["paths"].values()
        for operation in path.values()
    ]
    assert page.locator(".opblock").count() == len(operations)


def authorise(page: Page) -> None:
    page.goto("/docs")
    page.get_by_role("button", name="Authorize").first.click()
    page.get_by_label("auth-bearer-value").fill(ADMIN_KEY)
    page.locator(".auth-btn-wrapper .authorize").click()
    page.locator(".auth-btn-wrapper .btn-done").click()


def _url(request: Request) -> str:
    return request.url

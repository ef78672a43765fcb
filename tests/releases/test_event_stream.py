"""The event stream of a release: what it tells, how it goes on, that it ends."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
from forge import eventually
from release_world import Client, World, colours
from sqlalchemy import event

from app.database import now
from app.releases import feed
from app.releases import service as life
from app.security.models import ApiKeyRow, PrincipalRow


@dataclass(frozen=True)
class Event:
    id: int
    type: str
    data: str


def parsed(text: str) -> list[Event]:
    found = []
    for block in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if line)
        if "event" in fields:
            found.append(Event(int(fields["id"]), fields["event"], fields["data"]))
    return found


def test_a_finished_release_tells_its_whole_story(service: World) -> None:
    service.custodian.release(service.add_dataset())
    release = service.run_fit(colours(300))
    answer = service.custodian.get(f"/v1/releases/{release}/events")
    assert answer.headers["content-type"].startswith("text/event-stream")
    events = parsed(answer.text)
    assert [event.id for event in events] == list(range(1, len(events) + 1))
    states = [event.data for event in events if event.type == "state"]
    assert states == [
        '{"state":"queued"}',
        '{"state":"running"}',
        '{"state":"succeeded"}',
    ]
    assert any(event.type == "progress" for event in events)
    assert (events[-1].type, events[-1].data) == ("end", '{"state":"succeeded"}')


def test_a_reader_goes_on_where_it_stopped_and_is_told_when_nothing_follows(
    service: World,
) -> None:
    service.custodian.release(service.add_dataset())
    release = service.run_fit(colours(300))
    path = f"/v1/releases/{release}/events"
    events = parsed(service.custodian.get(path).text)
    rest = service.custodian.get(path, headers={"Last-Event-ID": "2"})
    assert parsed(rest.text) == events[2:]
    over = service.custodian.get(path, headers={"Last-Event-ID": str(events[-1].id)})
    assert over.status_code == 204
    assert service.custodian.get(path, headers={"Last-Event-ID": "x"}).status_code == 422


@pytest.mark.parametrize("last_seen", ["0", "999"], ids=["from the start", "from beyond the end"])
def test_a_reader_follows_a_release_while_it_runs(
    service: World, monkeypatch: pytest.MonkeyPatch, last_seen: str
) -> None:
    monkeypatch.setattr(feed, "KEEP_ALIVE_S", 0.05)
    release = service.custodian.release(service.add_dataset()).json()["id"]
    read: list[str] = []

    def follow() -> None:
        path, seen = f"/v1/releases/{release}/events", {"Last-Event-ID": last_seen}
        read.append(service.custodian.get(path, headers=seen).text)

    reader = threading.Thread(target=follow, daemon=True)
    reader.start()
    time.sleep(0.3)
    service.run_fit(colours(300))
    reader.join(20)
    assert [event.type for event in parsed(read[0])][-2:] == ["state", "end"]
    assert ": keep-alive" in read[0]


def _disable(row: PrincipalRow) -> None:
    row.state = "disabled"


def _take_custody_away(row: PrincipalRow) -> None:
    row.is_custodian = False


LOSSES: dict[str, tuple[str, Callable[[PrincipalRow], None] | str]] = {
    "the key is revoked": ("ann", "revoked_at"),
    "the key expires": ("ann", "expires_at"),
    "the principal is disabled": ("ann", _disable),
    "the custodian is none any more": ("custodian", _take_custody_away),
}


@pytest.mark.parametrize("loss", LOSSES)
def test_a_stream_ends_when_its_reader_may_no_longer_read(
    service: World, monkeypatch: pytest.MonkeyPatch, loss: str
) -> None:
    """A revoked key had gone on reading until the release ended; other readers read on."""
    monkeypatch.setattr(feed, "KEEP_ALIVE_S", 0.02)
    who, change = LOSSES[loss]
    dataset = service.add_dataset()
    ann = service.add_analyst("ann")
    service.grant(dataset, "ann")
    release = ann.release(dataset).json()["id"]
    reading = {name: _Reader(service.client(name), release) for name in ("ann", "custodian")}
    other = "ann" if who == "custodian" else "custodian"
    streams = service.http.app.state.feed._streams  # type: ignore[attr-defined]
    eventually(lambda: sum(stream.seen for stream in streams) == 2, "both to read")
    with service.database.write() as session:
        owner = session.get_one(PrincipalRow, service.principal_id(who))
        if callable(change):
            change(owner)
        else:
            key = session.query(ApiKeyRow).filter_by(principal_id=owner.id).one()
            setattr(key, change, now())
    reading[who].join(20)
    assert not reading[who].is_alive()
    assert "event: end" not in reading[who].text
    assert reading[other].is_alive()
    with service.database.write() as session:
        life.cancelled(session, release)
    reading[other].join(20)
    assert "event: end" in reading[other].text
    refused = service.client(who).get(f"/v1/releases/{release}/events")
    assert refused.status_code in (401, 404)


class _Reader(threading.Thread):
    """Follows a release to the end of the stream."""

    def __init__(self, client: Client, release: str) -> None:
        super().__init__(daemon=True)
        self.text = ""
        self._client, self._release = client, release
        self.start()

    def run(self) -> None:
        self.text = self._client.get(f"/v1/releases/{self._release}/events").text


def test_rights_are_looked_up_for_all_streams_together(service: World) -> None:
    """Two statements for one key, however many streams it has."""
    dataset = service.add_dataset(epsilon="200")
    made = [service.custodian.release(dataset).json()["id"] for _ in range(3)]
    with service.database.read() as session:
        (key,) = session.query(ApiKeyRow.id).one()
    statements: list[str] = []
    event.listen(
        service.database.read_engine,
        "before_cursor_execute",
        lambda *given: statements.append(given[2]),
    )
    pairs = {(key, release) for release in made} | {("ky_unknown", made[0])}
    assert feed.Feed(service.database)._allowed(pairs) == {(key, release) for release in made}
    assert len([text for text in statements if text.startswith("SELECT")]) == 2


def test_what_was_told_is_not_told_twice(service: World) -> None:
    release = service.custodian.release(service.add_dataset()).json()["id"]
    first = [SimpleNamespace(fraction=0.1, stage="a"), SimpleNamespace(fraction=0.1, stage="b")]
    later = [*first, SimpleNamespace(fraction=0.5, stage="b")]
    for reports in (first, later):
        with service.database.write() as session:
            life.progressed(session, release, reports)
    with service.database.write() as session:
        life.cancelled(session, release)
    told = [
        e
        for e in parsed(service.custodian.get(f"/v1/releases/{release}/events").text)
        if e.type == "progress"
    ]
    assert [event.data for event in told] == [
        '{"progress":0.1,"stage":"a"}',
        '{"progress":0.1,"stage":"b"}',
        '{"progress":0.5,"stage":"b"}',
    ]

"""The event stream of a release: what it tells, how it goes on, that it ends."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
from release_world import World, colours

from app.releases import feed
from app.releases import service as life


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

"""The stored journal: kept across runs, closed to a worker whose lease has gone."""

from __future__ import annotations

import pytest
from release_world import World, colours

from app.engine.privacy.journal import JournalEntry
from app.engine.privacy.loss import PrivacyLoss
from app.queue import jobs
from app.queue.jobs import LeaseLost
from app.releases import journal
from app.releases.journal import StoredJournal


def entry(number: int) -> JournalEntry:
    return JournalEntry(number, "ab" * 32, b"question", b"answer", PrivacyLoss.pure(7))


def test_another_run_reads_what_the_first_was_answered(service: World) -> None:
    service.custodian.release(service.add_dataset())
    first = service.claim()
    StoredJournal(first).append(entry(0))
    with service.database.write() as session:
        jobs.hand_back(session, first.claim)
    second = service.claim()
    assert second.subject_id == first.subject_id
    assert StoredJournal(second).entries() == (entry(0),)


def test_a_worker_that_lost_its_lease_stores_nothing(service: World) -> None:
    service.custodian.release(service.add_dataset())
    lost = service.claim()
    with service.database.write() as session:
        jobs.hand_back(session, lost.claim)
    with pytest.raises(LeaseLost):
        StoredJournal(lost).append(entry(0))
    with service.database.read() as session:
        assert journal.read(session, lost.subject_id) == ()


def test_what_a_release_measured_is_within_its_charge(service: World) -> None:
    service.custodian.release(service.add_dataset())
    release = service.run_fit(colours(300))
    with service.database.read() as session:
        spent = sum(each.loss.amount for each in journal.read(session, release))
    assert 0 < spent <= 10**12

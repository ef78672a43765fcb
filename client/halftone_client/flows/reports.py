"""Reports: how good a release is."""

from __future__ import annotations

from halftone_client.flows import waiting
from halftone_client.flows.releases import ReleaseRef
from halftone_client.progress import Report
from halftone_client.protocol import Call, Flow, Service, path_to
from halftone_client.records import QualityReport, id_of


def report(service: Service, release: ReleaseRef) -> Flow[QualityReport]:
    """The report as it is now: `["public"]` for everyone who sees the release, `["exact"]` for
    the dataset's custodian alone, once it exists (None until then, and for everyone else)."""
    return QualityReport((yield from service.get(_path(release))))


def report_page(service: Service, release: ReleaseRef) -> Flow[str]:
    """The report as a page for people, one HTML file that needs nothing else: write it to disk."""
    call = Call("GET", _path(release), params={"format": "html"})
    return (yield from service.call(call)).text


def make_report(
    service: Service,
    release: ReleaseRef,
    *,
    wait: bool = True,
    timeout_s: float | None = None,
    progress: bool | Report = True,
) -> Flow[QualityReport]:
    """Compare the release with the real table, as its custodian; free of charge.

    What `["exact"]` then holds is not private: do not publish it. An earlier one is dropped.
    """
    accepted = QualityReport((yield from service.post(_path(release), None, makes=True)))
    if not wait:
        return accepted
    return (yield from waiting.wait(service, accepted, timeout_s=timeout_s, progress=progress))


def delete_report(service: Service, release: ReleaseRef) -> Flow[None]:
    """Stop the comparison, if it runs, and erase what it found; the public part stays."""
    yield from service.delete(_path(release))


def _path(release: ReleaseRef) -> str:
    return path_to("releases", id_of(release), "report")

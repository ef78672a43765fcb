"""What the service holds, as it last said: read-only mappings over the JSON it sent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, ClassVar


class Record(Mapping[str, Any]):
    """One resource. Every field of the wire is there as `record["name"]`; fractions are `Decimal`.

    It is a picture of one moment and does not change; ask the service again for a newer one.
    """

    # What `repr` shows. The rest may be long, or a key.
    _shown: ClassVar[tuple[str, ...]] = ("id", "name", "state")

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self._fields = MappingProxyType(dict(fields))

    def __getitem__(self, name: str) -> Any:
        return self._fields[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)

    def __repr__(self) -> str:
        shown = [f"{name}={self._fields[name]!r}" for name in self._shown if name in self._fields]
        named = [f"{name}=..." for name in self._fields if name not in self._shown]
        return f"{type(self).__name__}({', '.join(shown + named)})"

    @property
    def id(self) -> str:
        return str(self["id"])

    @property
    def state(self) -> str:
        return str(self["state"])


class Job(Record):
    """A resource that a background job finishes."""

    collection: ClassVar[str]
    succeeded_in: ClassVar[frozenset[str]] = frozenset({"succeeded"})
    failed_in: ClassVar[frozenset[str]] = frozenset({"failed", "cancelled"})

    @property
    def path(self) -> str:
        return f"/v1/{self.collection}/{self.id}"

    @property
    def is_finished(self) -> bool:
        return self.state in self.succeeded_in | self.failed_in

    @property
    def has_failed(self) -> bool:
        return self.state in self.failed_in


class Dataset(Job):
    """An uploaded table with its data dictionary, privacy unit and visibility."""

    collection = "datasets"
    succeeded_in = frozenset({"ready"})
    failed_in = frozenset({"rejected", "erased"})


class Sample(Job):
    """A synthetic table of a release."""

    collection = "samples"


class Release(Job):
    """One run of one synthesizer under one guarantee."""

    collection = "releases"

    @property
    def samples(self) -> tuple[Sample, ...]:
        """The samples named in the release, oldest first."""
        return tuple(Sample(sample) for sample in self.get("samples") or ())


class QualityReport(Job):
    """How good a release is: `["public"]`, and for the dataset's custodian `["exact"]`."""

    collection = "reports"

    @property
    def id(self) -> str:
        """Of the release: there is one report for each."""
        return str(self["release_id"])

    @property
    def path(self) -> str:
        return f"/v1/releases/{self.id}/report"


class Preflight(Record):
    """What a release would cost and need, from public facts: nothing was charged."""

    _shown = (
        "fits",
        "synthesizer",
        "charge",
        "charge_as_epsilon",
        "expected_error",
        "refusal",
        "problems",
    )

    @property
    def fits(self) -> bool:
        return bool(self["fits"])


def id_of(reference: str | Mapping[str, Any]) -> str:
    """The id, of an id or a record."""
    return reference if isinstance(reference, str) else str(reference["id"])

"""The available synthesizers: their descriptions, and their checks of a request.

Built-ins run their checks in this process. Any other synthesizer runs them in a child process of
its own, with a time limit; the server keeps only its description and the JSON Schema of its form.
"""

from __future__ import annotations

import contextlib
import json
import logging
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol

from pydantic import ValidationError

from app.datasets.public_rows import PublicRows
from app.engine.adapters.libraries import LEFT_OUT, library_of
from app.engine.adapters.virtualenvs import is_installed
from app.engine.catalog import auto, registry
from app.engine.catalog.auto import AUTO, AutoParams
from app.engine.catalog.registry import Entry
from app.engine.method import Preflight, Problem, Synthesizer
from app.engine.privacy.questions import loss_to_json
from app.engine.sandbox import answers
from app.engine.sandbox.protocol import Check, FormRead, ReadForm
from app.engine.schema import Schema
from app.problems import FieldError, Invalid, NotFound
from app.releases.forms import form_faults
from app.sandbox.child import ChildChecks, ChildHost, ChildUnusable
from app.settings import Settings

# Results of checks on public rows, of a few kilobytes each: a preflight and its release share one.
_MOST_REMEMBERED = 256

# A synthesizer that only was slow may answer later; until then, a list of many that fail is quick.
_FAILURE_KEPT_S = 60.0

log = logging.getLogger("halftone.synthesizers")


class SynthesizerChecks(Protocol):
    """A synthesizer's checks of a request, called in this order: first its form, then the run."""

    def read_form(self, form: dict[str, Any], schema: Schema) -> FormRead:
        """Raises `Invalid` for a malformed form, and where there is no answer."""
        ...

    def check(self, check: Check) -> Preflight:
        """Raises `Invalid` where there is no answer."""
        ...


@dataclass(frozen=True, slots=True)
class Description:
    """A synthesizer as it describes itself, with the form of its params."""

    entry: Entry
    title: str
    reference: str
    params_schema: dict[str, Any]
    # False if it is installed and does not answer.
    available: bool = True


@dataclass(frozen=True, slots=True)
class _Failure:
    """A synthesizer that did not answer, and when it is asked again."""

    description: Description
    until: float


_AUTOMATIC = Description(
    registry.automatic(), auto.TITLE, auto.REFERENCE, AutoParams.model_json_schema()
)
_UNKNOWN_PARAM = "Name the synthesizer that has this param, or check its spelling."


@cache
def _installed(declared: frozenset[str], _searched: tuple[str, ...]) -> tuple[Entry, ...]:
    """Kept, because the metadata of every distribution on the path are read for it."""
    return tuple(registry.entries(declared))


class Catalogue:
    """What is installed when the process starts; descriptions are made once."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        installed = _installed(frozenset(settings.declared), tuple(sys.path))
        self._entries = {entry.name: entry for entry in installed}
        self._described: dict[str, Description] = {}
        self._failed: dict[str, _Failure] = {}
        self._lock = threading.Lock()
        self._found: OrderedDict[str, tuple[Problem, ...]] = OrderedDict()
        self._found_lock = threading.Lock()

    def names(self) -> list[str]:
        """What is installed and can be requested by name."""
        return [entry.name for entry in self._entries.values() if self._is_installed(entry)]

    def entry(self, name: str) -> Entry:
        """Raises `Invalid` for a name that a request got wrong, and for an adapter without its
        library."""
        if name not in self._entries:
            raise self._unknown(name)
        entry = self._entries[name]
        if not self._is_installed(entry):
            library = library_of(name)
            raise Invalid.at(
                "/synthesizer",
                f"`{name}` is enabled here, but its library is not installed.",
                f"Have the operator run `halftone adapters install {library.name}`, or use"
                " another synthesizer.",
            )
        return entry

    def describe(self, name: str) -> Description:
        """Also of `auto`. Raises `NotFound`; a third party is started once, in a child process."""
        if name == AUTO:
            return _AUTOMATIC
        if name not in self._entries or not self._is_installed(self._entries[name]):
            raise NotFound("There is no synthesizer of that name.")
        # Held while a child answers, so that many requests start only one child.
        with self._lock:
            if name not in self._described:
                if name in self._failed and time.monotonic() < self._failed[name].until:
                    return self._failed[name].description
                described = self._describe(self._entries[name])
                if not described.available:
                    self._failed[name] = _Failure(described, time.monotonic() + _FAILURE_KEPT_S)
                    return described
                self._described[name] = described
            return self._described[name]

    @contextlib.contextmanager
    def checks(self, entry: Entry) -> Iterator[SynthesizerChecks]:
        """The checks of one synthesizer; a third party's share one time limit."""
        if entry.ours:
            yield _InProcess(registry.ours(entry.name))
            return
        with ChildHost(self._settings).checks() as child:
            yield _InChild(entry, child)

    def check_public(self, entry: Entry, check: Check, rows: PublicRows) -> tuple[Problem, ...]:
        """Problems that only the rows of the public dataset show, after a `check` without problems.

        The result is remembered, so that the rows are read once for a preflight and the release
        that follows it. Raises `PublicRowsGone`, and `Invalid` where a child does not answer.
        """
        key = _cache_key(entry, check, rows.dataset_id)
        with self._found_lock:
            if key in self._found:
                self._found.move_to_end(key)
                return self._found[key]
        # Outside the lock: reading the rows takes seconds, and other requests must not wait for it.
        found = self._public_problems(entry, check, rows)
        with self._found_lock:
            self._found[key] = found
            while len(self._found) > _MOST_REMEMBERED:
                self._found.popitem(last=False)
        return found

    def _public_problems(self, entry: Entry, check: Check, rows: PublicRows) -> tuple[Problem, ...]:
        if entry.ours:
            return answers.public_problems(registry.ours(entry.name), check, rows)
        with _answering(entry):
            return ChildHost(self._settings).check_public(check, rows)

    def _is_installed(self, entry: Entry) -> bool:
        return not entry.adapter or is_installed(self._settings.adapters, library_of(entry.name))

    def _unknown(self, name: str) -> Invalid:
        if name in LEFT_OUT:
            message = f"`{name}` is not offered: {LEFT_OUT[name]}."
        elif registry.is_adapter(name):
            message = (
                f"`{name}` reads the bounded table itself, and is not enabled here: the operator"
                " names such methods in HALFTONE_DECLARED."
            )
        else:
            message = "There is no synthesizer of that name."
        names = ", ".join((AUTO, *self.names()))
        return Invalid.at("/synthesizer", message, f"Use one of {names}.")

    def auto_params(self, form: dict[str, Any]) -> AutoParams:
        """The form of a request that names no synthesizer. Raises `Invalid`."""
        try:
            return AutoParams.model_validate(form)
        except ValidationError as error:
            raise _bad_form(form_faults(error, form, _UNKNOWN_PARAM)) from None

    def _describe(self, entry: Entry) -> Description:
        if not entry.ours:
            return self._describe_in_child(entry)
        synthesizer = registry.ours(entry.name)
        return Description(
            entry,
            synthesizer.title,
            synthesizer.reference,
            synthesizer.Params.model_json_schema(),
        )

    def _describe_in_child(self, entry: Entry) -> Description:
        try:
            described = ChildHost(self._settings).describe(entry.name)
        except ChildUnusable as error:
            log.warning("synthesizer %s does not describe itself: %s", entry.name, error.detail)
            return Description(entry, entry.name, "", {}, available=False)
        return Description(entry, described.title, described.reference, described.params_schema)


class _InProcess:
    """Checks of a synthesizer in this process."""

    def __init__(self, synthesizer: Synthesizer) -> None:
        self._synthesizer = synthesizer

    def read_form(self, form: dict[str, Any], schema: Schema) -> FormRead:
        try:
            return answers.form_read(self._synthesizer, form, schema)
        except ValidationError as error:
            fields = ", ".join(f"`{field}`" for field in self._synthesizer.Params.model_fields)
            raise _bad_form(form_faults(error, form, f"Send params of these: {fields}.")) from None

    def check(self, check: Check) -> Preflight:
        return answers.preflight(self._synthesizer, check)


class _InChild:
    """Checks of a third party's synthesizer, in a process of its own."""

    def __init__(self, entry: Entry, child: ChildChecks) -> None:
        self._entry = entry
        self._child = child

    def read_form(self, form: dict[str, Any], schema: Schema) -> FormRead:
        with _answering(self._entry):
            read = self._child.read_form(ReadForm(self._entry.name, form, schema))
        if read.params is None:
            faults = [FieldError(at.pointer, at.message, at.remedy) for at in read.problems]
            raise _bad_form(faults)
        return read

    def check(self, check: Check) -> Preflight:
        with _answering(self._entry):
            return self._child.check(check)


@contextlib.contextmanager
def _answering(entry: Entry) -> Iterator[None]:
    """Raises `Invalid` where a child does not answer."""
    try:
        yield
    except ChildUnusable as error:
        # The client is not shown the cause: a third party's output could hold anything.
        log.warning("synthesizer %s could not check a request: %s", entry.name, error.detail)
        raise _no_answer() from None


def _cache_key(entry: Entry, check: Check, dataset_id: str) -> str:
    """Everything that a check of public rows depends on, as text; all of it is public."""
    facts = [
        (entry.name, entry.version, check.form, dataset_id),
        (check.schema.to_wire(), check.unit.to_wire(), loss_to_json(check.loss)),
    ]
    return json.dumps(facts, sort_keys=True)


def _bad_form(faults: list[FieldError]) -> Invalid:
    return Invalid("The synthesizer's params must be corrected.", errors=faults)


def _no_answer() -> Invalid:
    return Invalid.at(
        "/synthesizer",
        "The synthesizer gave no answer within its limits of time and memory.",
        "Send the request again, or use another synthesizer. The operator can read its log.",
    )

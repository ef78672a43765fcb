"""The synthesizers on offer: described, and asked whether they could run.

Built-ins are asked in this process. Anything else is asked in a child of its own, with a
time limit; the server holds only what it said of itself and the JSON Schema of its form.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from app.engine.adapters.libraries import LEFT_OUT, library_of
from app.engine.adapters.virtualenvs import is_installed
from app.engine.privacy.loss import PrivacyLoss
from app.engine.schema import PrivacyUnit, Schema
from app.engine.synthesizers import registry
from app.engine.synthesizers.base import Limits, PublicFacts, delta_share
from app.engine.synthesizers.choice import AUTO, AutoParams
from app.engine.synthesizers.operations import Check, Checked
from app.engine.synthesizers.registry import Entry
from app.jobs.child import ChildHost, ChildUnusable
from app.problems import FieldError, Invalid, NotFound
from app.releases.forms import form_faults
from app.settings import Settings

log = logging.getLogger("halftone.synthesizers")


@dataclass(frozen=True, slots=True)
class Case:
    """What a synthesizer is asked about: the public facts of one request."""

    schema: Schema
    unit: PrivacyUnit
    loss: PrivacyLoss
    public: PublicFacts | None
    limits: Limits


@dataclass(frozen=True, slots=True)
class Description:
    """A synthesizer in its own words, with the form of its params."""

    entry: Entry
    title: str
    reference: str
    params_schema: dict[str, Any]
    available: bool = True
    """False if it is installed and does not answer."""


class Catalogue:
    """What is installed when the process starts; descriptions are made once."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._entries = {entry.name: entry for entry in registry.entries(settings.declared)}
        self._described: dict[str, Description] = {}
        self._lock = threading.Lock()

    def entries(self) -> list[Entry]:
        return [entry for entry in self._entries.values() if self._is_there(entry)]

    def entry(self, name: str) -> Entry:
        """Raises `Invalid` for a name that a request got wrong, and for an adapter without its
        library."""
        if name not in self._entries:
            raise self._unknown(name)
        entry = self._entries[name]
        if not self._is_there(entry):
            library = library_of(name)
            raise Invalid.at(
                "/synthesizer",
                f"`{name}` is enabled here, but its library is not installed.",
                f"Have the operator run `halftone adapters install {library.name}`, or use"
                " another synthesizer.",
            )
        return entry

    def describe(self, name: str) -> Description:
        """Raises `NotFound`; asks a third party once, in a child."""
        if name not in self._entries or not self._is_there(self._entries[name]):
            raise NotFound("There is no synthesizer of that name.")
        with self._lock:
            if name not in self._described:
                described = self._ask(self._entries[name])
                if not described.available:
                    return described
                self._described[name] = described
            return self._described[name]

    def check(self, entry: Entry, form: dict[str, Any], case: Case) -> Checked:
        """The form with its defaults, and what a run would need. Raises `Invalid`.

        `case.loss` has what `delta_share` of an earlier answer set aside, if it said any.
        """
        if not entry.ours:
            return self._check_in_child(entry, form, case)
        synthesizer = registry.ours(entry.name)
        try:
            params = synthesizer.Params.model_validate(form)
        except ValidationError as error:
            raise _bad_form(form_faults(error, form)) from None
        preflight = synthesizer.check(
            case.schema, case.unit, params, case.loss, case.public, case.limits
        )
        return Checked(
            params.model_dump(mode="json", exclude_none=True),
            preflight,
            delta_share(synthesizer, params, case.schema),
        )

    def _is_there(self, entry: Entry) -> bool:
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
        names = ", ".join((AUTO, *(entry.name for entry in self.entries())))
        return Invalid.at("/synthesizer", message, f"Use one of {names}.")

    def auto_params(self, form: dict[str, Any]) -> AutoParams:
        """The form of a request that names no synthesizer. Raises `Invalid`."""
        try:
            return AutoParams.model_validate(form)
        except ValidationError as error:
            raise _bad_form(form_faults(error, form)) from None

    def _check_in_child(self, entry: Entry, form: dict[str, Any], case: Case) -> Checked:
        request = Check(
            entry.name, form, case.schema, case.unit, case.loss, case.public, case.limits
        )
        try:
            checked = ChildHost(self._settings).check(request)
        except ChildUnusable as error:
            log.warning("synthesizer %s could not check a request: %s", entry.name, error.detail)
            raise _no_answer() from None
        if checked.params is None:
            problems = checked.preflight.problems
            raise _bad_form([FieldError(at.pointer, at.message, at.remedy) for at in problems])
        return checked

    def _ask(self, entry: Entry) -> Description:
        if not entry.ours:
            return self._ask_in_child(entry)
        synthesizer = registry.ours(entry.name)
        return Description(
            entry,
            synthesizer.title,
            synthesizer.reference,
            synthesizer.Params.model_json_schema(),
        )

    def _ask_in_child(self, entry: Entry) -> Description:
        try:
            said = ChildHost(self._settings).describe(entry.name)
        except ChildUnusable as error:
            log.warning("synthesizer %s does not describe itself: %s", entry.name, error.detail)
            return Description(entry, entry.name, "", {}, available=False)
        return Description(entry, said.title, said.reference, said.params_schema)


def _bad_form(faults: list[FieldError]) -> Invalid:
    return Invalid("The synthesizer's params need mending.", errors=faults)


def _no_answer() -> Invalid:
    return Invalid.at(
        "/synthesizer",
        "The synthesizer gave no answer within its limits of time and memory.",
        "Send the request again, or use another synthesizer; its log is with the operator.",
    )

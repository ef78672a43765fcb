"""Which synthesizers there are, and who vouches for them.

Built-ins are the modules of `app.engine.synthesizers`: one method each, of the module's name. They
are listed by their files and imported when they are needed. Third parties register in the
entry-point group `halftone.synthesizers`; they are listed from the metadata of installed
distributions, without importing them. Only a child process calls `load` on one. Adapters are
Halftone's code around another project's library (see `app.engine.adapters`); they are there only
where the admin has enabled them by name.
"""

from __future__ import annotations

import importlib
import logging
import pkgutil
import re
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, PackageNotFoundError, entry_points, version
from typing import Any, Literal, cast

from app.engine import synthesizers
from app.engine.adapters.libraries import library_of
from app.engine.catalog.third_party import adapted
from app.engine.method import Synthesizer

GROUP = "halftone.synthesizers"
DISTRIBUTION = "halftone"

_ADAPTERS = {
    "dpmm:aim": "app.engine.adapters.synthesizer:DpmmAim",
    "dpmm:mst": "app.engine.adapters.synthesizer:DpmmMst",
    "smartnoise:aim": "app.engine.adapters.synthesizer:SmartnoiseAim",
}

# The name in a request that leaves the choice to the service.
AUTO = "auto"

_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}", re.ASCII)

Assurance = Literal["enforced", "declared"]

logger = logging.getLogger(__name__)


class UnknownSynthesizer(LookupError):
    """No synthesizer of that name is registered."""

    def __init__(self, name: str) -> None:
        super().__init__(f"there is no synthesizer `{name}`")
        self.name = name


@dataclass(frozen=True, slots=True)
class Entry:
    """A registered synthesizer as its distribution's metadata describes it; nothing is imported.

    `assurance` is ours to say: `enforced` (it learns only what the kernel answers), or
    `declared` for those that the admin enabled by name to see the bounded table. An `adapter`
    is of our code, though its library is not: its form is checked and explained anywhere.
    """

    name: str
    distribution: str
    version: str
    builtin: bool
    assurance: Assurance
    adapter: bool = False

    @property
    def ours(self) -> bool:
        return self.builtin or self.adapter


def entries(declared: Collection[str] = ()) -> list[Entry]:
    """All usable synthesizers, built-ins first, then adapters, then by name.

    `declared` names the third parties (setting `HALFTONE_DECLARED`) with `trusted_call`;
    a built-in is always enforced.
    """
    own = [Entry(name, DISTRIBUTION, _own_version(), True, "enforced") for name in built_ins()]
    adapted = [_adapter(name) for name in _ADAPTERS if name in declared]
    return (
        own
        + adapted
        + [
            Entry(
                point.name,
                _distribution(point),
                _version(point),
                False,
                "declared" if point.name in declared else "enforced",
            )
            for point in _third_parties()
        ]
    )


def entry(name: str, declared: Collection[str] = ()) -> Entry:
    """The entry of that name; raises `UnknownSynthesizer`."""
    for found in entries(declared):
        if found.name == name:
            return found
    raise UnknownSynthesizer(name)


def automatic() -> Entry:
    """The choice itself, as one more entry: what it picks is built in, and so enforced."""
    return Entry(AUTO, DISTRIBUTION, _own_version(), True, "enforced")


def _adapter(name: str) -> Entry:
    library = library_of(name)
    return Entry(name, library.distribution, library.version, False, "declared", adapter=True)


def is_adapter(name: str) -> bool:
    return name in _ADAPTERS


@cache
def built_ins() -> tuple[str, ...]:
    """Names of the built-ins, in order; nothing is imported."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules(synthesizers.__path__)))


def builtin(name: str) -> Synthesizer:
    """A built-in, fit to run in any process; raises `UnknownSynthesizer`."""
    if name not in built_ins():
        raise UnknownSynthesizer(name)
    return _synthesizer_of(name)()


@cache
def _synthesizer_of(name: str) -> type[Synthesizer]:
    """The class of that name in the module of that name."""
    module = importlib.import_module(f"{synthesizers.__name__}.{name}")
    for found in vars(module).values():
        is_one = isinstance(found, type) and issubclass(found, Synthesizer)
        if is_one and getattr(found, "name", None) == name:
            return cast(type[Synthesizer], found)
    raise LookupError(f"{module.__name__} has no synthesizer of the name {name!r}")


def ours(name: str) -> Synthesizer:
    """A built-in or an adapter: our own code, whose `check` and `load` may run in any process."""
    return _adapter_of(_ADAPTERS[name]) if name in _ADAPTERS else builtin(name)


def _adapter_of(path: str) -> Synthesizer:
    module, _, attribute = path.partition(":")
    return cast(Synthesizer, getattr(importlib.import_module(module), attribute)())


def import_built_ins() -> None:
    """So that a process that waits for work need not import them when it comes."""
    for name in built_ins():
        builtin(name)


def load(name: str) -> Synthesizer:
    """Any registered synthesizer. Imports third-party code: for child processes only."""
    if name in built_ins() or name in _ADAPTERS:
        return ours(name)
    for point in _third_parties():
        if point.name == name:
            made: Any = point.load()
            return adapted(made() if isinstance(made, type) else made)
    raise UnknownSynthesizer(name)


def _third_parties() -> list[EntryPoint]:
    points = [point for point in entry_points(group=GROUP) if _distribution(point) != DISTRIBUTION]
    times_named = Counter(point.name for point in points)
    usable = []
    for point in sorted(points, key=lambda point: point.name):
        reason = _refusal(point, times_named)
        if reason:
            logger.warning(
                "synthesizer %r of %s is refused: %s", point.name, _distribution(point), reason
            )
        else:
            usable.append(point)
    return usable


def _refusal(point: EntryPoint, times_named: Counter[str]) -> str | None:
    # A distribution of the same machine must not take the place of code that is reviewed.
    if point.name in built_ins() or point.name == AUTO:
        return "the name belongs to Halftone"
    # Which one ran would depend on the order of installation.
    if times_named[point.name] > 1:
        return "several distributions claim the name"
    if not _NAME.fullmatch(point.name):
        return "a name is a small letter, then small letters, digits and underscores"
    return None


def _distribution(point: EntryPoint) -> str:
    return point.dist.name.lower() if point.dist is not None else ""


def _version(point: EntryPoint) -> str:
    return point.dist.version if point.dist is not None else ""


# Kept, for each built-in states it, and the metadata would be parsed for every one of them.
@cache
def _own_version() -> str:
    try:
        return version(DISTRIBUTION)
    except PackageNotFoundError:
        return "unreleased"
